import Logging
import PosternCore
import PosternStore
import PosternUpstream

/// Publishes the snapshot and persists the health record.
extension WorkerLoop {
    func show() {
        var snapshot = UpstreamSnapshot()
        snapshot.pause = machine.pause
        snapshot.inFlight = machine.inFlight
        snapshot.circuit = machine.health.shown
        snapshot.failures = machine.health.upstream.failures
        snapshot.hold = upstream.missingSettings.isEmpty ? machine.health.hold : .credentials
        let held = machine.rejectionGuard.held
        let waiting = machine.health.waitingEndpoints
        snapshot.endpoints =
            waiting.map { name, known in
                .init(
                    name: name, waitingFor: known.hold == .credentials ? .credentials : .circuit,
                    until: known.latestProbeAt, lastError: known.lastError)
            }
            + held.filter { waiting[$0.key] == nil }.map { name, probeAt in
                .init(name: name, waitingFor: .guard, until: probeAt, lastError: machine.lastError)
            }
        snapshot.endpoints.sort { $0.name < $1.name }
        snapshot.pacedUntil = machine.pace.wait(now: time.now)
        snapshot.pacedKinds = machine.waitingKinds(now: time.now)
        snapshot.rateLimit = machine.pace.rate(settings.pace)
        snapshot.messageLimit = settings.pace.messages > 0 ? settings.pace.messages : nil
        snapshot.lastSuccessAt = machine.lastSuccessAt
        snapshot.lastError = machine.lastError
        if upstream.tokenSource != nil {
            let tokens = machine.tokens
            let token = tokens.token(at: time.now)
            snapshot.token = .init(
                isValid: token != nil && !tokens.isRejected, expiresAt: tokens.isRejected ? nil : token?.expiresAt,
                failures: tokens.failures,
                credentialsRefused: tokens.credentialsRefused, retryAt: tokens.failures > 0 ? tokens.nextFetch : nil)
        }
        status.show(snapshot)
        status.show(unsettled: machine.unsettled)
    }

    /// The time of the last success is written only if the one on disk is old.
    private static let successResolution = Duration.seconds(10)

    /// Health changes with attempts, whose settlements store it, and also by tokens, reloads, and operators.
    func saveHealth() {
        let record = persistedHealth
        guard record != saved else { return }
        saved = record
        outbox.setHealth(record, of: queue.number)
    }

    var persistedHealth: CircuitRecord {
        var record = CircuitRecord()
        let circuit = machine.health.upstream
        record.failures = circuit.failures
        // If a crash interrupts a probe, the circuit stays open.
        record.reopensAtMs = saved.reopensAtMs
        if circuit.state != .halfOpen {
            record.reopensAtMs = if case .open(let until) = machine.health.shown { until.milliseconds } else { nil }
        }
        record.hold = machine.health.hold?.rawValue
        record.lastError = machine.lastError
        let waiting = machine.health.waitingEndpoints
        let guarded = machine.rejectionGuard.held.mapValues { _ in WaitReason.guard.rawValue }
        let names = Set(waiting.keys).union(guarded.keys).sorted()
        record.waitingEndpoints = names.isEmpty ? nil : names
        // An endpoint that is also held for its credentials is guarded again after these are right.
        let holds = waiting.compactMapValues { $0.hold?.rawValue }.merging(guarded) { $1 }
        record.endpointHolds = holds.isEmpty ? nil : holds
        record.rejectionsAllowedThrough = machine.rejectionGuard.allowedThrough?.rawValue
        record.obstacle = upstream.missingSettings.isEmpty ? nil : .missingSettings
        record.token = upstream.tokenSource == nil ? nil : machine.tokens.record
        record.lastSuccessAtMs = saved.lastSuccessAtMs
        if let lastSuccessAt = machine.lastSuccessAt {
            let savedAt = saved.lastSuccessAtMs.map(Timestamp.init(milliseconds:))
            if savedAt.map({ lastSuccessAt < $0 || lastSuccessAt - $0 > Self.successResolution }) ?? true {
                record.lastSuccessAtMs = lastSuccessAt.milliseconds
            }
        }
        return record
    }

    /// The number of dead letters of one settlement that get a line each.
    private static let maxDeadLetters = 50

    /// Call when they are on disk.
    func log(deadLettersOf settlement: Settlement) {
        let failed = settlement.ended.filter { $0.state == .failed }
        for ended in failed.prefix(Self.maxDeadLetters) {
            var metadata: Logger.Metadata = [
                "upstream": "\(queue.name)", "message.id": "\(ended.message.id)", "kind": "\(ended.message.kind)",
            ]
            metadata["traceparent"] = ended.message.traceParent.map { "\($0)" }
            if let error = ended.error { metadata.merge(described(error)) { $1 } }
            logger.warning("message failed permanently", metadata: metadata)
        }
        guard failed.count > Self.maxDeadLetters else { return }
        logger.warning(
            "messages failed permanently; lines omitted",
            metadata: [
                "upstream": "\(queue.name)", "messages": .stringConvertible(failed.count - Self.maxDeadLetters),
            ])
    }

    func described(_ error: AttemptError) -> Logger.Metadata {
        ["error": "\(error.logged(withAnswer: settings.logsAnswers))", "error.class": "\(error.errorClass)"]
    }

    /// The line that describes a whole attempt.
    func log(
        _ settlement: Settlement, after transfer: TransferResult, of flight: InFlightBatch, took duration: Duration
    ) {
        var metadata: Logger.Metadata = [
            "upstream": "\(queue.name)", "batch.id": "\(flight.batch.id)",
            "batch.messages": .stringConvertible(flight.batch.messages.count),
            "attempt": .stringConvertible(flight.claim.history.failures + 1),
            "verdict": "\(settlement.outcome.rawValue)",
            "durationMs": .stringConvertible(duration.inMilliseconds),
        ]
        metadata["traceparent"] = flight.batch.messages.commonTraceParent.map { "\($0)" }
        metadata["http.status"] = settlement.status.map { .stringConvertible($0) }
        if case .success(let response) = transfer {
            metadata["response.bytes"] = .stringConvertible(response.body.count)
        }
        // Without a response, the text is the gateway's own.
        if settlement.status == nil || settings.logsAnswers { metadata["detail"] = settlement.detail.map { "\($0)" } }
        if let retryAt = settlement.waiting?.nextAttemptAt {
            metadata["retry.delayMs"] = .stringConvertible((retryAt - settlement.endedAt).wholeMilliseconds)
        }
        logger.info("batch attempted", metadata: metadata)
    }
}

extension AttemptError {
    /// The text for the log. What a response says may repeat the payload, so only its status is named unless
    /// `withAnswer`; `lastError` has all of it.
    fileprivate func logged(withAnswer: Bool) -> String {
        let isOwn =
            switch errorClass {
            case .unreachable, .timeout, .interrupted, .garbled, .damaged: true
            // An upstream's type may quote what an earlier response said.
            case .busy, .failing, .unauthorized, .misconfigured, .refused: false
            }
        guard !isOwn, !withAnswer else { return description }
        return "\(status.map { "HTTP \($0)" } ?? "not sent"). \(advice)"
    }
}
