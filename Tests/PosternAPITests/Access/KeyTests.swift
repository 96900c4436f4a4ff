import PosternCore
import PosternHTTP
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternAPI

@Suite struct KeyTests {
    private let start = MonotonicInstant(nanoseconds: 0)
    private let now = Timestamp(milliseconds: 1_000_000)

    // MARK: Text

    @Test(arguments: 1...20) func key_hasItsForm_whichOneChangedCharacterBreaks(seed: UInt64) {
        var random = SplitMix64(state: seed)
        let key = KeyText.make(using: &random)
        #expect(key.wholeMatch(of: #/postern_[0-9A-Za-z]{49}/#) != nil)
        #expect(Self.isWellFormed(key))
        var changed = Array(key)
        let index = 8 + Int(random.next() % 49)
        changed[index] = changed[index] == "a" ? "b" : "a"
        #expect(!Self.isWellFormed(String(changed)))
        #expect(!Self.isWellFormed(String(key.dropLast())))
    }

    /// As a scanner for leaked keys finds out.
    private static func isWellFormed(_ text: String) -> Bool {
        text.hasPrefix(KeyText.prefix) && text.utf8.count == 57
            && text.hasSuffix(KeyText.checksum(of: String(text.dropLast(6))))
    }

    /// 2^256 - 1 in base 62, and the CRC-32 of the text before it, computed with another implementation.
    @Test func largestNumber_fits() {
        struct Ones: RandomNumberGenerator {
            mutating func next() -> UInt64 { .max }
        }
        var ones = Ones()
        let key = KeyText.make(using: &ones)
        #expect(key == "postern_yhjskwdA6OZ1AL1YmHWZWm8LLG7HjnuCA2j5rOw8Xp13clcUh")
    }

    // MARK: Ring

    @Test func certificate_identifiesItsKey_unlessAnotherKeyIsPresented() {
        let ring = KeyRing()
        let keys = [
            APIKey(name: "c", sha256: [], certificateName: "backend", scopes: [.read]), key("a", "secret"),
            APIKey(name: "d", sha256: [], certificateName: "other", scopes: [.read]),
        ]
        ring.replace(with: keys, at: start)
        func name(_ authorization: String?, _ certificate: String?) -> String {
            switch ring.authenticate(authorization, certificateName: certificate, now: now) {
            case .caller(let caller): caller.key.name
            case .missing: "missing"
            case .unknown: "unknown"
            case .expired: "expired"
            }
        }
        #expect(name(nil, "backend") == "c" && name(nil, "other") == "d")
        #expect(name(nil, "Backend") == "missing" && name(nil, nil) == "missing")
        #expect(name("Bearer secret", "backend") == "a")
        #expect(name("Bearer wrong", "backend") == "unknown")
        #expect(name("Basic eDp5", "backend") == "c")
        // The digest of no key is empty.
        #expect(name("Bearer ", nil) == "missing")
        ring.replace(with: [], at: start)
        #expect(ring.isEmpty && name(nil, "backend") == "missing")
    }

    private func key(_ name: String, _ text: String, expiresAt: Timestamp? = nil, limits: RateLimits = .init())
        -> APIKey
    {
        APIKey(
            name: name, sha256: KeyText.digest(of: text), scopes: [.write], limits: limits, expiresAt: expiresAt)
    }

    private func access(_ ring: KeyRing, _ authorization: String?, at now: Timestamp? = nil) -> String {
        switch ring.authenticate(authorization, now: now ?? self.now) {
        case .caller(let caller): caller.key.name
        case .missing: "missing"
        case .unknown: "unknown"
        case .expired: "expired"
        }
    }

    @Test(
        arguments: [
            (nil, "missing"), ("", "missing"), ("Bearer", "missing"), ("Bearer ", "missing"), ("Basic YTpi", "missing"),
            ("Bearer secret", "a"), ("bearer secret", "a"), ("BEARER   secret", "a"), ("Bearer Secret", "unknown"),
            ("Bearer secret2", "unknown"), ("Bearer other", "b"), ("Bearersecret", "missing"),
            ("Bearer secret ", "unknown"),
        ] as [(String?, String)])
    func authorization_namesItsKey(header: String?, expected: String) {
        let ring = KeyRing()
        ring.replace(with: [key("a", "secret"), key("b", "other")], at: start)
        #expect(access(ring, header) == expected)
    }

    @Test func expiredKey_isDistinguished_fromItsVerySecondOn() {
        let ring = KeyRing()
        ring.replace(with: [key("a", "secret", expiresAt: now)], at: start)
        #expect(access(ring, "Bearer secret", at: now - .milliseconds(1)) == "a")
        #expect(access(ring, "Bearer secret", at: now) == "expired")
    }

    @Test func replacement_dropsKeys_andKeepsTheAllowanceOfOthers() {
        let ring = KeyRing()
        let limited = key("a", "secret", limits: .init(requestsPerSecond: 1))
        ring.replace(with: [limited, key("b", "other")], at: start)
        guard case .caller(let caller) = ring.authenticate("Bearer secret", now: now) else {
            return #expect(Bool(false))
        }
        #expect(caller.takeRequest(at: start) == nil)
        ring.replace(with: [limited], at: start)
        #expect(access(ring, "Bearer other") == "unknown")
        guard case .caller(let after) = ring.authenticate("Bearer secret", now: now) else {
            return #expect(Bool(false))
        }
        #expect(after.takeRequest(at: start) == .seconds(1), "a reload gives no new allowance")
        ring.replace(with: [], at: start)
        #expect(ring.isEmpty)
    }

    @Test func headers_tellEachLimit() {
        let limits = RateLimits(requestsPerSecond: 100, messagesPerSecond: 0.5, burst: 10)
        let caller = Caller(key("a", "secret", limits: limits), at: start)
        _ = caller.takeRequest(at: start)
        #expect(
            caller.limitHeaders.map { "\($0.name): \($0.value)" } == [
                #"RateLimit-Policy: "requests";q=10;w=1, "messages";q=10;w=20"#,
                #"RateLimit: "requests";r=9;t=1, "messages";r=10;t=1"#,
            ])
        #expect(Caller(key("a", "secret"), at: start).limitHeaders.isEmpty)
    }

    // MARK: Failed attempts

    @Test func failures_areDelayed_moreAndMore_andForgotten() {
        var attempts = FailedAttempts()
        let (address, other) = (PeerAddress(text: "192.0.2.1"), PeerAddress(text: "192.0.2.2"))
        for _ in 0..<10 { #expect(attempts.failed(from: address, at: start) == .zero) }
        let delays = (0..<8).map { _ in attempts.failed(from: address, at: start) }
        #expect(delays.first == .milliseconds(50))
        #expect(delays == delays.sorted() && delays.last == FailedAttempts.longest)
        #expect(attempts.failed(from: other, at: start) == .zero, "another address is not slowed down")
        #expect(attempts.failed(from: address, at: start + .seconds(60)) == .zero)
    }
}

extension KeyRing {
    /// Identifies the caller by this value of `Authorization`.
    func authenticate(_ authorization: String?, certificateName: String? = nil, now: Timestamp) -> Authentication {
        let digest = authorization.flatMap { text in
            Array(text.utf8).withUnsafeBufferPointer { KeyDigest(ofBearer: $0) }
        }
        return authenticate(digest, certificateName: certificateName, now: now)
    }
}
