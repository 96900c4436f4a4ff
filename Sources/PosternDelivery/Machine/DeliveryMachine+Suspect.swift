import PosternCore
import PosternStore
import PosternUpstream

/// Doubtful responses: either the messages or the upstream may be the cause.
///
/// A batch is sent again as it was. It is halved once the upstream has taken something that was sent after it, or after
/// a few tries if nothing else could be sent at all. A message that is sent alone fails after `suspectTries` doubtful
/// responses in a row, each with a success of something else at its endpoint after the one before. Where order forbids
/// trying anything else, the tries count as well, but the message fails only once they have lasted `suspectPeriod`.
///
/// While every response is doubtful, a probe carries one message, which finds a message that the upstream accepts, if
/// there is one.
///
/// A response counts as an attempt only once a success of something else shows that the message was the cause.
///
/// Only what the same endpoint accepts shows that a message is the cause: an endpoint that is broken rejects every message,
/// whatever others accept. A success elsewhere shows that the upstream as a whole works, so that a batch is halved.
///
/// A rejection of the credentials or the URL is as doubtful, but begins with a hold of the endpoint. Without a success of
/// that endpoint, nothing counts, however long it lasts. Once there was one after a rejection, the message is under
/// suspicion: the same response again says nothing about the credentials, and begins no hold.
extension DeliveryMachine {
    /// The number of doubtful responses to a batch after which it is halved if nothing else could be sent.
    private static let triesBeforeSplit = 3
    /// The same if something else was sent that proves nothing, such as other messages under suspicion. In an outage no
    /// batch is sent that often: probes carry one message.
    private static let triesBeforeSplitInAnyCase = 6

    mutating func suspect(
        _ evaluation: inout Evaluation, after: Duration?, _ rule: Verdict.SuspectRule, _ others: OtherMessages
    ) {
        let history = evaluation.history
        let wasAlone = requests - history.requestsBefore <= 1
        let upstreamWorks = history.suspectedAfter.map { latestTaken > $0 } ?? false
        if case .afterTries(let limit) = rule, evaluation.batch.messages.count == 1 {
            suspect(&evaluation, after: after, limit: limit)
        } else if evaluation.batch.messages.count > 1 {
            let isBlocked = wasAlone && (others == .none || others == .blocked)
            suspectBatch(&evaluation, after: after, upstreamWorks, isBlocked: isBlocked)
        } else {
            let taken = health.endpoints[evaluation.flight.endpoint]?.latestTaken ?? 0
            let othersSucceeded = history.suspectedAfter.map { taken > $0 } ?? false
            suspectAlone(
                &evaluation, after: after, othersSucceeded, saysNothingNew: wasAlone || upstreamWorks,
                isBlocked: wasAlone && others == .blocked)
        }
    }

    /// The endpoint rejected our credentials or the URL, or it responds like that to one of the messages.
    mutating func refuse(_ evaluation: inout Evaluation, for reason: Verdict.HoldReason) {
        var history = evaluation.history
        let endpoint = health.endpoints[evaluation.flight.endpoint]
        let (taken, refused) = (endpoint?.latestTaken ?? 0, endpoint?.latestRefused ?? 0)
        let othersSucceeded = history.suspectedAfter.map { taken > $0 } ?? false
        // The success may have been one of a request in flight, which does not end a hold.
        if othersSucceeded, taken > refused { recover(&evaluation) }
        if othersSucceeded, evaluation.batch.messages.count > 1 {
            suspectBatch(&evaluation, after: nil, true, isBlocked: false)
        } else if othersSucceeded || history.suspectTries > 0 {
            suspectAlone(&evaluation, after: nil, othersSucceeded, saysNothingNew: true, isBlocked: false)
        } else {
            history.suspectedAfter = evaluation.flight.number
            history.requestsBefore = requests
            hold(&evaluation, history, for: reason)
        }
    }

    private mutating func suspectBatch(
        _ evaluation: inout Evaluation, after: Duration?, _ othersSucceeded: Bool, isBlocked: Bool
    ) {
        var history = evaluation.history
        let tries = history.failures + 1
        let isStuck =
            isBlocked && (history.isSplit || tries >= Self.triesBeforeSplit) || tries >= Self.triesBeforeSplitInAnyCase
        history.suspectedAfter = history.suspectedAfter ?? evaluation.flight.number
        history.requestsBefore = requests
        guard othersSucceeded || isStuck else {
            return waitInDoubt(&evaluation, history, after: after, counts: false, isOutage: true)
        }
        history.isSplit = history.isSplit || !othersSucceeded
        // Failures of the larger batch do not count against its parts.
        history.failures = 0
        failForUnknownCause(&evaluation)
        halve(&evaluation, history)
    }

    /// `othersSucceeded`: whether the endpoint accepted something that was sent after the doubtful request before.
    /// `saysNothingNew`: whether nothing else was sent since, or the upstream accepted something, so that the same response
    /// again says nothing new about the upstream.
    private mutating func suspectAlone(
        _ evaluation: inout Evaluation, after: Duration?, _ othersSucceeded: Bool, saysNothingNew: Bool, isBlocked: Bool
    ) {
        var history = evaluation.history
        let isFirst = history.suspectTries == 0
        let counts = !isFirst && (othersSucceeded || isBlocked)
        let isOutage = !othersSucceeded && !counts && (isFirst || !saysNothingNew)
        // On the monotonic clock: a wall clock that is set forward must not make an outage look longer than it is.
        let sentAt = evaluation.flight.startedAt
        if isFirst { history.suspectedSince = sentAt }
        if isFirst || counts {
            history.suspectTries += 1
            history.suspectedAfter = evaluation.flight.number
            // During an outage, the first response says nothing about the message.
            if isFirst ? !isInDoubt : othersSucceeded { history.provenTries += 1 }
        }
        history.requestsBefore = requests
        let lasted = history.suspectedSince.map { sentAt - $0 } ?? .zero
        let isProven = history.provenTries >= settings.suspectTries
        let hasLasted = history.suspectTries >= settings.suspectTries && lasted >= settings.suspectPeriod
        if counts, isProven || hasLasted {
            failForUnknownCause(&evaluation)
            // The message is now known to have caused the previous response, and so this one.
            evaluation.reject(evaluation.batch.messages, mayHaveArrived: evaluation.mayHaveArrived, attempts: 2)
        } else {
            waitInDoubt(&evaluation, history, after: after, counts: counts, isOutage: isOutage)
        }
    }

    /// Every such response counts, regardless of other messages.
    private mutating func suspect(_ evaluation: inout Evaluation, after: Duration?, limit: Int) {
        guard evaluation.batch.messages[0].attempts + 1 < limit else {
            worked(&evaluation)
            return evaluation.reject(evaluation.batch.messages, mayHaveArrived: true)
        }
        var history = evaluation.history
        let isOutage = history.suspectedAfter == nil || requests - history.requestsBefore > 1
        history.requestsBefore = requests
        history.suspectedAfter = evaluation.flight.number
        waitInDoubt(&evaluation, history, after: after, counts: true, isOutage: isOutage)
    }

    private mutating func waitInDoubt(
        _ evaluation: inout Evaluation, _ history: BatchHistory, after: Duration?, counts: Bool, isOutage: Bool
    ) {
        let retryAt: Timestamp
        if isOutage || after != nil {
            retryAt = evaluation.now + delay(evaluation, after: after)
            failed(&evaluation, retryAt: retryAt, atOnce: after != nil)
            isInDoubt = true
        } else {
            let attempt = evaluation.history.failures + 1
            retryAt =
                evaluation.now + settings.retry.delay(afterAttempt: attempt, retryAfter: nil, random: evaluation.random)
            failForUnknownCause(&evaluation)
        }
        evaluation.wait(
            as: .suspect, until: retryAt, history, counts: counts, mayHaveArrived: evaluation.mayHaveArrived)
    }

    /// The messages are the cause, so the response is not a failure of the upstream.
    private mutating func failForUnknownCause(_ evaluation: inout Evaluation) {
        lastError = evaluation.result.error
        health.abandoned(at: evaluation.flight.endpoint, now: evaluation.now)
    }
}
