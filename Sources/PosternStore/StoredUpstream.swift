import PosternCore

extension Outbox {
    /// Takes up the queues of all upstreams that the store knows and that are not registered, so that their messages
    /// can be listed, cancelled, retried, and purged, and expire. Nothing is delivered from them.
    public func registerStored() throws(StoreError) {
        let upstreams = try read { sql in
            try sql.all(
                """
                SELECT number, name, type, EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'index'
                  AND name = 'queue_' || number || '_lane')
                FROM upstreams
                """
            ) {
                (number: $0[0] as UpstreamNumber, name: $0[1] as String, type: $0[2] as String, hasLanes: $0[3] as Bool)
            }
        }
        for (number, name, type, hasLanes) in upstreams where queue(number) == nil {
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
