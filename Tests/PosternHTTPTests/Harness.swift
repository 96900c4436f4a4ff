import Glibc
import Logging
import PosternCore
import PosternTestKit
import Synchronization
import Testing

@testable import PosternHTTP

let testLogger = Logger(label: "test")

struct IncomingRequest {
    let head: RequestHead
    let body: [UInt8]
}

/// A handler made of two closures. By default, it admits everything and echoes the body.
struct TestHandler: HTTPHandler {
    var maxBodyBytes = 1 << 20
    var refusal: @Sendable (RequestHead) -> HTTPResponse? = { _ in nil }
    var onAnswer: @Sendable (IncomingRequest, Responder) -> Void = { request, responder in
        responder.respond(HTTPResponse(status: 200, body: request.body))
    }
    var onRefusal: @Sendable (UnreadRequest) -> Void = { _ in }

    func wasRefused(_ request: UnreadRequest) { onRefusal(request) }
    func admit(_ head: RequestHead) -> HeaderDecision {
        refusal(head).map { .refuse($0) }
            ?? .accept(maxBodyBytes: maxBodyBytes, Admitted(head: head, onAnswer: onAnswer))
    }

    private struct Admitted: AdmittedRequest {
        let head: RequestHead
        let onAnswer: @Sendable (IncomingRequest, Responder) -> Void
        func answer(_ body: [UInt8], _ responder: Responder) { onAnswer(.init(head: head, body: body), responder) }
        var refusalHeaders: [(name: String, value: String)] { [("X-Admitted", "yes")] }
    }
}

/// Runs `body` against a server, stops it, and looks for leaks. By default, no time limit ends a connection before the
/// test is over.
func withServer(
    _ handler: TestHandler = TestHandler(), headerTimeout: Duration = .seconds(3600),
    idleTimeout: Duration = .seconds(3600), responseRate: Int = 64 << 10, tls: TLSFiles = TLSFiles(),
    memory: ByteBudget = ByteBudget(.max), grace: Duration = .seconds(5), maxConnections: Int = 100,
    _ body: (HTTPServer, UInt16) throws -> Void
) throws {
    let settings = HTTPServerSettings {
        ($0.port, $0.workerThreads, $0.maxConnections, $0.tls) = (0, 2, maxConnections, tls)
        ($0.headerTimeout, $0.idleTimeout, $0.responseRate) = (headerTimeout, idleTimeout, responseRate)
    }
    let server = HTTPServer(settings, memory: memory, handler: handler, logger: testLogger)
    let port = try server.start()
    let result = Result { try body(server, port) }
    server.stopAndWait(grace: grace)
    #expect(server.runningRequests == 0)
    #expect(server.openConnections == 0)
    #expect(server.suspendedConnections == 0)
    // The thread that sent the last response may not have released its responder yet.
    #expect(eventually { server.livingConnections == 0 }, "a connection is still retained")
    try result.get()
}

/// Responders to be answered later, and a way to wait for them.
final class PendingRequests: Sendable {
    private let held = Mutex<[(request: IncomingRequest, responder: Responder)]>([])

    var handler: TestHandler {
        TestHandler { [self] request, responder in held.withLock { $0.append((request, responder)) } }
    }
    var count: Int { held.withLock { $0.count } }

    func take() -> (request: IncomingRequest, responder: Responder)? {
        #expect(eventually { count > 0 }, "no request came")
        return held.withLock { $0.isEmpty ? nil : $0.removeFirst() }
    }
}

extension TestHandler {
    init(_ onAnswer: @escaping @Sendable (IncomingRequest, Responder) -> Void) { self.onAnswer = onAnswer }
}

extension HTTPClient {
    /// Sends a POST with `headers` and the required ones, and does not wait for the response.
    func sendPost(_ path: String, _ body: String, headers: String = "") {
        send("POST \(path) HTTP/1.1\r\nHost: t\r\n\(headers)Content-Length: \(body.utf8.count)\r\n\r\n\(body)")
    }

    /// Whether the peer closes the connection within so many milliseconds.
    func isClosed(within milliseconds: Int32 = 0) -> Bool {
        let peerHasClosed: Int16 = 0x2000  // POLLRDHUP, which Glibc does not export.
        var ready = pollfd(fd: socket, events: peerHasClosed, revents: 0)
        return poll(&ready, 1, milliseconds) > 0
    }
}
