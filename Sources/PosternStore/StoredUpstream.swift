import PosternCore

extension Outbox {
    /// Takes up the queues of all upstreams the store knows, whatever is configured, so that their messages can be
    /// cancelled, retried and purged. Nothing can be delivered from them.
    public func registerStored() throws(StoreError) {
        let upstreams = try read { sql in
            try sql.all(
                """
                SELECT name, type, EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'index'
                  AND name = 'queue_' || number || '_lane')
                FROM upstreams
                """
            ) { (name: $0[0] as String, type: $0[1] as String, hasLanes: $0[2] as Bool) }
        }
        for (name, type, hasLanes) in upstreams {
            guard let name = UpstreamName(name) else { continue }
            let upstream = StoredUpstream(name: name, laneRule: hasLanes ? .separate : .mixed)
            _ = try register(upstream, type: type, cap: QueueCap())
        }
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
