import PosternCore
public import PosternUpstream
import Synchronization

/// A transport that plays a list of results and records what it was sent. A request beyond the list is answered by
/// rule, if there is one that has an answer, and else stays open until the test answers it.
public final class ScriptedTransport: Transport {
    public struct Sent: Sendable {
        public let request: UpstreamRequest
        public let options: TransferOptions
        let number: Int
        let completion: @Sendable (TransferResult) -> Void
    }
    private struct State {
        var results: [TransferResult] = []
        var sent: [Sent] = []
        var open: [Sent] = []
        var rule: Rule?
    }
    public typealias Rule = @Sendable (UpstreamRequest) -> TransferResult?
    private let state = Mutex(State())

    public init(_ results: TransferResult...) {
        state.withLock { $0.results = results }
    }

    @discardableResult public func submit(
        _ request: UpstreamRequest, options: TransferOptions, completion: @escaping @Sendable (TransferResult) -> Void
    ) -> SubmittedTransfer {
        let (number, result): (Int, TransferResult?) = state.withLock { state in
            let sent = Sent(
                request: request, options: options, number: state.sent.count, completion: completion)
            state.sent.append(sent)
            if !state.results.isEmpty { return (sent.number, state.results.removeFirst()) }
            let answer = state.rule?(request)
            if answer == nil { state.open.append(sent) }
            return (sent.number, answer)
        }
        if let result { completion(result) }
        return SubmittedTransfer { [self] in cancel(number) }
    }

    private func cancel(_ number: Int) {
        let cancelled: Sent? = state.withLock { state in
            state.open.firstIndex { $0.number == number }.map { state.open.remove(at: $0) }
        }
        cancelled?.completion(.failure(TransferFailure(.cancelled, mayHaveArrived: true, detail: "cancelled")))
    }

    /// What was sent so far.
    public var requests: [UpstreamRequest] { state.withLock { $0.sent.map(\.request) } }

    /// How many were sent so far, and how many of them wait for an answer. Copies none.
    public var counts: (sent: Int, open: Int) { state.withLock { ($0.sent.count, $0.open.count) } }

    /// The options of what was sent so far.
    public var options: [TransferOptions] { state.withLock { $0.sent.map(\.options) } }

    /// Requests that wait for an answer.
    public var openRequests: [UpstreamRequest] { state.withLock { $0.open.map(\.request) } }

    /// Responds to the oldest open request that matches. Returns false if there is none.
    @discardableResult public func answer(
        _ result: TransferResult, where fits: (UpstreamRequest) -> Bool = { _ in true }
    ) -> Bool {
        let next: Sent? = state.withLock { state in
            state.open.firstIndex { fits($0.request) }.map { state.open.remove(at: $0) }
        }
        next?.completion(result)
        return next != nil
    }

    /// Sets the rule for requests beyond the list. If it is nil, they stay open.
    public func answerAll(by rule: Rule?) { state.withLock { $0.rule = rule } }

    /// Adds results for the next requests.
    public func expect(_ results: TransferResult...) { state.withLock { $0.results += results } }
}

extension TransferResult {
    /// A response with this status.
    public static func status(_ status: Int, _ body: String = "", headers: [(name: String, value: String)] = []) -> Self
    {
        .success(UpstreamResponse(status: status, headers: headers, body: Array(body.utf8)))
    }

    public static let refusedConnection: Self = .failure(
        TransferFailure(.unreachable, mayHaveArrived: false, detail: "connection refused"))

    public static let reset: Self = .failure(
        TransferFailure(.interrupted, mayHaveArrived: true, detail: "connection reset"))
}
