import PosternCore
import PosternUpstream

/// What follows from the responses of monitoring (section 4.11).
extension Monitoring {
    func outcome(on response: UpstreamResponse, to batch: Batch, at now: Timestamp) -> Outcome {
        let answered = Answered(batch, status: response.status, at: now)
        let isUpload = answered.step == .uploadMetrics
        switch response.status {
        case 200..<300:
            if isUpload { return outcome(upload: response.body, answered) }
            if answered.step == .uploadCrashLog, Self.namedCrash(batch.messages[0], answered.kind) != nil {
                return Outcome(.delivered(), steps: answered.reached.results(of: answered.kind))
            }
            return answered.step == .uploadCrashLog
                ? Outcome(.proceed(progress: answered.reached.stored))
                : outcome(configuration: response.body, answered)
        case 300..<400, 407:
            return Outcome(.holdUpstream(.configuration, detail: response.outline(for: " from monitoring")))
        case 401, 403, 404:
            return answered.refused("HTTP \(response.status) from monitoring")
        // Not processed: the connection leads to another server.
        case 421: return Outcome(.retry(after: response.retryAfter(now: now)), tookNothing: true)
        default:
            // An upload that failed may have been counted all the same.
            if isUpload { return answered.refused("HTTP \(response.status) from monitoring") }
            return response.status < 500 && !response.isDeferral && response.status >= 400
                ? answered.refused("HTTP \(response.status) from monitoring")
                : Outcome(.retry(after: response.retryAfter(now: now)))
        }
    }

    func outcome(on failure: TransferFailure, to batch: Batch, at now: Timestamp) -> Outcome {
        let answered = Answered(batch, status: nil, at: now)
        guard answered.step == .uploadMetrics else { return Outcome(.retry(after: nil)) }
        guard failure.mayHaveArrived else { return Outcome(.retry(after: nil), tookNothing: true) }
        return answered.refused(Self.mayHaveArrived)
    }

    private func outcome(upload body: [UInt8], _ answered: Answered) -> Outcome {
        let read = JSONParser.ofThisThread.parse(body) { $0["message"]?.string?.lowercased() ?? "" }
        guard case .success(let word) = read, word.hasPrefix("successfully sent") else {
            return answered.refused("monitoring did not say that it was sent")
        }
        return Outcome(.delivered(), steps: answered.reached.results(of: answered.kind))
    }

    /// For the operator, if the configuration has metrics sent where they may not be.
    private func notice(on configuration: String) -> UpstreamNotice? {
        guard let platform = MonitoringConfiguration(stored: Array(configuration.utf8))?.options,
            options.ignoresURL(of: platform, permitting: uploadHosts)
        else { return nil }
        return UpstreamNotice(
            "customUploadUrl of the platform's configuration is ignored: its host is neither that of baseURL nor one of "
                + "uploadHosts", quote: platform.uploadURL)
    }

    private func outcome(configuration body: [UInt8], _ answered: Answered) -> Outcome {
        let read = JSONParser.ofThisThread.parse(body) { MonitoringConfiguration.read($0, at: answered.at) }
        switch read {
        case .failure:
            return Outcome(
                .suspect(after: nil, rule: .afterTries(Answer.junkLimit)), steps: answered.stepsOfFailure)
        case .success(.disabled): return answered.refused("monitoring is disabled for the application")
        case .success(.missing): return answered.refused("monitoring is not provided for the application")
        case .success(.provided(let text)):
            let kept = keepsAnswer ? [StateChange.set(key: Self.answerKey, value: body)] : []
            return Outcome(
                .proceed(progress: answered.reached.stored),
                changes: [.set(key: Self.configurationKey, value: Array(text.utf8))] + kept, notice: notice(on: text))
        }
    }
}

/// A request of monitoring that has ended.
private struct Answered {
    let kind: AppServicesKind
    let step: Step
    let at: Timestamp
    /// The progress of its message if the step is done.
    let reached: AppServicesProgress

    init(_ batch: Batch, status: Int?, at now: Timestamp) {
        let message = batch.messages[0]
        kind = AppServicesKind(rawValue: message.kind.description) ?? .metrics
        let step = batch.request?.step.flatMap(Step.init) ?? .fetchConfiguration
        self.step = step
        at = now
        let mark = AppServicesProgress.Mark(status: status, at: now)
        reached = AppServicesProgress(message.progress).with { $0.sent = step }.marking(step, mark)
    }

    var stepsOfFailure: [StepResult] { reached.results(of: kind, failed: step) }

    func refused(_ reason: String) -> Outcome { Outcome(.reject(reason: reason), steps: stepsOfFailure) }
}
