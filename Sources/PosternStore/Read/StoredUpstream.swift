import PosternCore

extension Outbox {
    /// Takes up the queues of all upstreams that the store knows and that are not registered, so that their messages
    /// can be listed, cancelled, retried, and purged, and expire. Nothing is delivered from them.
    public func registerStored() throws(StoreError) {
        let upstreams = try read { sql in
            try sql.all("SELECT number, name, type FROM upstreams") {
                (number: $0[0] as UpstreamNumber, name: $0[1] as String, type: $0[2] as String)
            }.map { ($0, try LaneRule(stored: $0.number, with: sql)) }
        }
        for ((number, name, type), laneRule) in upstreams where queue(number) == nil {
            guard let name = UpstreamName(name) else { continue }
            _ = try register(StoredUpstream(name: name, laneRule: laneRule), type: type, cap: QueueCap())
        }
    }

    /// Remembers which upstreams this gateway does not deliver to.
    public func markDisabled() throws(StoreError) {
        for number in names.keys where queue(number)?.isDisabled == true {
            let record = try circuit(of: number).record
            guard record.obstacle != .disabled else { continue }
            var disabled = record
            disabled.obstacle = .disabled
            setHealth(disabled, of: number)
        }
    }
}

extension LaneRule {
    /// The rule by which an upstream's tables were made.
    init(stored number: UpstreamNumber, with sql: SQL) throws {
        let hasLanes = try sql.exists(
            "SELECT 1 FROM sqlite_master WHERE type = 'index' AND name = 'queue_#_lane'", of: number)
        self = hasLanes ? .separate : .mixed
    }
}

/// Stands for an upstream of which nothing is known but what the store holds: takes nothing and sends nothing.
struct StoredUpstream: BatchingUpstream {
    let name: UpstreamName
    let laneRule: LaneRule
    var kinds: [Kind] { [] }

    func admit(_ payload: JSONValue, of kind: Kind, in context: AdmissionContext) throws(InvalidPayload) -> Admission {
        throw InvalidPayload([PayloadFault("", "cannot be taken: the upstream is not configured here")])
    }

    func plan(for messages: [Message], in context: PlanContext) -> Plan {
        .wait(.pause, until: Timestamp(milliseconds: .max))
    }

    func judge(_ response: UpstreamResponse, to batch: Batch, in context: PlanContext) -> Judgement {
        Judgement(.retry(after: nil))
    }
}
