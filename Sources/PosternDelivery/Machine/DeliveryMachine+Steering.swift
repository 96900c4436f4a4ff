import PosternCore
import PosternStore

/// What operators ask for, and what a changed clock or configuration means.
extension DeliveryMachine {
    /// A flush that is not over yet.
    struct Flush: Equatable {
        var report: FlushReport
        /// Whether what was to wait longer is due by now.
        var hasBegun = false
    }

    /// Whether messages are sent at all.
    var isSending: Bool { !isPaused && !isStopping }

    mutating func pause() -> [Action] {
        defer { isPaused = true }
        return isPaused ? [] : [.savePause(true)]
    }

    mutating func resume(now: Timestamp) -> [Action] {
        defer { isPaused = false }
        return (isPaused ? [.savePause(false)] : []) + endWaits(now: now)
    }

    /// No more is sent in this run.
    mutating func stop() { isStopping = true }

    /// Endpoints, and the token, are tried now.
    private mutating func probeNow(now: Timestamp) -> [Action] {
        tokens.fetchNow()
        health.probeNow(now: now)
        return [.wakeHeldLanes]
    }

    /// Those, and what backs off.
    private mutating func endWaits(now: Timestamp) -> [Action] { [.makeDue(isFlush: false)] + probeNow(now: now) }

    mutating func clockSetBack(now: Timestamp) -> [Action] { endWaits(now: now) }

    /// Other settings; `isReplaced`: other credentials or another URL too, so that whatever was wrong may be right now.
    mutating func adopted(_ settings: DeliverySettings, isReplaced: Bool, now: Timestamp) -> [Action] {
        self.settings = settings
        health.most = settings.maxInFlight
        if isReplaced {
            tokens.reset()
            return endWaits(now: now)
        }
        return health.hold == nil ? [] : probeNow(now: now)
    }

    /// A queued message was removed.
    mutating func removed(_ message: MessageID, now: Timestamp) -> [Action] {
        guard health.causingMessages.contains(message) else { return [] }
        health.causeIsGone(message, now: now)
        return [.wakeHeldLanes]
    }

    // MARK: Flushes

    /// Sends without waiting what was accepted up to `through`. Flushes begin and end in their order.
    mutating func flush(through: MessageID, now: Timestamp) -> [Action] {
        flushedThrough = max(flushedThrough, through)
        flushes.append(Flush(report: FlushReport(through: through)))
        isHurried = true
        return [.saveFlush(flushedThrough), .makeDue(isFlush: true)] + probeNow(now: now)
    }

    /// What was to wait longer is due, for the first flush that has not begun.
    mutating func flushBegan() {
        if let index = flushes.firstIndex(where: { !$0.hasBegun }) { flushes[index].hasBegun = true }
    }

    /// What the flushes cover has reached a final state.
    mutating func count(_ settlement: Settlement) {
        for index in flushes.indices {
            let through = flushes[index].report.through
            flushes[index].report.delivered += settlement.delivered.count { $0.id <= through }
            flushes[index].report.failed += settlement.ended.count { $0.state == .failed && $0.message.id <= through }
        }
    }

    /// Everything that could be sent has been: what is left waits to be sent again, for a circuit or for a token.
    mutating func cameToRest() -> [Action] {
        guard unsettled == 0 else { return [] }
        let over = flushes.filter(\.hasBegun)
        flushes.removeAll(where: \.hasBegun)
        return over.map { .finishFlush($0.report) }
    }
}
