import PosternCore
import PosternStore

/// The effect of a verdict on the messages, the circuits, and the token.
extension DeliveryMachine {
    /// The effects of one result, while they are being computed.
    struct Ruling {
        let flight: InFlightBatch
        let result: AttemptResult
        let random: Double
        var settlement: Settlement
        var notices: [Notice] = []
        var wakesHeldLanes = false

        var batch: Batch { flight.batch }
        var now: Timestamp { result.at }
        var history: BatchHistory { flight.claim.history }
    }

    /// The response of a request, or its failure.
    mutating func answered(
        _ flight: InFlightBatch, _ result: AttemptResult, others: Others, random: Double
    ) -> [Action] {
        landed(flight)
        var ruling = Ruling(
            flight: flight, result: result, random: random,
            settlement: Settlement(
                batch: flight.batch.id, outcome: .delivered, status: result.error.status, endedAt: result.at))
        ruling.settlement.isAmbiguous = result.isAmbiguous
        if let said = result.judgement.notice, said != lastSaid {
            lastSaid = said
            ruling.notices.append(.said(said))
        }
        apply(&ruling, others: others)
        return [.record(ruling.settlement)] + (ruling.wakesHeldLanes ? [.wakeHeldLanes] : [])
            + ruling.notices.map(Action.notify)
    }

    private mutating func apply(_ ruling: inout Ruling, others: Others) {
        let (batch, result) = (ruling.batch, ruling.result)
        guard !result.wasCancelled else { return cancel(&ruling) }
        switch result.judgement.verdict {
        case .delivered(let result):
            worked(&ruling, hasTaken: true)
            ruling.settlement.delivered = batch.messages
            ruling.settlement.result = result
            return
        case .proceed(let progress):
            worked(&ruling, hasTaken: true)
            ruling.settlement.outcome = .proceed
            ruling.settlement.progressed = [(batch.messages[0], progress)]
            ruling.settlement.again = [.init(batch.messages, dueAt: ruling.now)]
            return
        case .each(let items): sort(items, &ruling)
        case .retry(let after): retry(&ruling, after: after)
        case .backOff: backOff(&ruling)
        case .suspect(let after, let rule): suspect(&ruling, after: after, rule, others)
        case .refreshToken: refuseToken(&ruling)
        case .holdUpstream(let reason, _): hold(&ruling, for: reason)
        case .park: park(&ruling)
        case .split:
            worked(&ruling, hasTaken: false)
            if batch.messages.count > 1 { halve(&ruling, ruling.history) } else { ruling.reject(batch.messages) }
        case .reject:
            worked(&ruling, hasTaken: false)
            ruling.reject(batch.messages)
        }
        ruling.settlement.detail = result.error.detail
    }

    /// A stop of the gateway is not a failure of the upstream.
    private mutating func cancel(_ ruling: inout Ruling) {
        ruling.settlement.outcome = .cancelled
        ruling.settlement.detail = ruling.result.error.detail
        ruling.settlement.isGivenBack = true
        if ruling.result.isAmbiguous { ruling.settlement.wereTried = ruling.batch.messages.map(\.id) }
        health.abandoned(at: ruling.flight.endpoint, now: ruling.now)
    }

    // MARK: Health

    /// The endpoint responded as one that works, including by rejecting a message.
    mutating func worked(_ ruling: inout Ruling, hasTaken: Bool) {
        let flight = ruling.flight
        if let recovered = health.succeeded(at: flight.endpoint, now: ruling.now) {
            ruling.notices.append(recovered == .upstream ? .isBack : .endpointIsBack(flight.endpoint))
            ruling.wakesHeldLanes = true
        }
        isInDoubt = false
        tokens.accepted(under: flight.generation, at: flight.endpoint)
        guard hasTaken else { return }
        latestTaken = max(latestTaken, flight.number)
        lastSuccessAt = ruling.now
    }

    /// If `atOnce`, a single failure is enough to stop sending to the endpoint.
    mutating func failed(_ ruling: inout Ruling, retryAt: Timestamp, atOnce: Bool, hold: HoldReason? = nil) {
        let (endpoint, error) = (ruling.flight.endpoint, ruling.result.error)
        lastError = error
        let down =
            ruling.result.isConnectionFailure
            ? health.hostFailed(at: endpoint, retryAt: retryAt, now: ruling.now)
            : health.failed(
                at: endpoint, by: ruling.batch.messages[0].id, retryAt: retryAt, atOnce: atOnce, hold: hold,
                error: error, now: ruling.now)
        switch down {
        case .upstream: ruling.notices.append(.isDown(error, until: retryAt))
        case .endpoint: ruling.notices.append(.endpointIsDown(endpoint, error, until: retryAt))
        case nil: break
        }
    }

    /// The delay grows with the batch's own failures, and with those of an outage after its circuit has opened.
    func delay(_ ruling: Ruling, after: Duration? = nil) -> Duration {
        let attempt = max(ruling.history.failures, health.upstream.failures - Circuit.defaultThreshold) + 1
        return settings.retry.delay(afterAttempt: attempt, retryAfter: after, random: ruling.random)
    }

    // MARK: Verdicts

    /// Sends all of them again later. A `Retry-After` concerns the endpoint and holds it at once.
    private mutating func retry(_ ruling: inout Ruling, after: Duration?) {
        let retryAt = ruling.now + delay(ruling, after: after)
        failed(&ruling, retryAt: retryAt, atOnce: after != nil)
        isInDoubt = false
        ruling.wait(as: .retry, until: retryAt, ruling.history.cleared)
    }

    /// The upstream works: only this lane waits.
    private mutating func backOff(_ ruling: inout Ruling) {
        worked(&ruling, hasTaken: false)
        let attempt = ruling.history.failures + 1
        let retryAt =
            ruling.now + settings.retry.delay(afterAttempt: attempt, retryAfter: nil, random: ruling.random)
        ruling.wait(as: .backedOff, until: retryAt, ruling.history.cleared, wasTried: false)
    }

    private mutating func hold(_ ruling: inout Ruling, for reason: HoldReason) {
        let retryAt = ruling.now + settings.retry.slowDelay(random: ruling.random)
        let isNew = health.endpoints[ruling.flight.endpoint]?.hold != reason && health.hold != reason
        failed(&ruling, retryAt: retryAt, atOnce: true, hold: reason)
        if isNew {
            ruling.notices.append(.isHeld(reason, ruling.result.error, endpoint: ruling.flight.endpoint))
        }
        ruling.settlement.outcome = .held
        ruling.settlement.postponed = .init(until: retryAt, for: reason == .credentials ? .credentials : .circuit)
    }

    private mutating func refuseToken(_ ruling: inout Ruling) {
        let endpoint = ruling.flight.endpoint
        let meaning = tokens.refused(under: ruling.flight.generation, at: endpoint)
        if meaning == .sendAgain {
            lastError = ruling.result.error
            health.abandoned(at: endpoint, now: ruling.now)
            ruling.settlement.isGivenBack = true
        } else {
            if meaning == .credentialsAreBad { isReady = false }
            hold(&ruling, for: .credentials)
        }
        ruling.settlement.outcome = .unauthorized
    }

    /// The lane's group waits for a new credential. Lanes without a name cannot be parked; they are retried at long
    /// intervals.
    private mutating func park(_ ruling: inout Ruling) {
        worked(&ruling, hasTaken: false)
        if case .named = ruling.batch.messages[0].lane {
            ruling.settlement.parked = ruling.batch.messages
            ruling.settlement.isGivenBack = true
        } else {
            let retryAt = ruling.now + settings.retry.slowDelay(random: ruling.random)
            ruling.wait(as: .parked, until: retryAt, ruling.history.cleared, isFailure: false)
        }
        ruling.settlement.outcome = .parked
    }

    private mutating func sort(_ items: [ItemVerdict], _ ruling: inout Ruling) {
        var again: [Message] = []
        for (index, message) in ruling.batch.messages.enumerated() {
            // A response that leaves some out says nothing about them.
            switch index < items.count ? items[index] : .again {
            case .delivered: ruling.settlement.delivered.append(message)
            case .again: again.append(message)
            case .reject(let reason): ruling.reject([message], because: reason)
            }
        }
        guard again.count < ruling.batch.messages.count else { return retry(&ruling, after: nil) }
        worked(&ruling, hasTaken: !ruling.settlement.delivered.isEmpty)
        ruling.settlement.outcome = .sorted
        if !again.isEmpty { ruling.settlement.again = [.init(again, dueAt: ruling.now)] }
    }

    /// Sends both halves at once, the older one first.
    func halve(_ ruling: inout Ruling, _ history: BatchHistory) {
        ruling.settlement.outcome = .split
        let messages = ruling.batch.messages
        let middle = (messages.count + 1) / 2
        ruling.settlement.again = [messages[..<middle], messages[middle...]].map {
            .init(Array($0), dueAt: ruling.now, history: history)
        }
    }
}

extension DeliveryMachine.Ruling {
    /// Makes the messages fail. `wasTried`: whether the last attempt may have taken effect all the same.
    mutating func reject(
        _ messages: [Message], because reason: String? = nil, wasTried: Bool = false, attempts: Int = 1
    ) {
        settlement.outcome = .rejected
        let error = AttemptError(.refused, status: result.error.status, detail: reason ?? result.error.detail, at: now)
        settlement.ended += messages.map {
            .init(
                $0, as: .failed, error: error, result: result.judgement.refusal, wasTried: wasTried,
                attempts: attempts)
        }
    }

    /// All messages wait until `retryAt` and are then sent together.
    mutating func wait(
        as outcome: Settlement.Outcome, until retryAt: Timestamp, _ history: BatchHistory, counts: Bool = false,
        wasTried: Bool = true, isFailure: Bool = true
    ) {
        var history = history
        if isFailure { history.failures += 1 }
        settlement.outcome = outcome
        settlement.waiting = .init(
            batch.messages, nextAttemptAt: retryAt, counts: counts, error: result.error,
            wasTried: wasTried && !result.judgement.tookNothing)
        settlement.again = [.init(batch.messages, dueAt: retryAt, history: history)]
    }
}
