import PosternCore
package import PosternUpstream

extension Client {
    /// Tries id and psk by a read that is cheap: the roles of the actor, past the cache. A failed authentication counts
    /// towards a block (Assumptions A3, A4), so it begins a pause, and nothing is sent during one.
    package func probe(_ context: any UpstreamRouteContext) async -> ProbeReport {
        if let pause = backoff.pause(of: .actor, now: context.time.now) {
            return ProbeReport(
                pause.reason == .authentication ? .unauthorized : .failed,
                detail: "nothing was sent: after a failed authentication, calls pause until \(pause.until)")
        }
        let command = platform.actor.kind == .user ? "user" : "application"
        let call = Call(
            content: StreamOneCall(command: command, action: "getmyroles"), deadline: context.time.instant)
        let request = platform.request(for: call.content, at: context.time.now)
        switch await context.send(request, timeout: ProbeReport.timeout, isAbortable: true) {
        case .failure(let failure): return ProbeReport(failure)
        case .success(let response):
            guard let answer = Answer(response) else {
                var report = ProbeReport.usual(for: response, detail: CallFailure.unusable(response))
                if report.outcome == .ok { report.outcome = .failed }
                return report
            }
            if answer.status.meaning == .clock { reportSkew(response, context) }
            await apply(answer, to: call, context)
            return ProbeReport(answer.status.meaning.outcome, status: response.status, detail: answer.summary)
        }
    }
}

extension Status.Meaning {
    /// An actor that may not read its roles was authenticated.
    fileprivate var outcome: ProbeReport.Outcome {
        switch self {
        case .ok, .denied: .ok
        case .authentication: .unauthorized
        case .fault, .clock, .rateLimited, .readOnly, .permanent, .settledBefore, .needsHash, .loginRefused,
            .sessionGone:
            .failed
        }
    }
}
