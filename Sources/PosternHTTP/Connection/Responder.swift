internal import PosternCore
import Synchronization

/// The right to answer one request, from any thread. The first answer counts; later ones change nothing, nor does one
/// to a client that has left. Released without an answer it answers 500, so that no client waits forever.
public final class Responder: Sendable {
    let target: any ResponseTarget
    /// Which of the target's requests this is.
    let turn: UInt64
    private let isUsed = Atomic<Bool>(false)

    init(_ target: any ResponseTarget, turn: UInt64) {
        self.target = target
        self.turn = turn
    }

    deinit {
        guard use() else { return }
        let problem = Problem(
            slug: .internal, status: 500, detail: "The request was dropped without an answer; this is a bug.")
        target.settle(.problem(problem), turn: turn)
    }

    public func respond(_ response: HTTPResponse) { settle(.response(response)) }

    /// Answers with what `render` makes of it on the connection's worker thread: for callers who have no time for that.
    public func respond(rendering render: @escaping @Sendable () -> HTTPResponse) { settle(.rendered(render)) }

    /// Has `action` called, at most once, if the client hangs up before it is answered, and when the server stops without
    /// waiting. The connection is closed then. A hang-up is noticed within a second once a request is suspended.
    public func onHangUp(_ action: @escaping @Sendable () -> Void) { target.onHangUp(turn: turn, action) }

    /// Closes the connection without a response.
    public func hangUp() { settle(.hangUp) }

    func settle(_ outcome: Outcome) {
        if use() { target.settle(outcome, turn: turn) }
    }

    /// Whether this call is the first to use the responder.
    private func use() -> Bool { !isUsed.exchange(true, ordering: .relaxed) }
}

/// Where the outcome of a request goes: its connection, or a test that calls the handler without one.
protocol ResponseTarget: AnyObject, Sendable {
    /// Called once for each request, from any thread.
    func settle(_ outcome: Outcome, turn: UInt64)
    /// Has `action` called if the client hangs up before request `turn` is answered.
    func onHangUp(turn: UInt64, _ action: @escaping @Sendable () -> Void)
}

extension Connection: ResponseTarget {}

/// What becomes of a request.
enum Outcome: Sendable {
    case response(HTTPResponse)
    case rendered(@Sendable () -> HTTPResponse)
    /// Rendered when it is sent, by the connection, which knows path and request id.
    case problem(Problem)
    /// Closed without an answer.
    case hangUp
    /// Closed by the owner of the detached connection.
    case detached(@Sendable (DetachedConnection) -> Void)
}
