import Logging
import PosternCore
import PosternMetrics
import PosternStore

/// Sending now what waits, and telling of what happened by the names that the upstream's own clients know.
extension WorkerLoop {
    /// Covers what has been accepted so far.
    func flush(_ completion: @escaping @Sendable (FlushReport) -> Void) {
        let through = MessageID(rawValue: Int64(outbox.ledger(of: queue.number).lastID))
        flushedThrough = max(flushedThrough, through)
        outbox.setFlushed(through: flushedThrough, of: queue.number)
        flushes.append(Flush(report: FlushReport(through: through), completion: completion))
        queue.makeDue(at: time.now) { [inbox] in inbox.put(.flushBegan(through)) }
        isHurried = true
        perform(machine.probeNow(now: time.now))
    }

    func flushBegan(_ through: MessageID) {
        for index in flushes.indices where flushes[index].report.through <= through { flushes[index].hasBegun = true }
    }

    /// A flush is over when everything it could send has been sent: what is left waits to be sent again, for the
    /// circuit or for a token.
    func endFlushes() {
        guard flushes.contains(where: \.hasBegun), isAtRest else { return }
        for flush in flushes where flush.hasBegun {
            let report = flush.report
            logger.info(
                "flush finished",
                metadata: [
                    "upstream": "\(queue.name)", "delivered": "\(report.delivered)", "failed": "\(report.failed)",
                ])
            tell(.flushFinished, ["delivered": "\(report.delivered)", "failed": "\(report.failed)"])
            flush.completion(report)
        }
        flushes.removeAll(where: \.hasBegun)
    }

    private var isAtRest: Bool {
        guard machine.unsettled == 0 else { return false }
        if isPaused || isStopping || !upstream.missingSettings.isEmpty || !machine.maySend(now: time.now) {
            return true
        }
        if !hasToken { return !somethingWaits || !machine.tokens.isFetching && machine.tokens.failures > 0 }
        return lookedInVain || readiness() != .now
    }

    // MARK: Events

    /// The result of a batch is on disk.
    func countFlushed(_ settlement: Settlement, of flight: InFlightBatch) {
        let failed = settlement.ended.filter { $0.state == .failed }.map(\.message)
        for index in flushes.indices {
            let through = flushes[index].report.through
            flushes[index].report.delivered += settlement.delivered.count { $0.id <= through }
            flushes[index].report.failed += failed.count { $0.id <= through }
        }
        guard settlement.outcome != .unsent, settlement.outcome != .expired else { return }
        let batch: Logger.Metadata = ["batch.id": "\(flight.batch.id)", "verdict": "\(settlement.outcome.rawValue)"]
        tell(.batchEnded, batch.merging(["batch.messages": "\(flight.batch.messages.count)"]) { $1 })
        for (kind, messages) in Dictionary(grouping: settlement.delivered + failed, by: \.kind) {
            tell(.settled(kind), batch.merging(["messages": "\(messages.count)"]) { $1 }, count: messages.count)
        }
    }

    func tell(_ event: UpstreamEvent, _ details: Logger.Metadata = [:], count: Int = 1) {
        guard let name = upstream.name(of: event) else { return }
        metrics.upstreamEvents(queue.name.description, name).add(count)
        logger.info(
            "upstream event",
            metadata: ["upstream": "\(queue.name)", "event": "\(name)"].merging(details) { $1 })
    }
}
