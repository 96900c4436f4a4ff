import PosternCore
import PosternHTTP
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternAPI

/// Client certificates that stand for a key, with real ones and real handshakes.
@Suite(.timeLimit(.minutes(10))) struct ClientCertificateTests {
    private let folder = ScratchFolder()
    private let authority: TestAuthority
    private let keys = [
        APIKey(name: "reader", sha256: [], certificateName: "backend", scopes: [.read]),
        APIKey(name: "writer", sha256: KeyText.digest(of: "k"), scopes: [.write]),
        APIKey(
            name: "former", sha256: [], certificateName: "old", scopes: [.read],
            expiresAt: Timestamp(milliseconds: 1000)),
    ]

    init() throws { authority = try TestAuthority("authority", in: folder) }

    private func withGateway(_ keys: [APIKey], _ body: (TestGateway) throws -> Void) throws {
        var setup = Setup()
        let own = try TestCertificate("own", in: folder)
        setup.tls.certificateFile = own.certificate
        setup.tls.keyFile = own.key
        setup.tls.clientCAFile = authority.certificate
        setup.upstreams.append(NumbersUpstream())
        try withPausedGateway(setup) { gateway in
            gateway.handler.replaceKeys(keys, opensMetrics: false)
            try body(gateway)
        }
    }

    /// The status of a request sent with this certificate.
    private func status(
        _ line: String, _ client: TestCertificate?, key: String? = nil, _ gateway: TestGateway
    ) throws -> Int? {
        let files = client.map { ["-cert", $0.certificate, "-key", $0.key] } ?? []
        let authorization = key.map { "Authorization: Bearer \($0)\r\n" } ?? ""
        let body =
            line.hasPrefix("POST") ? "Content-Type: application/json\r\nContent-Length: 7\r\n\r\n{\"n\":1}" : "\r\n"
        let text = try openSSLClient(
            gateway.port, ["-quiet", "-ign_eof"] + files,
            sending: "\(line) HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\(authorization)\(body)")
        return text.split(separator: " ").dropFirst().first.flatMap { Int($0) }
    }

    private func expect(
        _ expected: Int, _ line: String, _ client: TestCertificate?, key: String? = nil, _ gateway: TestGateway,
        _ comment: Comment? = nil, sourceLocation: SourceLocation = #_sourceLocation
    ) throws {
        let found = try status(line, client, key: key, gateway)
        #expect(found == expected, comment, sourceLocation: sourceLocation)
    }

    @Test func commonName_standsForItsKey_withItsScopes() throws {
        let backend = try authority.issue("backend")
        try withGateway(keys) { gateway in
            try expect(200, "GET /v1/upstreams", backend, gateway)
            try expect(403, "POST /v1/picky/event", backend, gateway)
            #expect(gateway.context.keys.all.first { $0.key.name == "reader" }?.lastUsedAt != nil)
        }
    }

    @Test func nameWithoutAKey_isUnauthorized() throws {
        let (stranger, former) = (try authority.issue("stranger"), try authority.issue("old"))
        try withGateway(keys) { gateway in
            try expect(401, "GET /v1/upstreams", stranger, gateway)
            try expect(401, "GET /v1/upstreams", former, gateway, "the key has expired")
            try expect(403, "GET /v1/upstreams", stranger, key: "k", gateway, "the key may only write")
        }
    }

    @Test func bearerKey_wins_alsoWhenItIsWrong() throws {
        let backend = try authority.issue("backend")
        try withGateway(keys) { gateway in
            try expect(202, "POST /v1/picky/event", backend, key: "k", gateway)
            try expect(403, "GET /v1/upstreams", backend, key: "k", gateway)
            try expect(401, "GET /v1/upstreams", backend, key: "wrong", gateway)
        }
    }

    /// The names are right, and only the certificates are not.
    @Test func certificateThatIsNotVerified_isRefused_exceptForProbes() throws {
        let others = try TestAuthority("others", in: folder)
        let clients: [TestCertificate?] = [
            nil, try others.issue("backend"), try authority.issue("expired", commonName: "backend", days: -1),
            try authority.issue("server", commonName: "backend", purpose: "serverAuth"),
        ]
        for keys in [keys, []] {
            try withGateway(keys) { gateway in
                for client in clients {
                    let label = Comment(rawValue: client?.certificate ?? "none")
                    try expect(403, "GET /v1/upstreams", client, gateway, label)
                    try expect(403, "GET /v1/upstreams", client, key: "k", gateway, label)
                    try expect(403, "GET /nothing", client, gateway, label)
                    try expect(403, "GET /sdk/numbers/nothing", client, gateway, label)
                    try expect(403, "GET /metrics", client, gateway, label)
                    try expect(200, "GET /livez", client, gateway, label)
                    try expect(200, "GET /readyz", client, gateway, label)
                }
                let good = try authority.issue("client", commonName: "backend", purpose: "clientAuth")
                try expect(200, "GET /v1/upstreams", good, gateway)
            }
        }
    }
}
