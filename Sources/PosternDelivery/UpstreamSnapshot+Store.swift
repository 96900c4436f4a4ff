public import PosternCore
public import PosternStore
public import PosternUpstream

extension UpstreamSnapshot {
    /// The status of an upstream from the store alone, without a worker. It does not include requests in flight, and of
    /// the endpoints only those that have failed. Nil if its health record is not valid.
    public init?(stored summary: UpstreamSummary, now: Timestamp) {
        guard let record = summary.circuit else { return nil }
        self.init()
        pause = summary.pause
        circuit = record.reopensAtMs.map { .open(until: Timestamp(milliseconds: $0)) } ?? .closed
        failures = record.failures
        hold =
            record.obstacle == .missingSettings ? .credentials : record.hold.flatMap(Verdict.HoldReason.init(rawValue:))
        endpoints = (record.waitingEndpoints ?? []).map { name in
            let reason = record.endpointHolds?[name].flatMap(WaitReason.init(rawValue:))
            return EndpointWait(name: name, waitingFor: reason ?? .circuit)
        }
        isDisabled = record.obstacle == .disabled
        token = record.token.map { token in
            TokenStatus(
                isValid: token.validUntilMs.map { $0 > now.milliseconds } ?? false, failures: token.failures,
                credentialsRefused: token.credentialsRefused,
                retryAt: token.retryAtMs.map(Timestamp.init(milliseconds:)))
        }
        lastSuccessAt = record.lastSuccessAtMs.map(Timestamp.init(milliseconds:))
        lastError = record.lastError
    }
}

extension QueuedFacts {
    /// The stored facts about the first message of a lane.
    init(_ lane: LaneRecord) {
        self.init()
        isInFlight = lane.isInFlight
        isParked = lane.state == .parked
        laneWaitsFor = lane.waitsFor
        laneWaitsUntil = lane.until
        nextAttemptAt = lane.waitsFor == nil ? lane.until : nil
        isRetry = lane.state == .backingOff
    }
}

extension UpstreamSnapshot {
    /// Why messages of a kind wait if the queue of `upstream` is mixed, whose rows do not say so. If the whole upstream
    /// waits, that says it.
    public func wait(of kind: Kind, for upstream: AnyUpstream) -> KindWait? {
        guard upstream.traits.laneRule == .acrossLanes else { return nil }
        guard upstream.kinds.contains(kind) else { return KindWait(.credentials, until: nil) }
        let name = upstream.endpoint(of: kind)
        // Without kinds that are sent apart, the guard holds all.
        guard circuit == .closed,
            let endpoint = endpoints.first(where: { $0.name == name || name == nil && $0.waitingFor == .guard })
        else { return nil }
        return KindWait(endpoint.waitingFor, until: endpoint.until)
    }

    /// What a lane waits for; nil if it does not wait.
    public func wait(of lane: LaneRecord, now: Timestamp) -> WaitStatus? {
        let status = wait(of: QueuedFacts(lane), now: now) { false }
        return status.waitingFor == nil ? nil : status
    }
}
