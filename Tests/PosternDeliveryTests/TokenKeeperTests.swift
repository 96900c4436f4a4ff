import PosternCore
import Testing

@testable import PosternDelivery

@Suite struct TokenKeeperTests {
    private static let now = Timestamp(milliseconds: 1_769_860_800_000)

    private func token(_ value: String) -> Token {
        Token(value: value, renewAt: Self.now + .seconds(3600), expiresAt: Self.now + .seconds(7200))
    }

    /// Several requests are in flight when a token is refused. The later refusals come when the new token is there
    /// already, and say nothing about it.
    @Test func refusalUnderAnOldToken_keepsTheNewOne() {
        var keeper = TokenKeeper()
        keeper.fetched(token("old"), now: Self.now)
        let old = keeper.generation
        #expect(keeper.refused(under: old) == .sendAgain)
        keeper.fetched(token("new"), now: Self.now)
        #expect(keeper.refused(under: old) == .sendAgain)
        #expect(keeper.token(at: Self.now)?.value == "new")
        #expect(!keeper.isFetching && keeper.nextFetch == Self.now + .seconds(3600))
    }

    @Test func secondRefusalInARow_isTheCredentials() {
        var keeper = TokenKeeper()
        keeper.fetched(token("old"), now: Self.now)
        #expect(keeper.refused(under: keeper.generation) == .sendAgain)
        #expect(keeper.token(at: Self.now) == nil)
        keeper.fetched(token("new"), now: Self.now)
        #expect(keeper.refused(under: keeper.generation) == .credentialsAreBad)
    }

    @Test func refusalAfterASuccess_isTheToken() {
        var keeper = TokenKeeper()
        keeper.fetched(token("old"), now: Self.now)
        _ = keeper.refused(under: keeper.generation)
        keeper.fetched(token("new"), now: Self.now)
        keeper.accepted(under: keeper.generation)
        #expect(keeper.refused(under: keeper.generation) == .sendAgain)
    }
}
