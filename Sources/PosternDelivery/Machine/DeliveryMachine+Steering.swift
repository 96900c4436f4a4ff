import PosternCore
import PosternStore
import PosternUpstream

/// Requests of operators, and changes of the clock or the configuration.
extension DeliveryMachine {
    /// A flush that has not ended.
    struct Flush: Equatable {
        /// The number of messages in `failing` at most; one is enough for the report.
        static let maxFailing = 100

        var report: FlushReport
        /// Whether the messages that would have waited longer are due by now.
        var hasBegun = false
        /// Why requests since the flush began have failed, by the first message of each. A message that has reached a
        /// final state since is removed.
        var failing: [MessageID: AttemptError] = [:]

        /// Why the oldest message could not be sent.
        var error: AttemptError? { failing.min { $0.key < $1.key }?.value }
    }

    /// Whether messages are sent at all.
    var isSending: Bool { !isPaused && !isStopping }

    /// The first order to pause counts.
    mutating func pause(_ order: Pause) -> [Action] {
        defer { pause = pause ?? order }
        return isPaused ? [] : [.savePause(true)]
    }

    /// Rejections by endpoints that the guard holds are right, of messages up to `latest`.
    mutating func resume(through latest: MessageID, now: Timestamp) -> [Action] {
        defer { pause = nil }
        let released = rejectionGuard.release(through: latest)
        return (isPaused ? [.savePause(false)] : []) + endWaits(now: now)
            + released.map { .notify(.guardEnded(endpoint: $0, byOperator: true)) }
    }

    /// Stops sending until the next start.
    mutating func stop() { isStopping = true }

    /// Probes endpoints and fetches the token without waiting: a new one if the upstream may have revoked this one.
    private mutating func probeNow(now: Timestamp) -> [Action] {
        if health.isHeld(for: .credentials) { tokens.discard() }
        tokens.fetchNow()
        health.probeNow(now: now)
        rejectionGuard.probeNow(now: now)
        return [.wakeHeld]
    }

    /// Does the same, and ends the backoff of messages.
    private mutating func endWaits(now: Timestamp) -> [Action] { [.makeDue(isFlush: false)] + probeNow(now: now) }

    mutating func clockSetBack(now: Timestamp) -> [Action] {
        resetPaces()
        return endWaits(now: now)
    }

    /// Applies new settings. `isReplaced`: whether credentials or the URL have changed, which may have ended any
    /// failure.
    mutating func apply(_ settings: DeliverySettings, isReplaced: Bool, now: Timestamp) -> [Action] {
        if settings.pace != self.settings.pace || isReplaced { resetPaces() }
        self.settings = settings
        health.most = settings.maxInFlight
        let released = rejectionGuard.apply(settings.rejectionGuard).map { endpoint in
            Action.notify(.guardEnded(endpoint: endpoint, byOperator: true))
        }
        if isReplaced {
            tokens.reset()
            health.credentialsReplaced()
            return endWaits(now: now) + released
        }
        return (health.isHeld() || !released.isEmpty ? probeNow(now: now) : []) + released
    }

    /// Nothing is queued. A failure that no message will show to have ended is over when its wait is. `keepsToken`:
    /// whether the token is fetched although there is no message.
    mutating func becameEmpty(keepsToken: Bool, now: Timestamp) -> [Action] {
        guard unsettled == 0 else { return [] }
        if !keepsToken { tokens.forgetFailures(now: now) }
        return health.becameEmpty(now: now) ? [.notify(.waitEnded)] : []
    }

    /// A queued message was removed.
    mutating func removed(_ message: MessageID, now: Timestamp) -> [Action] {
        guard health.causingMessages.contains(message) else { return [] }
        health.causeIsGone(message, now: now)
        return [.wakeHeld]
    }

    // MARK: Flushes

    /// Sends the messages up to `through` without waiting. Flushes begin and end in their order.
    mutating func flush(through: MessageID, now: Timestamp) -> [Action] {
        flushedThrough = max(flushedThrough, through)
        flushes.append(Flush(report: FlushReport(through: through)))
        isHurried = true
        return [.saveFlush(flushedThrough), .makeDue(isFlush: true)] + probeNow(now: now)
    }

    /// The messages that would have waited longer are due. Called for the first flush that has not begun.
    mutating func flushBegan() {
        if let index = flushes.firstIndex(where: { !$0.hasBegun }) { flushes[index].hasBegun = true }
    }

    /// A message that the flushes cover has reached a final state.
    mutating func count(_ settlement: Settlement) {
        for index in flushes.indices {
            let through = flushes[index].report.through
            flushes[index].report.delivered += settlement.delivered.count { $0.id <= through }
            flushes[index].report.failed += settlement.ended.count { $0.state == .failed && $0.message.id <= through }
            guard !flushes[index].failing.isEmpty else { continue }
            for message in settlement.delivered { flushes[index].failing[message.id] = nil }
            for ended in settlement.ended { flushes[index].failing[ended.message.id] = nil }
        }
    }

    /// A request of `messages` failed, and they are sent again.
    mutating func recordForFlushes(_ error: AttemptError, of messages: [Message]) {
        for index in flushes.indices where flushes[index].failing.count < Flush.maxFailing {
            guard let first = messages.first(where: { $0.id <= flushes[index].report.through }) else { continue }
            flushes[index].failing[first.id] = error
        }
    }

    /// Ends the flushes once everything that could be sent has been sent. The rest waits to be sent again, for a
    /// circuit, or for a token. `token`: nil if the upstream requires none. `error`: why nothing can be sent at all.
    mutating func becameIdle(token: TokenCheck? = nil, error: AttemptError? = nil) -> [Action] {
        guard unsettled == 0 else { return [] }
        return finishFlushes(through: MessageID(rawValue: .max), token: token, error: error)
    }

    /// Ends the flushes of messages up to `through`, although later ones are still being sent.
    mutating func finishFlushes(
        through: MessageID, token: TokenCheck? = nil, error: AttemptError? = nil
    ) -> [Action] {
        let over = flushes.prefix { $0.hasBegun && $0.report.through <= through }
        flushes.removeFirst(over.count)
        if flushes.isEmpty { isHurried = false }
        return over.map { flush in
            var report = flush.report
            report.token = token
            report.error = flush.error ?? error
            return .finishFlush(report)
        }
    }
}
