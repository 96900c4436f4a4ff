import Logging
import PosternCore
import PosternStore

/// What others get to see, and what a restart finds.
extension WorkerLoop {
    func show() {
        var snapshot = UpstreamSnapshot()
        snapshot.isPaused = isPaused
        snapshot.inFlight = inFlight
        snapshot.circuit = circuit.state
        snapshot.failures = circuit.failures
        snapshot.hold = upstream.missingSettings.isEmpty ? hold : .credentials
        snapshot.lastSuccessAt = lastSuccessAt
        snapshot.lastError = lastError
        if upstream.tokenSource != nil {
            let token = tokens.token(at: time.now)
            snapshot.token = .init(
                isValid: token != nil, expiresAt: token?.expiresAt, failures: tokens.failures,
                credentialsRefused: tokens.credentialsRefused)
        }
        snapshot.health = snapshot.assessment
        shared.show(snapshot)
    }

    /// The time of the last success is worth a write only when the one on disk has become old.
    private static let successResolution = Duration.seconds(10)

    var circuitRecord: CircuitRecord {
        var record = CircuitRecord()
        record.failures = circuit.failures
        // A probe that a crash cuts short leaves the circuit open.
        record.reopensAtMs = circuit.state == .halfOpen ? saved.reopensAtMs : circuit.reopensAt?.milliseconds
        record.hold = hold?.rawValue
        record.lastError = lastError.map(ErrorRecord.init)
        record.lastSuccessAtMs = saved.lastSuccessAtMs
        if let lastSuccessAt {
            let savedAt = saved.lastSuccessAtMs.map(Timestamp.init(milliseconds:))
            if savedAt.map({ lastSuccessAt - $0 > Self.successResolution }) ?? true {
                record.lastSuccessAtMs = lastSuccessAt.milliseconds
            }
        }
        return record
    }

    /// The line that tells a whole attempt.
    func log(_ ruling: Ruling, of flight: Flight, took duration: Duration) {
        let settlement = ruling.settlement
        var metadata: Logger.Metadata = [
            "upstream": "\(queue.name)", "batch.id": "\(flight.batch.id)",
            "batch.messages": "\(flight.batch.messages.count)", "attempt": "\(flight.claim.history.failures + 1)",
            "verdict": "\(settlement.outcome)", "durationMs": "\(duration.wholeMilliseconds)",
        ]
        metadata["http.status"] = settlement.status.map { "\($0)" }
        metadata["detail"] = settlement.detail.map { "\($0)" }
        if let retryAt = settlement.waiting?.nextAttemptAt {
            metadata["retry.delayMs"] = "\((retryAt - settlement.endedAt).wholeMilliseconds)"
        }
        logger.info("batch attempted", metadata: metadata)
    }
}

extension AttemptError {
    init?(_ record: ErrorRecord) {
        guard let errorClass = Class(rawValue: record.errorClass) else { return nil }
        self.init(
            errorClass, status: record.status, detail: record.detail, at: Timestamp(milliseconds: record.atMs))
    }
}
