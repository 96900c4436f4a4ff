import PosternCore
import PosternStore
import PosternUpstream
import Testing

@testable import PosternDelivery

@Suite struct TokenCacheTests {
    private static let now = Timestamp(milliseconds: 1_769_860_800_000)

    private func token(_ value: String) -> Token {
        Token(value: value, renewAt: Self.now + .seconds(3600), expiresAt: Self.now + .seconds(7200))
    }

    /// Several requests are in flight when a token is refused. The later refusals come when the new token is there
    /// already, and say nothing about it.
    @Test func refusalUnderAnOldToken_keepsTheNewOne() {
        var cache = TokenCache()
        cache.fetched(token("old"), now: Self.now)
        let old = cache.generation
        #expect(cache.refused(under: old, at: "http://u.test/", now: Self.now) == .sendAgain)
        cache.fetched(token("new"), now: Self.now)
        #expect(cache.refused(under: old, at: "http://u.test/", now: Self.now) == .sendAgain)
        #expect(cache.token(at: Self.now)?.value == "new")
        #expect(!cache.isFetching && cache.nextFetch == Self.now + .seconds(3600))
    }

    @Test func secondRefusalInARow_isTheCredentials() {
        var cache = TokenCache()
        cache.fetched(token("old"), now: Self.now)
        #expect(cache.refused(under: cache.generation, at: "http://u.test/", now: Self.now) == .sendAgain)
        #expect(cache.token(at: Self.now) == nil)
        cache.fetched(token("new"), now: Self.now)
        #expect(cache.refused(under: cache.generation, at: "http://u.test/", now: Self.now) == .credentialsAreBad)
    }

    /// After the new token was fetched, the upstream was down until that one had expired, too.
    @Test(arguments: [(120, true), (121, false), (-1, false)])
    func secondRefusal_isTheCredentials_onlyOfAFreshToken(seconds: Int, isTheirs: Bool) {
        var cache = TokenCache()
        cache.fetched(token("old"), now: Self.now)
        _ = cache.refused(under: cache.generation, at: "http://u.test/", now: Self.now)
        cache.fetched(token("new"), now: Self.now)
        let later = Self.now + .seconds(seconds)
        let meaning = cache.refused(under: cache.generation, at: "http://u.test/", now: later)
        #expect(meaning == (isTheirs ? .credentialsAreBad : .sendAgain))
        cache.fetched(token("newest"), now: later)
        #expect(cache.refused(under: cache.generation, at: "http://u.test/", now: later) == .credentialsAreBad)
    }

    /// One endpoint rejected a token, and answered with rate limits until the next one had expired as well.
    @Test(arguments: [(120, true), (121, false)])
    func secondRefusal_isTheEndpoints_onlyIfAnotherHasJustAcceptedTheToken(seconds: Int, isTheirs: Bool) {
        var cache = TokenCache()
        cache.fetched(token("old"), now: Self.now)
        _ = cache.refused(under: cache.generation, at: "http://u.test/limited", now: Self.now)
        cache.fetched(token("new"), now: Self.now)
        cache.accepted(under: cache.generation, at: "http://u.test/", now: Self.now + .seconds(600))
        let later = Self.now + .seconds(600 + seconds)
        let meaning = cache.refused(under: cache.generation, at: "http://u.test/limited", now: later)
        #expect(meaning == (isTheirs ? .endpointRefuses : .sendAgain))
    }

    /// The probes that follow soon share it, and later ones need a newer one.
    @Test func tokenRejectedLikeTheOneBefore_isUsedWhileItIsFresh() {
        var cache = TokenCache()
        cache.fetched(token("old"), now: Self.now)
        _ = cache.refused(under: cache.generation, at: "http://u.test/", now: Self.now)
        cache.fetched(token("new"), now: Self.now)
        for seconds in [0, 60, 119] {
            let later = Self.now + .seconds(seconds)
            #expect(cache.token(at: later)?.value == "new")
            #expect(cache.refused(under: cache.generation, at: "http://u.test/", now: later) == .credentialsAreBad)
        }
        #expect(cache.isRejected && cache.record.validUntilMs == nil)
        #expect(cache.token(at: Self.now + .seconds(120)) == nil)
        #expect(cache.nextFetch == Self.now + .seconds(120))
        cache.accepted(under: cache.generation, at: "http://u.test/", now: Self.now)
        #expect(!cache.isRejected && cache.token(at: Self.now + .seconds(7199))?.value == "new")
        #expect(cache.nextFetch == Self.now + .seconds(3600))
    }

    /// Others were accepted with the old token while the new one was being fetched, and none with the new one yet.
    @Test(arguments: [(120, true), (121, false)])
    func requestThatIsRejectedAgain_withAFreshToken_costsNoOther(seconds: Int, isItsOwn: Bool) {
        var cache = TokenCache()
        cache.fetched(token("old"), now: Self.now)
        _ = cache.refused(under: cache.generation, at: "http://u.test/", now: Self.now)
        cache.accepted(under: cache.generation, at: "http://u.test/", now: Self.now)
        cache.fetched(token("new"), now: Self.now)
        let later = Self.now + .seconds(seconds)
        let meaning = cache.refused(under: cache.generation, at: "http://u.test/", hasNewToken: true, now: later)
        #expect(meaning == (isItsOwn ? .endpointRefuses : .sendAgain))
        #expect((cache.token(at: later) != nil) == isItsOwn)
    }

    @Test func refusalAfterASuccess_isTheToken() {
        var cache = TokenCache()
        cache.fetched(token("old"), now: Self.now)
        _ = cache.refused(under: cache.generation, at: "http://u.test/", now: Self.now)
        cache.fetched(token("new"), now: Self.now)
        cache.accepted(under: cache.generation, at: "http://u.test/", now: Self.now)
        #expect(cache.refused(under: cache.generation, at: "http://u.test/", now: Self.now) == .sendAgain)
    }
}
