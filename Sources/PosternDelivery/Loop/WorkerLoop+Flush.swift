import Logging
import PosternCore
import PosternEvents
import PosternMetrics
import PosternStore
import PosternUpstream

/// Flushes, and events under the names that the upstream's own clients define.
extension WorkerLoop {
    /// Begins a flush that covers what has been accepted so far.
    func flush(_ completion: @escaping @Sendable (FlushReport?) -> Void) {
        let newest = MessageID(rawValue: Int64(outbox.ledger(of: queue.number).lastID))
        flushCompletions.append(completion)
        perform(machine.flush(through: newest, now: time.now))
    }

    /// How often the queue is asked for the rest of a flush while other messages are sent.
    private static let flushCheck = Duration.milliseconds(100)

    /// A flush covers what was queued when it began, so it also ends while later messages keep the upstream busy.
    func endFlushes() {
        guard let flush = machine.flushes.first, flush.hasBegun else { return }
        if isAtRest { return perform(machine.becameIdle(token: tokenCheck, error: obstacle)) }
        // Without a token, nothing is sent yet.
        let now = time.instant
        guard hasToken, flushCheckedAt.map({ now - $0 >= Self.flushCheck }) ?? true else { return }
        flushCheckedAt = now
        let through = flush.report.through
        // A read error is not the end of the flush.
        guard let isLeft = try? queue.maySend(through: through, now: time.now), !isLeft else { return }
        perform(machine.finishFlushes(through: through, token: tokenCheck, error: obstacle))
    }

    /// Nil if the upstream requires no token.
    private var tokenCheck: TokenCheck? {
        guard upstream.tokenSource != nil else { return nil }
        if hasToken { return .ok }
        let isRefused = machine.tokens.credentialsRefused || !upstream.missingSettings.isEmpty
        return isRefused ? .unauthorized : .unreachable
    }

    /// Why nothing can be sent at all; nil if requests are sent.
    private var obstacle: AttemptError? {
        let missing = upstream.missingSettings
        guard missing.isEmpty else {
            let names = missing.joined(separator: ", ")
            return AttemptError(.unauthorized, detail: "not configured: \(names)", at: time.now)
        }
        return hasToken ? nil : machine.tokens.error
    }

    func finishFlush(_ report: FlushReport) {
        let counts: Logger.Metadata = [
            "delivered": .stringConvertible(report.delivered), "failed": .stringConvertible(report.failed),
        ]
        logger.info("flush finished", metadata: counts.merging(["upstream": "\(queue.name)"]) { $1 })
        log(.flushFinished, counts)
        emit(.flushFinished, count: report.delivered + report.failed)
        flushCompletions.removeFirst()(report)
    }

    /// The worker ends. What its flushes covered is due in the rows, and the next worker sends it.
    func abandonFlushes() {
        machine.flushes = []
        for completion in flushCompletions { completion(nil) }
        flushCompletions = []
    }

    private var isAtRest: Bool {
        guard machine.unsettled == 0 else { return false }
        guard isSending, machine.maySend(now: time.now) else { return true }
        // A turn before this has started to fetch the token.
        if !hasToken { return !machine.tokens.isFetching && machine.tokens.failures > 0 }
        return !queue.isAdmitting && (lastClaimWasEmpty || readiness() != .now)
    }

    // MARK: Events

    /// The result of a batch is on disk.
    func recordEnd(of settlement: Settlement, _ flight: InFlightBatch) {
        guard upstream.namesEvents, settlement.outcome != .unsent, settlement.outcome != .expired else { return }
        let kind = flight.batch.messages[0].kind
        let batch: Logger.Metadata = ["batch.id": "\(flight.batch.id)", "verdict": "\(settlement.outcome.rawValue)"]
        var ended = batch
        ended["kind"] = "\(kind)"
        ended["request.type"] = upstream.name(of: .settled(kind)).map { "\($0)" }
        ended["batch.messages"] = .stringConvertible(flight.batch.messages.count)
        log(.batchEnded, ended)
        let failed = settlement.ended.filter { $0.state == .failed }.map(\.message)
        for (kind, messages) in Dictionary(grouping: settlement.delivered + failed, by: \.kind) {
            log(
                .settled(kind), batch.merging(["messages": .stringConvertible(messages.count)]) { $1 },
                count: messages.count)
        }
    }

    func log(_ event: UpstreamEvent, _ details: Logger.Metadata = [:], count: Int = 1) {
        guard let name = upstream.name(of: event) else { return }
        metrics.upstreamEvents(queue.name.description, name).add(count)
        logger.info(
            "upstream event",
            metadata: ["upstream": "\(queue.name)", "event": "\(name)"].merging(details) { $1 })
    }
}
