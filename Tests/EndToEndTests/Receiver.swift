import Logging
import PosternHTTP
import Synchronization

/// Takes every request, and notes how long its body is.
final class Receiver: HTTPHandler, AdmittedRequest {
    private let lengths = Mutex<[Int]>([])
    private let response: [UInt8]

    init(response: String = "") { self.response = Array(response.utf8) }

    var requests: Int { lengths.withLock(\.count) }
    var longestBody: Int { lengths.withLock { $0.max() ?? 0 } }

    /// Returns the server, which has to be stopped, and its port. With the port 0, it is one that is free.
    func serve(host: String = "127.0.0.1", port: Int = 0) throws -> (server: HTTPServer, port: Int) {
        let server = HTTPServer(
            HTTPServerSettings { ($0.host, $0.port, $0.workerThreads) = (host, port, 1) }, handler: self,
            logger: Logger(label: "receiver") { _ in SwiftLogNoOpLogHandler() })
        return (server, Int(try server.start()))
    }

    func admit(_ head: RequestHead) -> HeaderDecision { .accept(maxBodyBytes: 16 << 20, self) }
    func answer(_ body: [UInt8], _ responder: Responder) {
        lengths.withLock { $0.append(body.count) }
        responder.respond(HTTPResponse(status: 200, body: response))
    }
}
