import PosternCore
import PosternUpstream

extension Outbox {
    /// Registers all stored upstreams that are not, so that their messages can be listed, cancelled, retried, and purged,
    /// and expire. Their queues are not adopted: nothing is delivered from them.
    public func registerStored() throws(StoreError) {
        let upstreams = try read { sql in
            try UpstreamSummary.all(with: sql).map { ($0, try LaneRule(stored: $0.number, with: sql)) }
        }
        for (summary, laneRule) in upstreams where target(summary.number) == nil {
            _ = try register(
                StoredUpstream(name: summary.name, laneRule: laneRule), type: summary.type, cap: QueueCap())
        }
    }

    /// Keeps the queue of an upstream that was removed while the gateway runs, as a start without it would. It must have
    /// been dropped.
    public func disable(_ target: QueueTarget) throws(StoreError) {
        let found = try read { sql in
            (
                try UpstreamSummary.all(with: sql).first { $0.number == target.number }?.type,
                try LaneRule(stored: target.number, with: sql)
            )
        }
        let stored = StoredUpstream(name: target.name, laneRule: found.1)
        _ = try register(stored, type: found.0 ?? "", cap: QueueCap())
        try markDisabled()
    }

    /// Stores which upstreams this gateway does not deliver to, and no other one that shares the store.
    public func markDisabled() throws(StoreError) {
        for number in names.keys where target(number)?.isDisabled == true && isResponsible(for: number) {
            var record = try summary(of: number)?.circuit ?? CircuitRecord()
            guard record.obstacle != .disabled else { continue }
            record.obstacle = .disabled
            setHealth(record, of: number)
        }
    }
}

extension LaneRule {
    /// The lane rule with which an upstream's tables were created.
    init(stored number: UpstreamNumber, with sql: SQL) throws {
        let hasLanes = try sql.exists(
            Statement(
                sqlite: "SELECT 1 FROM sqlite_master WHERE type = 'index' AND name = 'queue_#_lane'",
                postgres: "SELECT 1 FROM pg_indexes WHERE schemaname = current_schema() AND indexname = 'queue_#_lane'"),
            of: number)
        self = hasLanes ? .perLane : .acrossLanes
    }
}

/// Stands for an upstream that is known only from the store. It accepts nothing and sends nothing.
struct StoredUpstream: BatchingUpstream {
    let name: UpstreamName
    let laneRule: LaneRule
    var traits: Traits { Traits { $0.laneRule = laneRule } }
    var kinds: [Kind] { [] }

    func validate(_ payload: JSONValue, of kind: Kind, in context: ValidationContext) throws(InvalidPayload)
        -> ValidPayload
    {
        throw InvalidPayload([PayloadError("", "is not accepted: the upstream is not configured here")])
    }

    func plan(for messages: [Message], in context: PlanContext) -> Plan {
        .wait(.pause, until: Timestamp(milliseconds: .max))
    }

    func judge(_ response: UpstreamResponse, to batch: Batch, in context: PlanContext) -> Decision {
        Decision(.retry(after: nil))
    }
}
