import PosternCore
import PosternUpstream

extension Transaction {
    /// Registers an upstream in the store. A number is never assigned twice: the rows of an upstream that is no longer
    /// configured remain its own. Throws if messages are left that another type accepted. `hasTurns`: see `setTurns`.
    func register(
        _ upstream: AnyUpstream, type: String
    ) throws -> (number: UpstreamNumber, hasTurns: Bool) {
        let name = upstream.name.description
        let former = try UpstreamSummary.all(with: sql).first { $0.name == upstream.name }
        let known = former?.number
        let highest = try sql.value("SELECT max(number) FROM upstreams", as: Int.self) ?? 0
        guard known != nil || highest < 255 else {
            throw StoreError.failed(detail: "the store already holds 255 upstreams, the maximum; start a new store")
        }
        let number = known ?? UpstreamNumber(rawValue: UInt8(highest + 1))
        if known == nil {
            try sql.run("INSERT INTO upstreams (number, name, type) VALUES (?, ?, ?)", number, name, type)
        } else {
            try sql.run("UPDATE upstreams SET type = ? WHERE number = ?", type, number)
        }
        if let former, former.type != type {
            if let problem = former.problem(as: type) { throw problem }
            // What the former type kept means nothing to this one, and its credentials are for another API.
            try sql.run("UPDATE upstreams SET circuit = '{\"failures\":0}' WHERE number = ?", number)
            try sql.run("DELETE FROM state WHERE upstream = ?", number)
            try sql.run("DELETE FROM credentials WHERE upstream = ?", number)
            try Migrations.dropTurns(of: number, with: sql)
        }
        try Migrations.createTables(of: number, with: sql)
        try Migrations.createBlocks(of: number, with: sql)
        try Migrations.createPayloads(of: number, with: sql)
        if sql.admitsLate { try Migrations.createLaneNames(of: number, with: sql) }
        if upstream.traits.laneRule.needsLaneIndex {
            try Migrations.createLaneIndex(of: number, with: sql)
        }
        if sql.isPostgres {
            try sql.run("INSERT INTO queues (number) VALUES (?) ON CONFLICT (number) DO NOTHING", number)
        }
        try enter(upstream.kinds)
        return (number, try Migrations.hasTurns(of: number, with: sql))
    }

    /// Makes or drops the indexes by which turns are found. As long as there are any, all queued messages of a lane have the
    /// same turn.
    func setTurns(_ hasTurns: Bool, of queue: QueueTarget) throws {
        try borrow(queue.number)
        guard hasTurns else { return try Migrations.dropTurns(of: queue.number, with: sql) }
        let rule = queue.upstream.traits.laneRule
        if rule == .acrossLanes {
            // Since there were turns the last time, messages of one lane may have been stored in several.
            try closeBlocks()
            try sql.script("UPDATE queue_# SET turn = 0 WHERE lane <> 0 AND turn <> 0", of: queue.number)
        }
        try Migrations.createTurns(of: queue.number, rule, with: sql)
    }

    /// Waits for other processes that find out the turns of lanes, in the order of the queues, so that they do not wait for each
    /// other in a circle.
    func lockTurns(of jobs: ArraySlice<OutboxWriter.Job>) throws {
        for job in jobs {
            guard case .append(let messages, _, _, _) = job else { continue }
            for message in messages where message.queue.hasTurns && message.lane.number != 0 {
                hasLocked.insert(message.queue.number)
            }
        }
        for number in hasLocked.sorted(by: { $0.rawValue < $1.rawValue }) { try writer.lock(number, in: sql) }
    }

    /// The turn that a message of a mixed lane takes: that of the messages of its lane that are queued, or else its own. So
    /// the order of a lane is that of its turn.
    func turn(ofLane lane: Int64, in queue: QueueTarget, or own: Int64) throws -> Int64 {
        try closeBlock(of: writeStates[queue.number])
        // Otherwise two processes could store messages of one lane in different turns.
        if !hasLocked.contains(queue.number) { try writer.lock(queue.number, in: sql) }
        let known = try sql.value(
            "SELECT turn FROM queue_# WHERE lane = ? AND lane <> 0 LIMIT 1", of: queue.number, lane, as: Int64.self)
        if let known { return known }
        // Blocks that were stored while there were no turns may have earlier ones.
        return try sql.exists("SELECT 1 FROM blocks_# WHERE turn = 0 LIMIT 1", of: queue.number) ? 0 : own
    }

    /// Assigns a number to each kind that is new to the store. It is known once it is committed.
    func enter(_ kinds: [Kind]) throws {
        for kind in kinds where outbox.kinds.number(of: kind) == 0 {
            let name = kind.description
            try sql.run("INSERT INTO kinds (name) VALUES (?) ON CONFLICT (name) DO NOTHING", name)
            newKinds.append((kind, try sql.value("SELECT number FROM kinds WHERE name = ?", name, as: Int.self) ?? 0))
        }
    }

    /// A run with another key could not read what this one can: lanes for which a credential is held continue, or are
    /// parked again.
    func updateParkedLanes(of number: UpstreamNumber) throws {
        try sql.run(
            """
            UPDATE lanes SET isParked = FALSE, isHeld = FALSE, readyAtMs = ?2
            WHERE upstream = ?1 AND isParked AND laneGroup IN
              (SELECT owner FROM credentials WHERE upstream = ?1 AND NOT isRefused)
            """, number, outbox.time.now)
    }
}
