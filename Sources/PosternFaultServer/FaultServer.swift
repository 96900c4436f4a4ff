public import Logging
import PosternCore
public import PosternHTTP
import PosternThreads

/// A complete request.
public struct IncomingRequest: Sendable {
    public let head: RequestHead
    /// With its chunks joined; a content coding is not removed.
    public let body: [UInt8]
}

/// Responds to the requests of a `FaultServer`, on one of its worker threads: it must not block.
public protocol FaultHandler: Sendable {
    func answer(_ request: IncomingRequest, _ responder: FaultResponder)
}

/// An HTTP server that can also misbehave, so that clients can be tested against it. Plain HTTP only.
///
/// `stop` must have returned before the last reference is released.
public final class FaultServer: Sendable {
    private let server: HTTPServer
    private let timer: TimerQueue

    /// - Parameter maxBodyBytes: A longer body is refused with 413, whatever `settings` say.
    public init(
        _ settings: HTTPServerSettings, maxBodyBytes: Int = 256 << 20, handler: any FaultHandler, logger: Logger
    ) throws(HTTPServerError) {
        do throws(SystemLimitError) {
            timer = try TimerQueue(name: "fault-timer", on: DedicatedThreads())
        } catch {
            throw HTTPServerError(error)
        }
        server = HTTPServer(
            settings, handler: Adapter(handler: handler, maxBodyBytes: maxBodyBytes, timer: timer), logger: logger)
    }

    /// Listens and serves; returns the port.
    public func start() throws(HTTPServerError) -> UInt16 {
        let port = try server.start()
        return port
    }

    /// Accepted and not closed, whether or not a request is running.
    var openConnections: Int { server.openConnections }
    /// The numbers of connections that wait for their response, and of all connection objects, for leak checks.
    var suspendedConnections: Int { server.suspendedConnections }
    var livingConnections: Int { server.livingConnections }

    /// Cuts off every request that is still running. Blocks.
    public func stop() {
        server.stopAndWait(grace: .zero)
        timer.stop()
    }
}

private struct Adapter: HTTPHandler {
    let handler: any FaultHandler
    let maxBodyBytes: Int
    let timer: TimerQueue

    func admit(_ head: RequestHead) -> HeaderDecision {
        .accept(maxBodyBytes: maxBodyBytes, Admitted(head: head, handler: handler, timer: timer))
    }

    private struct Admitted: AdmittedRequest {
        let head: RequestHead
        let handler: any FaultHandler
        let timer: TimerQueue

        func answer(_ body: [UInt8], _ responder: Responder) {
            handler.answer(
                IncomingRequest(head: head, body: body),
                FaultResponder(responder, requestID: head.requestID, timer: timer))
        }
    }
}
