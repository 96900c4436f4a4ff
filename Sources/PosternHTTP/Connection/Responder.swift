internal import PosternCore
import Synchronization

/// The right to answer one request, from any thread. The first answer counts; later ones change nothing, nor does one
/// to a client that has left. Released without an answer it answers 500, so that no client waits forever.
public final class Responder: Sendable {
    let connection: Connection
    /// Which of the connection's requests this is.
    let turn: UInt64
    private let isUsed = Atomic<Bool>(false)

    init(_ connection: Connection, turn: UInt64) {
        self.connection = connection
        self.turn = turn
    }

    deinit {
        guard use() else { return }
        let problem = Problem(
            slug: .internal, status: 500, detail: "The request was dropped without an answer; this is a bug.")
        connection.settle(.problem(problem), turn: turn)
    }

    public func respond(_ response: HTTPResponse) { settle(.response(response)) }

    /// Answers with what `render` makes of it on the connection's worker thread: for callers who have no time for that.
    public func respond(rendering render: @escaping @Sendable () -> HTTPResponse) { settle(.rendered(render)) }

    /// Has `action` called, at most once, if the client hangs up before it is answered, and when the server stops without
    /// waiting. The connection is closed then. A hang-up is noticed within a second once a request is suspended.
    public func onHangUp(_ action: @escaping @Sendable () -> Void) { connection.onHangUp(turn: turn, action) }

    /// Closes the connection without a response.
    public func hangUp() { settle(.hangUp) }

    func settle(_ outcome: Outcome) {
        if use() { connection.settle(outcome, turn: turn) }
    }

    /// Whether this call is the first to use the responder.
    private func use() -> Bool { !isUsed.exchange(true, ordering: .relaxed) }
}

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
