import PosternCore
import PosternStore

/// Doubtful responses: either the messages or the upstream may be the cause.
///
/// A batch is sent again as it was. It is halved once the upstream has taken something that was sent after it, or after
/// a few tries if nothing else could be sent at all. A message that is sent alone fails after `suspectTries` doubtful
/// responses in a row, each with a success of something else after the one before. Where order forbids trying anything
/// else, the tries count as well, but the message fails only once they have lasted `suspectPeriod`.
///
/// While every response is doubtful, a probe carries one message: that finds one that the upstream accepts, if there is
/// any.
///
/// A response counts as an attempt only once a success of something else shows that the message was the cause.
extension DeliveryMachine {
    /// The number of doubtful responses to a batch after which it is halved if nothing else could be sent.
    private static let triesBeforeSplit = 3

    mutating func suspect(
        _ ruling: inout Ruling, after: Duration?, _ rule: SuspectRule, _ others: Others
    ) {
        let wasAlone = requests - ruling.history.requestsBefore <= 1
        if case .afterTries(let limit) = rule, ruling.batch.messages.count == 1 {
            suspect(&ruling, after: after, limit: limit)
        } else if ruling.batch.messages.count > 1 {
            suspectBatch(&ruling, after: after, isBlocked: wasAlone && (others == .none || others == .blocked))
        } else {
            suspectAlone(&ruling, after: after, isBlocked: wasAlone && others == .blocked)
        }
    }

    /// Whether the upstream accepted something that was sent after the doubtful request.
    private func othersSucceeded(since history: BatchHistory) -> Bool {
        history.suspectedAfter.map { latestTaken > $0 } ?? false
    }

    private mutating func suspectBatch(_ ruling: inout Ruling, after: Duration?, isBlocked: Bool) {
        var history = ruling.history
        let othersSucceeded = othersSucceeded(since: history)
        let isStuck = isBlocked && (history.isSplit || history.failures + 1 >= Self.triesBeforeSplit)
        history.suspectedAfter = history.suspectedAfter ?? ruling.flight.number
        history.requestsBefore = requests
        guard othersSucceeded || isStuck else {
            return waitInDoubt(&ruling, history, after: after, counts: false, isOutage: true)
        }
        history.isSplit = history.isSplit || !othersSucceeded
        // Failures of the larger batch do not count against its parts.
        history.failures = 0
        blameNobody(&ruling)
        halve(&ruling, history)
    }

    private mutating func suspectAlone(_ ruling: inout Ruling, after: Duration?, isBlocked: Bool) {
        var history = ruling.history
        let isFirst = history.suspectTries == 0
        let othersSucceeded = othersSucceeded(since: history)
        let counts = !isFirst && (othersSucceeded || isBlocked)
        // If nothing else was sent since, the same failure again says nothing new about the upstream.
        let isOutage = !othersSucceeded && !counts && (isFirst || requests - history.requestsBefore > 1)
        if isFirst { history.suspectedSince = ruling.now }
        if isFirst || counts {
            history.suspectTries += 1
            history.suspectedAfter = ruling.flight.number
            // During an outage, the first response says nothing about the message.
            if isFirst ? !isInDoubt : othersSucceeded { history.provenTries += 1 }
        }
        history.requestsBefore = requests
        let lasted = history.suspectedSince.map { ruling.now - $0 } ?? .zero
        let isProven = history.provenTries >= settings.suspectTries
        let hasLasted = history.suspectTries >= settings.suspectTries && lasted >= settings.suspectPeriod
        if counts, isProven || hasLasted {
            blameNobody(&ruling)
            // The message is now known to have caused the previous response, and so this one.
            ruling.reject(ruling.batch.messages, wasTried: true, attempts: 2)
        } else {
            waitInDoubt(&ruling, history, after: after, counts: counts, isOutage: isOutage)
        }
    }

    /// Every such response counts, whatever happens to others.
    private mutating func suspect(_ ruling: inout Ruling, after: Duration?, limit: Int) {
        guard ruling.batch.messages[0].attempts + 1 < limit else {
            worked(&ruling, hasTaken: false)
            return ruling.reject(ruling.batch.messages, wasTried: true)
        }
        var history = ruling.history
        let isOutage = history.suspectedAfter == nil || requests - history.requestsBefore > 1
        history.requestsBefore = requests
        history.suspectedAfter = ruling.flight.number
        waitInDoubt(&ruling, history, after: after, counts: true, isOutage: isOutage)
    }

    private mutating func waitInDoubt(
        _ ruling: inout Ruling, _ history: BatchHistory, after: Duration?, counts: Bool, isOutage: Bool
    ) {
        let retryAt: Timestamp
        if isOutage || after != nil {
            retryAt = ruling.now + delay(ruling, after: after)
            failed(&ruling, retryAt: retryAt, atOnce: after != nil)
            isInDoubt = true
        } else {
            let attempt = ruling.history.failures + 1
            retryAt = ruling.now + settings.retry.delay(afterAttempt: attempt, retryAfter: nil, random: ruling.random)
            blameNobody(&ruling)
        }
        ruling.wait(as: .suspect, until: retryAt, history, counts: counts)
    }

    /// The messages are the cause, so the response is not a failure of the upstream.
    private mutating func blameNobody(_ ruling: inout Ruling) {
        lastError = ruling.result.error
        health.abandoned(at: ruling.flight.endpoint, now: ruling.now)
    }
}
