import PosternCore
import PosternStore
import PosternUpstream

/// The effect of a verdict on the messages, the circuits, and the token.
extension DeliveryMachine {
    /// The effects of one result, while they are being computed.
    struct Evaluation {
        let flight: InFlightBatch
        let result: AttemptResult
        let random: Double
        var settlement: Settlement
        var notices: [Notice] = []
        var wakesHeld = false

        var batch: Batch { flight.batch }
        var now: Timestamp { result.at }
        var history: BatchHistory { flight.claim.history }
    }

    /// The response of a request, or its failure. `latency`: how long it took.
    mutating func answered(
        _ flight: InFlightBatch, _ result: AttemptResult, took latency: Duration = .zero, others: OtherMessages,
        random: Double
    ) -> [Action] {
        pace.answered(
            number: flight.number, latest: latestSent, status: result.error.status, took: latency, settings.pace,
            inFlight: inFlight, now: result.at)
        landed(flight)
        var evaluation = Evaluation(
            flight: flight, result: result, random: random,
            settlement: Settlement(
                batch: flight.batch.id, outcome: .delivered, status: result.error.status, endedAt: result.at))
        evaluation.settlement.isAmbiguous = result.isAmbiguous
        if let notice = result.judgement.notice { evaluation.notices += noticed(notice) }
        apply(&evaluation, others: others)
        if evaluation.settlement.outcome.isFailure { recordForFlushes(result.error, of: flight.batch.messages) }
        return [.record(evaluation.settlement)] + (evaluation.wakesHeld ? [.wakeHeld] : [])
            + evaluation.notices.map(Action.notify)
    }

    /// A notice in a response, which may be one to a request outside the queue.
    mutating func noticed(_ notice: UpstreamNotice) -> [Notice] {
        guard notice != lastSaid else { return [] }
        lastSaid = notice
        return [.said(notice)]
    }

    private mutating func apply(_ evaluation: inout Evaluation, others: OtherMessages) {
        let (batch, result) = (evaluation.batch, evaluation.result)
        guard !result.wasCancelled else { return cancel(&evaluation) }
        switch result.judgement.verdict {
        case .delivered(let answer):
            worked(&evaluation, taken: batch.messages.count)
            evaluation.settlement.delivered = batch.messages
            evaluation.settlement.steps = result.judgement.steps
            evaluation.settlement.result = answer ?? result.judgement.steps.result
            return
        case .proceed(let progress):
            worked(&evaluation, taken: 1)
            evaluation.settlement.outcome = .proceed
            evaluation.settlement.progressed = [(batch.messages[0], progress)]
            evaluation.settlement.again = [.init(batch.messages, dueAt: evaluation.now)]
            return
        case .each(let items): sort(items, &evaluation)
        case .retry(let after): retry(&evaluation, after: after)
        case .backOff: backOff(&evaluation)
        case .suspect(let after, let rule): suspect(&evaluation, after: after, rule, others)
        case .refreshToken: refuseToken(&evaluation)
        // It may have been revoked.
        case .holdUpstream(.credentials, _) where evaluation.flight.token != nil: refuseToken(&evaluation)
        case .holdUpstream(let reason, _): refuse(&evaluation, for: reason)
        case .park: park(&evaluation)
        case .split:
            worked(&evaluation)
            if batch.messages.count > 1 {
                halve(&evaluation, evaluation.history)
            } else {
                reject(batch.messages, &evaluation)
            }
        case .reject:
            worked(&evaluation)
            reject(batch.messages, &evaluation)
        }
        evaluation.settlement.detail = result.error.detail
    }

    /// A stop of the gateway is not a failure of the upstream.
    private mutating func cancel(_ evaluation: inout Evaluation) {
        evaluation.settlement.outcome = .cancelled
        evaluation.settlement.detail = evaluation.result.error.detail
        evaluation.settlement.isGivenBack = true
        if evaluation.result.isAmbiguous { evaluation.settlement.possiblyArrived = evaluation.batch.messages.map(\.id) }
        health.abandoned(at: evaluation.flight.endpoint, now: evaluation.now)
    }

    // MARK: Health

    /// The endpoint responded as one that works: it accepted `count` messages, or rejected all of them.
    mutating func worked(_ evaluation: inout Evaluation, taken count: Int = 0) {
        let flight = evaluation.flight
        recover(&evaluation, taken: count > 0 ? flight.number : nil)
        tokens.accepted(under: flight.generation, at: flight.endpoint, now: evaluation.now)
        guard count > 0 else { return }
        latestTaken = max(latestTaken, flight.number)
        lastSuccessAt = evaluation.now
        if rejectionGuard.accepted(count, by: flight.number, at: flight.endpoint, settings.rejectionGuard) {
            evaluation.notices.append(.guardEnded(endpoint: flight.endpoint, byOperator: false))
            evaluation.wakesHeld = true
        }
    }

    /// The endpoint works, by this response or by the one before it.
    mutating func recover(_ evaluation: inout Evaluation, taken: Int? = nil) {
        let endpoint = evaluation.flight.endpoint
        if let recovered = health.succeeded(at: endpoint, taken: taken, now: evaluation.now) {
            evaluation.notices.append(recovered == .upstream ? .isBack : .endpointIsBack(endpoint))
            evaluation.wakesHeld = true
        }
        isInDoubt = false
    }

    /// If `atOnce`, a single failure is enough to stop sending to the endpoint.
    mutating func failed(_ evaluation: inout Evaluation, retryAt: Timestamp, atOnce: Bool) {
        let (endpoint, error) = (evaluation.flight.endpoint, evaluation.result.error)
        lastError = error
        let down =
            evaluation.result.isConnectionFailure
            ? health.hostFailed(at: endpoint, retryAt: retryAt, now: evaluation.now)
            : health.failed(
                at: endpoint, by: evaluation.batch.messages[0].id, retryAt: retryAt, atOnce: atOnce, error: error,
                now: evaluation.now)
        evaluation.record(down, until: retryAt)
    }

    /// The delay grows with the batch's own failures, and with those of an outage after its circuit has opened.
    func delay(_ evaluation: Evaluation, after: Duration? = nil) -> Duration {
        let attempt = max(evaluation.history.failures, health.upstream.failures - Circuit.defaultThreshold) + 1
        return settings.retry.delay(afterAttempt: attempt, retryAfter: after, random: evaluation.random)
    }

    // MARK: Verdicts

    /// Sends all of them again later. A `Retry-After` concerns the endpoint and holds it at once.
    private mutating func retry(_ evaluation: inout Evaluation, after: Duration?) {
        // What is too much at a time is the matter of the pace. A burst of refusals must not look like an outage.
        let isPaced = settings.pace.isAdaptive && after == nil && evaluation.result.error.status == 429
        let retryAt =
            evaluation.now
            + (isPaced
                ? settings.retry.delay(afterAttempt: 1, retryAfter: nil, random: evaluation.random)
                : delay(evaluation, after: after))
        if isPaced {
            health.abandoned(at: evaluation.flight.endpoint, now: evaluation.now)
        } else {
            failed(&evaluation, retryAt: retryAt, atOnce: after != nil)
        }
        isInDoubt = false
        evaluation.wait(as: .retry, until: retryAt, evaluation.history.cleared)
    }

    /// The upstream works: only this lane waits.
    private mutating func backOff(_ evaluation: inout Evaluation) {
        worked(&evaluation)
        let attempt = evaluation.history.failures + 1
        let retryAt =
            evaluation.now + settings.retry.delay(afterAttempt: attempt, retryAfter: nil, random: evaluation.random)
        evaluation.wait(as: .backedOff, until: retryAt, evaluation.history.cleared, mayHaveArrived: false)
    }

    /// The endpoint waits, and the messages with it. Other messages probe it soon; the refused ones follow once one of
    /// those is accepted. If none is, they are sent again after the slow probe, so that it carries others if there are
    /// any.
    mutating func hold(_ evaluation: inout Evaluation, _ history: BatchHistory, for reason: Verdict.HoldReason) {
        let (endpoint, error, now) = (evaluation.flight.endpoint, evaluation.result.error, evaluation.now)
        let (retry, random) = (settings.retry, evaluation.random)
        let former = (upstream: health.hold, endpoint: health.endpoints[endpoint]?.hold)
        lastError = error
        let down = health.refused(
            at: endpoint, by: evaluation.batch.messages[0].id, number: evaluation.flight.number, for: reason,
            holdsAll: evaluation.result.judgement.holdsAll, error: error, now: now
        ) { now + retry.probeDelay(afterRefused: $0, random: random) }
        let reopensAt = health.endpoints[endpoint]?.circuit.reopensAt ?? now
        evaluation.record(down, until: reopensAt)
        // Once for the endpoint alone, and once more if the hold has widened to the upstream.
        let isNew = health.hold == reason ? former.upstream != reason : former.endpoint != reason
        if isNew { evaluation.notices.append(.isHeld(reason, error, endpoint: endpoint)) }
        let isAlone = evaluation.batch.messages.count == 1
        let until = isAlone ? max(reopensAt, now + retry.slowDelay(random: random)) + .seconds(1) : reopensAt
        health.sendsAgain(at: endpoint, from: until)
        evaluation.settlement.outcome = .held
        evaluation.settlement.postponed = .init(
            evaluation.batch.messages, until: until, for: reason == .credentials ? .credentials : .circuit,
            history: history)
    }

    /// One new token is tried before the credentials, or the messages, are considered to be the cause.
    private mutating func refuseToken(_ evaluation: inout Evaluation) {
        let endpoint = evaluation.flight.endpoint
        let meaning = tokens.refused(
            under: evaluation.flight.generation, at: endpoint, hasNewToken: evaluation.history.hasNewToken,
            now: evaluation.now)
        if meaning == .sendAgain {
            lastError = evaluation.result.error
            health.abandoned(at: endpoint, now: evaluation.now)
            var history = evaluation.history
            history.hasNewToken = true
            evaluation.settlement.again = [.init(evaluation.batch.messages, dueAt: evaluation.now, history: history)]
            evaluation.settlement.outcome = .unauthorized
        } else {
            if meaning == .credentialsAreBad { isReady = false }
            refuse(&evaluation, for: .credentials)
        }
    }

    /// The lane's group waits for a new credential. Lanes without a name cannot be parked; they are retried at long
    /// intervals.
    private mutating func park(_ evaluation: inout Evaluation) {
        worked(&evaluation)
        if case .named = evaluation.batch.messages[0].lane {
            evaluation.settlement.parked = evaluation.batch.messages
            evaluation.settlement.isGivenBack = true
        } else {
            let retryAt = evaluation.now + settings.retry.slowDelay(random: evaluation.random)
            evaluation.wait(as: .parked, until: retryAt, evaluation.history.cleared, isFailure: false)
        }
        evaluation.settlement.outcome = .parked
    }

    /// The endpoint has clearly rejected these messages. Those that the guard does not let fail wait for its next probe.
    private mutating func reject(_ messages: [Message], because reason: String? = nil, _ evaluation: inout Evaluation) {
        let (endpoint, now) = (evaluation.flight.endpoint, evaluation.now)
        var failing: [Message] = []
        var kept: [Message] = []
        for message in messages {
            let wasHolding = rejectionGuard.isHolding(endpoint)
            let fails = rejectionGuard.rejected(
                message.id, at: endpoint, settings.rejectionGuard, latest: latestSent, now: now)
            if fails { failing.append(message) } else { kept.append(message) }
            guard !wasHolding, rejectionGuard.isHolding(endpoint) else { continue }
            evaluation.notices.append(.isGuarded(evaluation.result.error, endpoint: endpoint))
        }
        if !failing.isEmpty {
            evaluation.reject(failing, because: reason, mayHaveArrived: evaluation.result.isAmbiguous)
        }
        guard !kept.isEmpty, let probeAt = rejectionGuard.held[endpoint] else { return }
        if failing.isEmpty { evaluation.settlement.outcome = .held }
        let before = evaluation.settlement.postponed?.messages ?? []
        evaluation.settlement.postponed = .init(
            before + kept, until: probeAt, for: .guard, history: evaluation.history.cleared)
    }

    private mutating func sort(_ items: [Verdict.Item], _ evaluation: inout Evaluation) {
        var again: [Message] = []
        for (index, message) in evaluation.batch.messages.enumerated() {
            // A response that leaves some out says nothing about them.
            switch index < items.count ? items[index] : .again {
            case .delivered: evaluation.settlement.delivered.append(message)
            case .again: again.append(message)
            case .reject(let reason): reject([message], because: reason, &evaluation)
            }
        }
        guard again.count < evaluation.batch.messages.count else { return retry(&evaluation, after: nil) }
        worked(&evaluation, taken: evaluation.settlement.delivered.count)
        evaluation.settlement.outcome = .sorted
        if !again.isEmpty { evaluation.settlement.again = [.init(again, dueAt: evaluation.now)] }
    }

    /// Sends both halves at once, the older one first.
    func halve(_ evaluation: inout Evaluation, _ history: BatchHistory) {
        evaluation.settlement.outcome = .split
        let messages = evaluation.batch.messages
        let middle = (messages.count + 1) / 2
        evaluation.settlement.again = [messages[..<middle], messages[middle...]].map {
            .init(Array($0), dueAt: evaluation.now, history: history)
        }
    }
}

extension DeliveryMachine.Evaluation {
    mutating func record(_ down: UpstreamHealth.OutageScope?, until moment: Timestamp) {
        switch down {
        case .upstream: notices.append(.isDown(result.error, until: moment))
        case .endpoint: notices.append(.endpointIsDown(flight.endpoint, result.error, until: moment))
        case nil: break
        }
    }

    /// Whether a doubtful response leaves open if the messages have arrived: not if it rejects the request as a whole.
    var mayHaveArrived: Bool { if case .suspect = result.judgement.verdict { true } else { false } }

    /// Makes the messages fail. `mayHaveArrived`: whether the last attempt may have taken effect all the same.
    mutating func reject(
        _ messages: [Message], because reason: String? = nil, mayHaveArrived: Bool = false, attempts: Int = 1
    ) {
        settlement.outcome = .rejected
        settlement.steps = result.judgement.steps
        let error = AttemptError(.refused, status: result.error.status, detail: reason ?? result.error.detail, at: now)
        settlement.ended += messages.map {
            .init(
                $0, as: .failed, error: error, result: result.judgement.refusal ?? settlement.steps.result,
                mayHaveArrived: mayHaveArrived, attempts: attempts)
        }
    }

    /// All messages wait until `retryAt` and are then sent together.
    mutating func wait(
        as outcome: Settlement.Outcome, until retryAt: Timestamp, _ history: BatchHistory, counts: Bool = false,
        mayHaveArrived: Bool = true, isFailure: Bool = true
    ) {
        var history = history
        if isFailure { history.failures += 1 }
        settlement.outcome = outcome
        settlement.waiting = .init(
            batch.messages, nextAttemptAt: retryAt, counts: counts, error: result.error,
            mayHaveArrived: mayHaveArrived && !result.judgement.tookNothing)
        settlement.again = [.init(batch.messages, dueAt: retryAt, history: history)]
    }
}

extension Settlement.Outcome {
    /// Whether a request failed and its messages are sent again.
    fileprivate var isFailure: Bool {
        switch self {
        case .retry, .backedOff, .suspect, .unauthorized, .held, .parked: true
        case .delivered, .proceed, .sorted, .split, .rejected, .cancelled, .unsent, .expired, .unknown: false
        }
    }
}
