import PosternCore
import PosternStore

/// What follows a verdict: the circuit's next state, what is written down, and what the queue does after it.
///
/// Every verdict tells the circuit something: a probe that told it nothing would leave it half-open for good.
extension WorkerLoop {
    func rule(on outcome: AttemptOutcome, of flight: Flight) -> Ruling {
        let batch = flight.batch
        var ruling = Ruling(outcome, of: batch)
        note(outcome.judgement.notice)
        guard !outcome.wasCancelled else {
            // Our own stop is nobody's failure.
            ruling.settlement.outcome = "cancelled"
            ruling.isGivenBack = true
            if outcome.isAmbiguous { ruling.settlement.wereTried = batch.messages.map(\.id) }
            circuit.abandoned(now: outcome.at)
            return ruling
        }
        switch outcome.judgement.verdict {
        case .delivered(let result):
            worked(flight, at: outcome.at, hasTaken: true)
            ruling.settlement.delivered = batch.messages
            ruling.settlement.result = result
            ruling.released = batch.messages
        case .proceed(let progress):
            worked(flight, at: outcome.at, hasTaken: true)
            ruling.settlement.outcome = "proceed"
            ruling.settlement.progressed = batch.messages.prefix(1).map { ($0.id, progress) }
            ruling.again = [.init(messages: batch.messages, dueAt: outcome.at)]
        case .each(let items): sort(items, of: flight, outcome, &ruling)
        case .retry(let after): sendLater(flight, outcome, &ruling, after: after, outcomeIs: "retry")
        case .backOff: backOff(flight, outcome, &ruling)
        case .suspect(let limit, let after, let conviction):
            suspect(flight, outcome, &ruling, limit: limit, after: after, conviction)
        case .refreshToken:
            ruling.settlement.outcome = "unauthorized"
            ruling.isGivenBack = true
            tokenRefused(flight, outcome.error)
        case .holdUpstream(let reason, _):
            ruling.settlement.outcome = "held"
            ruling.isGivenBack = true
            holdUpstream(reason, outcome.error)
        case .park: park(flight, outcome, &ruling)
        case .split:
            worked(flight, at: outcome.at, hasTaken: false)
            if batch.messages.count > 1 {
                ruling.halve(flight, history: flight.claim.history, now: outcome.at)
            } else {
                ruling.reject(batch.messages, outcome)
            }
        case .reject:
            worked(flight, at: outcome.at, hasTaken: false)
            ruling.reject(batch.messages, outcome)
        }
        return ruling
    }

    /// All of them again, later. A `Retry-After` is a word about the upstream and holds all of it.
    private func sendLater(
        _ flight: Flight, _ outcome: AttemptOutcome, _ ruling: inout Ruling, after: Duration?, outcomeIs word: String,
        counts: Bool = false, history: BatchHistory? = nil
    ) {
        let retryAt = outcome.at + backoff(flight, after: after)
        if counts, after == nil {
            suspected(flight, outcome.error, retryAt: retryAt)
        } else {
            failed(outcome.error, retryAt: retryAt, atOnce: after != nil)
        }
        ruling.settlement.outcome = word
        ruling.settlement.waiting = .init(
            flight.batch.messages, nextAttemptAt: retryAt, counts: counts, error: outcome.error,
            wasTried: !outcome.judgement.tookNothing)
        var history = history ?? flight.claim.history
        history.failures += 1
        ruling.again = [.init(messages: flight.batch.messages, dueAt: retryAt, history: history)]
    }

    /// The upstream works: only these messages, and so their lane, wait.
    private func backOff(_ flight: Flight, _ outcome: AttemptOutcome, _ ruling: inout Ruling) {
        worked(flight, at: outcome.at, hasTaken: false)
        var history = flight.claim.history
        history.failures += 1
        let retryAt =
            outcome.at + settings.retry.delay(afterAttempt: history.failures, retryAfter: nil, random: random())
        ruling.settlement.outcome = "backed-off"
        ruling.settlement.waiting = .init(
            flight.batch.messages, nextAttemptAt: retryAt, counts: false, error: outcome.error, wasTried: false)
        ruling.again = [.init(messages: flight.batch.messages, dueAt: retryAt, history: history)]
    }

    /// Grows with the batch's own failures, and with those of an outage beyond the ones that made it one.
    private func backoff(_ flight: Flight, after: Duration?) -> Duration {
        let attempt = max(flight.claim.history.failures, circuit.failures - Circuit.defaultThreshold) + 1
        return settings.retry.delay(afterAttempt: attempt, retryAfter: after, random: random())
    }

    /// It may be the messages' fault: count, and when it has happened often enough, look for the culprit. One that
    /// stands alone is convicted if the upstream has taken something that went out after its last attempt.
    private func suspect(
        _ flight: Flight, _ outcome: AttemptOutcome, _ ruling: inout Ruling, limit: Int, after: Duration?,
        _ conviction: Conviction
    ) {
        let batch = flight.batch
        var history = flight.claim.history
        let othersWork = history.suspectedAfter.map { latestTaken > $0 } ?? false
        history.suspectedAfter = batch.id.number
        let attempts = (batch.messages.map(\.attempts).min() ?? 0) + 1
        if attempts >= limit, batch.messages.count > 1 {
            failed(outcome.error, retryAt: outcome.at + backoff(flight, after: after), atOnce: after != nil)
            ruling.halve(flight, history: history, now: outcome.at)
        } else if attempts >= limit, othersWork || conviction == .always {
            // Blamed on the message, so no failure of the upstream's.
            worked(flight, at: outcome.at, hasTaken: false)
            ruling.reject(batch.messages, outcome, wasTried: true)
        } else {
            sendLater(flight, outcome, &ruling, after: after, outcomeIs: "suspect", counts: true, history: history)
        }
    }

    /// The lane's group waits for a caller to hand in a new token. Lanes without a name cannot be parked: they are
    /// looked at again, seldom.
    private func park(_ flight: Flight, _ outcome: AttemptOutcome, _ ruling: inout Ruling) {
        worked(flight, at: outcome.at, hasTaken: false)
        ruling.settlement.outcome = "parked"
        if case .named = flight.batch.messages[0].lane {
            ruling.settlement.parked = flight.batch.messages
            ruling.isGivenBack = true
        } else {
            let retryAt = outcome.at + settings.retry.slowDelay(random: random())
            ruling.settlement.waiting = .init(
                flight.batch.messages, nextAttemptAt: retryAt, counts: false, error: outcome.error)
            ruling.again = [.init(messages: flight.batch.messages, dueAt: retryAt, history: flight.claim.history)]
        }
    }

    private func sort(_ items: [ItemVerdict], of flight: Flight, _ outcome: AttemptOutcome, _ ruling: inout Ruling) {
        var again: [Message] = []
        for (place, message) in flight.batch.messages.enumerated() {
            // An answer that leaves some out says nothing about them.
            switch place < items.count ? items[place] : .again {
            case .delivered: ruling.settlement.delivered.append(message)
            case .again: again.append(message)
            case .reject(let reason): ruling.reject([message], outcome, because: reason)
            }
        }
        guard again.count < flight.batch.messages.count else {
            return sendLater(flight, outcome, &ruling, after: nil, outcomeIs: "retry")
        }
        worked(flight, at: outcome.at, hasTaken: !ruling.settlement.delivered.isEmpty)
        ruling.settlement.outcome = "sorted"
        ruling.released += ruling.settlement.delivered
        if !again.isEmpty { ruling.again = [.init(messages: again, dueAt: outcome.at)] }
    }
}

extension Ruling {
    fileprivate init(_ outcome: AttemptOutcome, of batch: Batch) {
        settlement = Settlement(
            batch: batch.id, outcome: "delivered", status: outcome.error.status, endedAt: outcome.at)
        switch outcome.judgement.verdict {
        case .delivered, .proceed: break
        case .each, .retry, .backOff, .suspect, .refreshToken, .holdUpstream, .park, .split, .reject:
            settlement.detail = outcome.error.detail
        }
        settlement.isAmbiguous = outcome.isAmbiguous
    }

    /// `wasTried`: the last attempt may have taken effect all the same.
    fileprivate mutating func reject(
        _ messages: [Message], _ outcome: AttemptOutcome, because reason: String? = nil, wasTried: Bool = false
    ) {
        settlement.outcome = "rejected"
        let error = AttemptError(
            .refused, status: outcome.error.status, detail: reason ?? outcome.error.detail, at: outcome.at)
        settlement.ended += messages.map {
            .init($0, as: .failed, error: error, result: outcome.judgement.refusal, wasTried: wasTried)
        }
        released += messages
    }

    /// Both halves at once, the older one first.
    fileprivate mutating func halve(_ flight: Flight, history: BatchHistory, now: Timestamp) {
        settlement.outcome = "split"
        let messages = flight.batch.messages
        let middle = (messages.count + 1) / 2
        again = [messages[..<middle], messages[middle...]].map {
            Again(messages: Array($0), dueAt: now, history: history)
        }
    }
}
