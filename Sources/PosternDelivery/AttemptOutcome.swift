import PosternCore

/// What came of a request, judged: by the upstream when it answered, by us when it did not.
struct AttemptOutcome {
    let judgement: Judgement
    /// What there is to say about it if it did not deliver.
    let error: AttemptError
    /// May the upstream have taken what it did not answer?
    var isAmbiguous = false
    /// Ended by ourselves.
    var wasCancelled = false

    var at: Timestamp { error.at }

    init(_ judgement: Judgement, on response: UpstreamResponse, at now: Timestamp) {
        self.judgement = judgement
        error = AttemptError(
            Self.errorClass(of: judgement.verdict, status: response.status), status: response.status,
            detail: Self.detail(of: judgement.verdict) ?? judgement.reason ?? "answered \(response.status)", at: now)
    }

    /// Without a `judgement` of the upstream's own the batch goes out again.
    init(_ failure: TransferFailure, judgement: Judgement? = nil, at now: Timestamp) {
        self.judgement = judgement ?? Judgement(.retry(after: nil))
        error = AttemptError(
            Self.errorClass(of: failure.reason),
            detail: (judgement?.verdict).flatMap(Self.detail) ?? failure.detail, at: now)
        isAmbiguous = failure.mayHaveArrived
        wasCancelled = failure.reason == .cancelled
    }

    private static func errorClass(of verdict: Verdict, status: Int) -> AttemptError.Class {
        switch verdict {
        case .delivered, .proceed, .each, .split, .reject: .refused
        case .refreshToken, .park, .holdUpstream(.credentials, _): .unauthorized
        case .holdUpstream(.configuration, _): .misconfigured
        case .retry, .backOff, .suspect:
            switch status {
            case 401, 403: .unauthorized
            case 408, 425, 429: .busy
            // A 2xx that says in its body that it is none.
            case 500..., 200...299: .failing
            default: .misconfigured
            }
        }
    }

    private static func errorClass(of reason: TransferFailure.Reason) -> AttemptError.Class {
        switch reason {
        case .unreachable: .unreachable
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
