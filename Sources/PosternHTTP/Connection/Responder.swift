import PosternCore
import Synchronization

/// Responds to one request, from any thread. The first response counts; later ones, and one to a client that has hung
/// up, have no effect. If it is released without a response, the client gets 500, so that no client waits forever.
public final class Responder: Sendable {
    let target: any ResponseTarget
    /// Which of the target's requests this is.
    let requestNumber: UInt64
    private let isUsed = Atomic<Bool>(false)

    init(_ target: any ResponseTarget, requestNumber: UInt64) {
        self.target = target
        self.requestNumber = requestNumber
    }

    deinit {
        guard use() else { return }
        let problem = Problem(
            slug: .internal, status: 500, detail: "The request was dropped without a response; this is a bug.")
        target.settle(.problem(problem), requestNumber: requestNumber)
    }

    /// Sends `response`; has no effect if there was a response before.
    public func respond(_ response: HTTPResponse) { settle(.response(response)) }

    /// Sends the response that `render` produces on the connection's worker thread, so that it does not take the
    /// caller's time.
    public func respond(rendering render: @escaping @Sendable () -> HTTPResponse) { settle(.rendered(render)) }

    /// Sends `head`, whose body is read from `stream` as the client takes it. `wake` and `cut` then steer the stream.
    public func stream(_ head: HTTPResponse, _ stream: any ResponseStream) { settle(.stream(head, stream)) }

    /// Has the stream read again. Does nothing if it has ended, or before it was read for the first time.
    public func wake() { target.wake(requestNumber: requestNumber) }

    /// Breaks off the stream and closes the connection, also if the client does not read.
    public func cut() { target.cut(requestNumber: requestNumber) }

    /// Calls `action`, at most once, if the client hangs up before the response is sent, or if the server stops without
    /// waiting. The connection is then closed. Once a request is suspended, a hang-up is detected within a second.
    public func onHangUp(_ action: @escaping @Sendable () -> Void) {
        target.onHangUp(requestNumber: requestNumber, action)
    }

    /// Closes the connection without a response.
    public func hangUp() { settle(.hangUp) }

    func settle(_ action: ResponseAction) {
        if use() { target.settle(action, requestNumber: requestNumber) }
    }

    /// Whether this call is the first to use the responder.
    private func use() -> Bool { !isUsed.exchange(true, ordering: .relaxed) }
}

/// Receives the action of a request: its connection, or a test that calls the handler without one.
protocol ResponseTarget: AnyObject, Sendable {
    /// Called once for each request, from any thread.
    func settle(_ action: ResponseAction, requestNumber: UInt64)
    /// Calls `action` if the client hangs up before the response to request `requestNumber` is sent.
    func onHangUp(requestNumber: UInt64, _ action: @escaping @Sendable () -> Void)
    /// The stream that is the response to request `requestNumber` has more.
    func wake(requestNumber: UInt64)
    /// Breaks off the stream that is the response to request `requestNumber`, or to any request.
    func cut(requestNumber: UInt64?)
}

extension Connection: ResponseTarget {}

/// What happens to a request.
enum ResponseAction: Sendable {
    case response(HTTPResponse)
    case rendered(@Sendable () -> HTTPResponse)
    /// A problem document, rendered by the connection when it is sent, because the connection knows path and request
    /// id.
    case problem(Problem)
    /// A response without its body, and what that is read from.
    case stream(HTTPResponse, any ResponseStream)
    /// The connection is closed without a response.
    case hangUp
    /// The owner of the detached connection closes it.
    case detached(@Sendable (DetachedConnection) -> Void)
}
