import Logging
import PosternCore
import PosternStore

extension Judgement {
    /// What came back, judged: by the upstream when it answered, by us when it did not.
    struct Outcome {
        let judgement: Judgement
        let status: Int?
        let errorClass: AttemptError.Class
        let detail: String?
        let isAmbiguous: Bool
        let wasCancelled: Bool

        init(
            of result: TransferResult, to flight: Flight, on upstream: any Upstream, state: any UpstreamState,
            now: Timestamp
        ) {
            switch result {
            case .success(let response):
                judgement = upstream.judge(
                    response, to: flight.batch, in: PlanContext(now: now, token: nil, state: state))
                status = response.status
                errorClass = Self.errorClass(of: response.status)
                detail = Self.detail(of: judgement.verdict, status: response.status)
                isAmbiguous = false
                wasCancelled = false
            case .failure(let failure):
                judgement = Judgement(.retry(after: nil))
                status = nil
                errorClass = AttemptError.Class(failure.reason)
                detail = failure.detail
                isAmbiguous = failure.mayHaveArrived
                wasCancelled = failure.reason == .cancelled
            }
        }

        private static func errorClass(of status: Int) -> AttemptError.Class {
            switch status {
            case 401, 403: .unauthorized
            case 408, 425, 429: .busy
            case 500...: .failing
            case 404, 405, 300..<400: .misconfigured
            default: .refused
            }
        }

        private static func detail(of verdict: Verdict, status: Int) -> String? {
            switch verdict {
            case .delivered, .proceed: nil
            case .holdUpstream(_, let detail): detail
            case .split(let reason), .reject(let reason): reason
            case .each, .retry, .suspect, .refreshToken, .park: "answered \(status)"
            }
        }
    }
}

extension AttemptError.Class {
    fileprivate init(_ reason: TransferFailure.Reason) {
        switch reason {
        case .unreachable: self = .unreachable
        case .timeout: self = .timeout
        case .interrupted, .cancelled: self = .interrupted
        case .garbled: self = .garbled
        }
    }
}

/// What follows a verdict: the circuit's next state, the settlement, and what the queue does after it.
extension WorkerLoop {
    /// Answers the settlement that was handed to the writer.
    func act(on outcome: Judgement.Outcome, for flight: Flight) -> Settlement {
        let now = time.now
        let error = AttemptError(
            outcome.errorClass, status: outcome.status, detail: outcome.detail ?? "answered \(outcome.status ?? 0)",
            at: now)
        var flight = flight
        var settlement = Settlement(
            batch: flight.batch.id, outcome: "delivered", status: outcome.status, detail: outcome.detail, endedAt: now)
        settlement.changes = outcome.judgement.changes
        settlement.isAmbiguous = outcome.isAmbiguous
        notice(outcome.judgement.notice)

        guard !outcome.wasCancelled else {
            // Our own stop is nobody's failure.
            settlement.outcome = "cancelled"
            circuit.abandoned(now: now)
            flight.after.giveBack = true
            settle(flight, settlement)
            return settlement
        }
        switch outcome.judgement.verdict {
        case .delivered(let result):
            worked(at: now, under: flight.generation, isSuccess: true)
            settlement.delivered = flight.batch.messages
            settlement.result = result
            flight.after.release = flight.batch.messages
        case .proceed(let progress):
            worked(at: now, under: flight.generation, isSuccess: true)
            settlement.outcome = "proceed"
            settlement.progressed = flight.batch.messages.prefix(1).map { ($0.id, progress) }
            flight.after.again = [(flight.batch.messages, now, BatchHistory())]
        case .each(let items):
            worked(at: now, under: flight.generation, isSuccess: items.contains(.delivered))
            sort(items, of: &flight, into: &settlement, status: outcome.status, now: now)
        case .retry(let after):
            settlement.outcome = "retry"
            sendLater(&flight, &settlement, after: after, counts: false, error: error, now: now)
        case .suspect(let limit, let after):
            suspect(&flight, &settlement, limit: limit, after: after, error: error, now: now)
        case .refreshToken:
            settlement.outcome = "unauthorized"
            tokenRefused(under: flight.generation, error: error, now: now)
            flight.after.giveBack = true
        case .holdUpstream(let reason, _):
            settlement.outcome = "held"
            holdUpstream(reason, error: error, now: now)
            flight.after.giveBack = true
        case .park:
            settlement.outcome = "parked"
            settlement.parked = flight.batch.messages
            flight.after.giveBack = true
        case .split(let reason):
            worked(at: now, under: flight.generation, isSuccess: false)
            takeApart(&flight, &settlement, reason: reason, error: error, now: now)
        case .reject(let reason):
            worked(at: now, under: flight.generation, isSuccess: false)
            reject(flight.batch.messages, &flight, &settlement, reason: reason, error: error)
        }
        settle(flight, settlement)
        return settlement
    }

    private func notice(_ notice: String?) {
        guard let notice, notice != lastNotice else { return }
        lastNotice = notice
        logger.warning("upstream says", metadata: ["upstream": "\(queue.name)", "notice": "\(notice)"])
    }

    // MARK: The upstream's health

    /// The upstream answered as one that works, be it by refusing somebody.
    private func worked(at now: Timestamp, under generation: Int, isSuccess: Bool) {
        if circuit.succeeded() {
            logger.notice("upstream is back", metadata: ["upstream": "\(queue.name)"])
        }
        hold = nil
        tokens.accepted(under: generation)
        guard isSuccess else { return }
        taken += 1
        lastSuccessAt = now
    }

    private func failed(_ error: AttemptError, retryAt: Timestamp, at once: Bool) {
        lastError = error
        let began = once ? circuit.hold(until: retryAt) : circuit.failed(retryAt: retryAt)
        guard began else { return }
        logger.notice(
            "upstream is down",
            metadata: [
                "upstream": "\(queue.name)", "error": "\(error)", "error.class": "\(error.errorClass)",
                "circuit.reopensAt": "\(retryAt)",
            ])
    }

    private func holdUpstream(_ reason: HoldReason, error: AttemptError, now: Timestamp) {
        if hold != reason {
            logger.error(
                "upstream does not work for us; messages wait and it is probed slowly",
                metadata: ["upstream": "\(queue.name)", "hold": "\(reason.rawValue)", "error": "\(error)"])
        }
        hold = reason
        failed(error, retryAt: now + settings.retry.slowDelay(random: random()), at: true)
    }

    private func tokenRefused(under generation: Int, error: AttemptError, now: Timestamp) {
        circuit.abandoned(now: now)
        switch tokens.refused(under: generation) {
        case .sendAgain: lastError = error
        case .credentialsAreBad: holdUpstream(.credentials, error: error, now: now)
        }
    }

    // MARK: The messages' fate

    /// All of them again, later. A `Retry-After` is a word about the upstream and holds all of it.
    private func sendLater(
        _ flight: inout Flight, _ settlement: inout Settlement, after: Duration?, counts: Bool, error: AttemptError,
        now: Timestamp
    ) {
        var history = flight.claim.history
        let attempt = max(history.failures, circuit.failures - Circuit.defaultThreshold) + 1
        let delay = settings.retry.delay(afterAttempt: attempt, retryAfter: after, random: random())
        let retryAt = now + delay
        history.failures += 1
        failed(error, retryAt: retryAt, at: after != nil)
        settlement.waiting = .init(
            flight.batch.messages, nextAttemptAt: retryAt, counts: counts, error: error)
        let messages = flight.batch.messages.map { message in
            var message = message
            message.attempts += counts ? 1 : 0
            return message
        }
        flight.after.again = [(messages, retryAt, history)]
    }

    /// It may be the messages' fault: count, and when it has happened often enough, look for the culprit.
    private func suspect(
        _ flight: inout Flight, _ settlement: inout Settlement, limit: Int, after: Duration?, error: AttemptError,
        now: Timestamp
    ) {
        let attempts = (flight.batch.messages.map(\.attempts).min() ?? 0) + 1
        var history = flight.claim.history
        let suspectedAfter = history.suspectedAfter ?? taken
        history.suspectedAfter = suspectedAfter
        guard attempts >= limit else {
            settlement.outcome = "suspect"
            sendLater(&flight, &settlement, after: after, counts: true, error: error, now: now)
            flight.after.again = flight.after.again.map { group in
                var history = group.history
                history.suspectedAfter = suspectedAfter
                return (group.messages, group.dueAt, history)
            }
            return
        }
        if flight.batch.messages.count > 1 {
            settlement.outcome = "split"
            halve(&flight, history: history, now: now)
        } else if taken > suspectedAfter {
            // Something else went through in the meantime: it is this message.
            reject(flight.batch.messages, &flight, &settlement, reason: error.detail, error: error)
        } else {
            settlement.outcome = "suspect"
            sendLater(&flight, &settlement, after: after, counts: true, error: error, now: now)
            flight.after.again = flight.after.again.map { group in
                var history = group.history
                history.suspectedAfter = suspectedAfter
                return (group.messages, group.dueAt, history)
            }
        }
    }

    private func takeApart(
        _ flight: inout Flight, _ settlement: inout Settlement, reason: String, error: AttemptError, now: Timestamp
    ) {
        guard flight.batch.messages.count > 1 else {
            reject(flight.batch.messages, &flight, &settlement, reason: reason, error: error)
            return
        }
        settlement.outcome = "split"
        halve(&flight, history: flight.claim.history, now: now)
    }

    /// Both halves at once, the older one first.
    private func halve(_ flight: inout Flight, history: BatchHistory, now: Timestamp) {
        let messages = flight.batch.messages
        let middle = (messages.count + 1) / 2
        flight.after.again = [
            (Array(messages[..<middle]), now, history), (Array(messages[middle...]), now, history),
        ]
    }

    private func reject(
        _ messages: [Message], _ flight: inout Flight, _ settlement: inout Settlement, reason: String,
        error: AttemptError
    ) {
        settlement.outcome = "rejected"
        let refusal = AttemptError(.refused, status: error.status, detail: reason, at: error.at)
        settlement.ended += messages.map { .init($0, as: .failed, error: refusal) }
        flight.after.release += messages
    }

    private func sort(
        _ items: [ItemVerdict], of flight: inout Flight, into settlement: inout Settlement, status: Int?, now: Timestamp
    ) {
        settlement.outcome = "sorted"
        var again: [Message] = []
        for (message, item) in zip(flight.batch.messages, items) {
            switch item {
            case .delivered:
                settlement.delivered.append(message)
                flight.after.release.append(message)
            case .again: again.append(message)
            case .reject(let reason):
                let refusal = AttemptError(.refused, status: status, detail: reason, at: now)
                settlement.ended.append(.init(message, as: .failed, error: refusal))
                flight.after.release.append(message)
            }
        }
        if !again.isEmpty { flight.after.again = [(again, now, BatchHistory())] }
    }
}
