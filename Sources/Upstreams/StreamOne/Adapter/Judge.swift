import PosternCore
import PosternUpstream
import StreamOneClient

/// What a response to a queued call means (the specification's section 8).
struct Judge {
    let call: StreamOneCall
    /// Whether an earlier attempt of the same call may have taken effect.
    let mayHaveArrived: Bool
    let pause: Pause?
    let lengths: Pause.Lengths
    let now: Timestamp

    /// The number of attempts for a call on which the platform itself fails (A1).
    private static let faultLimit = 5

    /// - Parameter answer: The platform's, if the response is one.
    func outcome(on response: UpstreamResponse, _ answer: Answer?) -> Outcome {
        guard let answer else {
            let after = response.retryAfter(now: now)
            guard (200...299).contains(response.status) else {
                // It comes from a proxy in front of the platform.
                if response.status == 407 { return Outcome(.usual(for: response, now: now)) }
                let reason = response.redirectTarget == nil ? nil : response.outline()
                return Outcome(.retry(after: after), reason: reason)
            }
            // It may have carried out the call without being able to respond. So the attempts are limited if other
            // calls succeed.
            return Outcome(
                .suspect(after: after),
                reason: "HTTP \(response.status) with a body that is not a response of the platform")
        }
        return switch answer.status.meaning {
        case .ok: cleared(.delivered(result: answer.bytes))
        case .fault:
            cleared(.suspect(after: nil, rule: .afterTries(Self.faultLimit)), answer)
        case .clock: clock(answer, response)
        case .authentication: authentication(answer)
        case .rateLimited: paused(.rateLimited, answer)
        case .readOnly: paused(.readOnly, answer)
        case .settledBefore where isSettled(answer): cleared(.delivered(result: answer.bytes))
        // Queued calls are in no session.
        case .denied, .permanent, .settledBefore, .needsHash, .loginRefused, .sessionGone:
            cleared(.reject(reason: answer.summary), answer)
        }
    }

    /// The call is rejected because it is done already, by an earlier attempt.
    private func isSettled(_ answer: Answer) -> Bool {
        mayHaveArrived && (!answer.status.isAbsence || ActionCatalog.isDeletion(call))
    }

    /// The platform authenticates the actor and accepts writes, so any pause has ended. A `refusal` stays with the
    /// call.
    private func cleared(_ verdict: Verdict, _ refusal: Answer? = nil) -> Outcome {
        Outcome(
            verdict, changes: pause == nil ? [] : [.remove(key: Pause.key)], reason: refusal?.summary,
            refusal: refusal?.bytes)
    }

    /// Signed again once, then at long intervals without a limit, because a call is not the cause of a wrong clock
    /// (A2).
    private func clock(_ answer: Answer, _ response: UpstreamResponse) -> Outcome {
        var outcome = paused(.clock, answer)
        outcome.judgement.notice = response.clockSkew(now: now).map { UpstreamNotice($0) }
        return outcome
    }

    /// Signed again once. After that every further call would fail, too, and lead to status 8 (A3).
    private func authentication(_ answer: Answer) -> Outcome {
        var outcome = paused(.authentication, answer)
        if Pause.after(pause, .authentication, now: now, lengths: lengths).step > 0 {
            outcome.judgement.verdict = .holdUpstream(.credentials, detail: answer.summary)
        }
        return outcome
    }

    /// Concerns the actor, so no call is sent. Later one call checks whether it is over.
    private func paused(_ reason: Pause.Reason, _ answer: Answer) -> Outcome {
        let next = Pause.after(pause, reason, now: now, lengths: lengths)
        return Outcome(
            .retry(after: next.until - now), changes: next == pause ? [] : [next.change], reason: answer.summary,
            tookNothing: true)
    }
}
