import PosternCore
public import PosternStore

extension UpstreamSnapshot {
    /// What the store alone knows of an upstream, without a worker: nothing of tokens, endpoints, or requests in flight.
    /// Nil if its health record is not valid.
    public init?(stored books: UpstreamBooks) {
        guard let record = books.circuit else { return nil }
        self.init()
        isPaused = books.isPaused
        circuit = record.reopensAtMs.map { .open(until: Timestamp(milliseconds: $0)) } ?? .closed
        failures = record.failures
        hold = record.hold.flatMap(HoldReason.init(rawValue:))
        lastSuccessAt = record.lastSuccessAtMs.map(Timestamp.init(milliseconds:))
        lastError = record.lastError.flatMap(AttemptError.init)
        health = assessment
    }
}

extension QueuedMessageFacts {
    /// What the store knows of a queued message.
    public init(_ record: MessageRecord) {
        isParked = record.isParked
        laneWaitsFor = record.laneWaitsFor
        laneWaitsUntil = record.laneWaitsUntil
        nextAttemptAt = record.nextAttemptAt
        isRetry = record.isRetry
    }
}
