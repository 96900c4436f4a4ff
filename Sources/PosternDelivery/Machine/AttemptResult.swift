import PosternCore
import PosternUpstream

/// What was decided about a request: by the upstream's adapter if there was a response, by the worker if there was none.
struct AttemptResult: Sendable {
    let judgement: Judgement
    /// Why the request did not deliver; has no meaning if it did.
    let error: AttemptError
    /// The result from the transport.
    let transfer: TransferResult

    /// If the adapter has no `judgement`, a failed transfer is retried.
    init(_ transfer: TransferResult, _ judgement: Judgement?, at now: Timestamp) {
        self.transfer = transfer
        switch transfer {
        case .success(let response):
            self.judgement = judgement ?? Judgement(.retry(after: nil))
            error = AttemptError(
                Self.errorClass(of: self.judgement.verdict, status: response.status), status: response.status,
                detail: Self.detail(of: self.judgement.verdict) ?? self.judgement.reason ?? "HTTP \(response.status)",
                at: now)
        case .failure(let failure):
            self.judgement = judgement ?? Judgement(.retry(after: nil))
            error = AttemptError(
                Self.errorClass(of: failure.reason),
                detail: (judgement?.verdict).flatMap(Self.detail) ?? failure.detail, at: now)
        }
    }

    var at: Timestamp { error.at }
    private var failure: TransferFailure? { if case .failure(let failure) = transfer { failure } else { nil } }
    /// Whether the connection failed without an HTTP response, so that the failure concerns the host.
    var isConnectionFailure: Bool { failure != nil }
    /// Whether the upstream may have received a request that got no response.
    var isAmbiguous: Bool { failure?.mayHaveArrived ?? false }
    /// Whether the gateway itself cancelled the request.
    var wasCancelled: Bool { failure?.reason == .cancelled }

    private static func errorClass(of verdict: Verdict, status: Int) -> AttemptError.Class {
        switch verdict {
        case .delivered, .proceed, .each, .split, .reject: .refused
        case .refreshToken, .park, .holdUpstream(.credentials, _): .unauthorized
        case .holdUpstream(.configuration, _): .misconfigured
        case .retry, .backOff, .suspect:
            switch status {
            case 401, 403: .unauthorized
            case 408, 420, 423, 425, 429, 449: .busy
            // Those of an intermediary, and a 2xx status whose body reports a failure.
            case 460, 499, 500..., 200...299: .failing
            case 400..<500 where verdict.isPlainRetry: .busy
            default: .misconfigured
            }
        }
    }

    private static func errorClass(of reason: TransferFailure.Reason) -> AttemptError.Class {
        switch reason {
        case .unreachable, .lackedResources: .unreachable
        case .timeout: .timeout
        case .interrupted, .cancelled: .interrupted
        case .garbled: .garbled
        }
    }

    private static func detail(of verdict: Verdict) -> String? {
        switch verdict {
        case .holdUpstream(_, let detail): detail
        case .split(let reason), .reject(let reason): reason
        case .delivered, .proceed, .each, .retry, .backOff, .suspect, .refreshToken, .park: nil
        }
    }
}

extension Verdict {
    /// Whether the upstream asks for a later request, and nothing is doubtful.
    fileprivate var isPlainRetry: Bool { if case .retry = self { true } else { false } }
}
