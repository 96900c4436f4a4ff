public import PosternCore
import Synchronization

/// A transport that plays a list of outcomes and records what it was sent. A request beyond the list stays open until
/// the test answers it.
public final class ScriptedTransport: Transport {
    public struct Sent: Sendable {
        public let request: UpstreamRequest
        let completion: @Sendable (TransferResult) -> Void
    }
    private struct State {
        var outcomes: [TransferResult] = []
        var sent: [Sent] = []
        var open: [Sent] = []
    }
    private let state = Mutex(State())

    public init(_ outcomes: TransferResult...) {
        state.withLock { $0.outcomes = outcomes }
    }

    public func submit(
        _ request: UpstreamRequest, options: TransferOptions, completion: @escaping @Sendable (TransferResult) -> Void
    ) {
        let outcome: TransferResult? = state.withLock { state in
            let sent = Sent(request: request, completion: completion)
            state.sent.append(sent)
            guard !state.outcomes.isEmpty else {
                state.open.append(sent)
                return nil
            }
            return state.outcomes.removeFirst()
        }
        if let outcome { completion(outcome) }
    }

    /// What was sent so far.
    public var requests: [UpstreamRequest] { state.withLock { $0.sent.map(\.request) } }

    /// Requests that wait for an answer.
    public var openRequests: [UpstreamRequest] { state.withLock { $0.open.map(\.request) } }

    /// Answers the oldest open request. False when there is none.
    @discardableResult public func answer(_ outcome: TransferResult) -> Bool {
        let next: Sent? = state.withLock { $0.open.isEmpty ? nil : $0.open.removeFirst() }
        next?.completion(outcome)
        return next != nil
    }

    /// What the next requests will be answered.
    public func expect(_ outcomes: TransferResult...) { state.withLock { $0.outcomes += outcomes } }
}

extension TransferResult {
    /// An answer with that status.
    public static func status(_ status: Int, _ body: String = "", headers: [(name: String, value: String)] = []) -> Self {
        .success(UpstreamResponse(status: status, headers: headers, body: Array(body.utf8)))
    }

    public static let refusedConnection: Self = .failure(
        TransferFailure(.unreachable, mayHaveArrived: false, detail: "connection refused"))

    public static let reset: Self = .failure(
        TransferFailure(.interrupted, mayHaveArrived: true, detail: "connection reset"))
}
