import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternAPI
@testable import PosternHTTP

/// The key of a connection's former request is not hashed again, and checked like any other.
@Suite struct KnownAuthorizationTests {
    private let ring = KeyRing()
    private let gatekeeper: Gatekeeper
    private let memory = ConnectionMemory()
    private let time = ManualTime()

    init() {
        gatekeeper = Gatekeeper(ring)
        ring.replace(with: [Self.key("a"), Self.key("b")], at: time.instant)
    }

    private static func key(_ name: String, expiresAt: Timestamp? = nil) -> APIKey {
        APIKey(name: name, sha256: KeyText.digest(of: "key-\(name)"), scopes: [.write], expiresAt: expiresAt)
    }

    /// The name of the caller of the connection's next request, or why it is refused.
    private func caller(_ authorization: String?) throws -> String {
        let line = authorization.map { "Authorization: \($0)\r\n" } ?? ""
        var reader = RequestReader()
        var position = 0
        var head: RequestHead?
        Array("GET /v1/messages HTTP/1.1\r\nHost: t\r\n\(line)\r\n".utf8).withUnsafeBufferPointer { bytes in
            _ = reader.read(bytes, from: &position) { parsed in
                head = RequestHead(parsed, peer: PeerAddress(text: "127.0.0.1"), memory: memory)
                return .discard(limit: 0)
            }
        }
        switch gatekeeper.decide(try #require(head), nil, time: time, at: time.instant) {
        case .pass(let caller, _): return caller?.key.name ?? "none"
        case .refuse(let problem, _, _): return problem.detail
        }
    }

    private var known: KnownAuthorization? { memory.value as? KnownAuthorization }

    @Test func digest_isNotComputedAgain_forTheSameBytes() throws {
        #expect(try caller("Bearer key-a") == "a")
        let first = try #require(known)
        #expect(try caller("Bearer key-a") == "a")
        #expect(known === first)
        // What is remembered is used: with this digest, the header is that of another key.
        let digest = try #require(KeyDigest(KeyText.digest(of: "key-b")))
        Array("Bearer key-a".utf8).withUnsafeBufferPointer { memory.value = KnownAuthorization($0, digest) }
        #expect(try caller("Bearer key-a") == "b")
        #expect(try caller("bearer key-a") == "a", "other bytes")
    }

    @Test(arguments: ["Bearer key-c", "Bearer key-", "Bearer key-ab", "Cearer key-a", "Bearer Key-a"])
    func otherKey_isNotTakenForTheKnownOne(authorization: String) throws {
        #expect(try caller("Bearer key-a") == "a")
        #expect(try caller(authorization).contains("API key"))
        #expect(try caller(nil).contains("requires an API key"))
        #expect(try caller("Bearer key-b") == "b")
        #expect(try caller("Bearer key-a") == "a")
    }

    @Test func wrongKey_isNotRemembered() throws {
        #expect(try caller("Bearer key-c") == "The API key is not valid.")
        #expect(memory.value == nil)
        #expect(try caller(nil).contains("requires an API key"))
        #expect(memory.value == nil)
    }

    @Test func removedKey_isRefused_withTheNextRequest_andForgotten() throws {
        #expect(try caller("Bearer key-a") == "a")
        ring.replace(with: [Self.key("b")], at: time.instant)
        #expect(try caller("Bearer key-a") == "The API key is not valid.")
        #expect(memory.value == nil)
    }

    @Test func changedKey_hasItsNewName_withTheNextRequest() throws {
        #expect(try caller("Bearer key-a") == "a")
        var renamed = Self.key("a")
        renamed.name = "renamed"
        ring.replace(with: [renamed], at: time.instant)
        #expect(try caller("Bearer key-a") == "renamed")
    }

    @Test func key_expires_andItsUseIsRecorded() throws {
        ring.replace(with: [Self.key("a", expiresAt: time.now + .seconds(10))], at: time.instant)
        #expect(try caller("Bearer key-a") == "a")
        time.advance(by: .seconds(9))
        #expect(try caller("Bearer key-a") == "a")
        #expect(ring.all.first?.lastUsedAt == time.now)
        time.advance(by: .seconds(1))
        #expect(try caller("Bearer key-a") == "The API key has expired.")
        #expect(memory.value == nil)
    }

    /// Over a real connection: another one knows nothing of it.
    @Test func connections_rememberEachTheirOwn() throws {
        try withPausedGateway { gateway in
            gateway.handler.replaceKeys([Self.key("a"), Self.key("b")], opensMetrics: false)
            let clients = try (0..<2).map { _ in try HTTPClient(port: gateway.port) }
            func status(_ client: HTTPClient, _ key: String) throws -> Int {
                try client.post("/v1/picky/event", #"{"n":1}"#, headers: [("Authorization", "Bearer key-\(key)")])
                    .status
            }
            for _ in 0..<3 {
                #expect(try status(clients[0], "a") == 202)
                #expect(try status(clients[1], "b") == 202)
                #expect(try status(clients[1], "c") == 401)
            }
            gateway.handler.replaceKeys([Self.key("b")], opensMetrics: false)
            #expect(try status(clients[0], "a") == 401)
            #expect(try status(clients[1], "b") == 202)
        }
    }
}
