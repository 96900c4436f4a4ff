import GRDB
public import PosternCore

extension Transaction {
    /// Notes that a request goes out, so that a run that dies before its answer leaves a trace.
    public func depart(_ departure: Departure, of queue: UpstreamQueue) throws {
        let statement = try statements.depart(in: db)
        statement.bind(departure.batch.rawValue, at: 1)
        statement.bind(Int64(queue.number.rawValue), at: 2)
        statement.bind(departure.startedAt.milliseconds, at: 3)
        statement.bind(departure.ids.first?.rawValue, at: 4)
        statement.bind(departure.ids.last?.rawValue, at: 5)
        statement.bind(MessageIDList.encode(departure.ids), at: 6)
        try statement.run(in: db)
    }

    /// Applies what an attempt came to.
    public func settle(_ settlement: Settlement, of queue: UpstreamQueue) throws {
        try closeAttempt(settlement)
        for message in settlement.delivered {
            try deliver(message, of: queue, result: settlement.result, at: settlement.endedAt)
        }
        for ended in settlement.ended {
            try end(ended.message.id, in: queue, as: ended.state, error: ended.error, at: settlement.endedAt)
        }
        if let waiting = settlement.waiting { try wait(waiting, of: queue) }
        for (id, progress) in settlement.progressed {
            try db.execute(
                sql: "UPDATE queue_\(queue.number.rawValue) SET progress = ? WHERE id = ?",
                arguments: [progress.data, id.rawValue])
        }
        try apply(settlement.changes, of: queue.number)
        if settlement.isAmbiguous { ledger(queue.number) { $0.ambiguousSends += 1 } }
        if let circuit = settlement.circuit { try save(circuit, of: queue.number) }
    }

    public func save(_ circuit: CircuitRecord, of number: UpstreamNumber) throws {
        let statement = try statements.circuit(in: db)
        statement.bind(RecordText.encode(circuit), at: 1)
        statement.bind(Int64(number.rawValue), at: 2)
        try statement.run(in: db)
    }

    private func closeAttempt(_ settlement: Settlement) throws {
        let statement = try statements.arrive(in: db)
        statement.bind(settlement.endedAt.milliseconds, at: 1)
        statement.bind(settlement.outcome, at: 2)
        statement.bind(settlement.status.map(Int64.init), at: 3)
        statement.bind(settlement.detail, at: 4)
        statement.bind(settlement.batch.rawValue, at: 5)
        try statement.run(in: db)
    }

    private func deliver(_ message: Message, of queue: UpstreamQueue, result: [UInt8]?, at moment: Timestamp) throws {
        guard try remove(message.id, bytes: message.payload.count, from: queue) else { return }
        if outbox.keepsDelivered {
            let statement = try statements.deliver(in: queue.number, db: db)
            statement.bind(message.id.rawValue, at: 1)
            statement.bind(Int64(outbox.kinds.number(of: message.kind)), at: 2)
            statement.bind(message.acceptedAt.milliseconds, at: 3)
            statement.bind(moment.milliseconds, at: 4)
            statement.bind(message.attempts + 1, at: 5)
            statement.bind(message.key, at: 6)
            statement.bind(result, at: 7)
            try statement.run(in: db)
        }
        ledger(queue.number) { ledger in
            ledger.delivered += 1
            if !outbox.keepsDelivered { ledger.purgedDelivered += 1 }
        }
        note(SettledNotice(id: message.id, state: .delivered, error: nil, result: result))
    }

    /// Deletes a queue row; false when it is gone already.
    private func remove(_ id: MessageID, bytes: Int, from queue: UpstreamQueue) throws -> Bool {
        let statement = try statements.remove(from: queue.number, in: db)
        statement.bind(id.rawValue, at: 1)
        try statement.run(in: db)
        guard db.changesCount == 1 else { return false }
        ledger(queue.number) { ledger in
            ledger.queued -= 1
            ledger.queuedBytes -= bytes
        }
        return true
    }

    /// Moves a queued message to the ended ones, payload and all. False when it is not queued.
    @discardableResult
    func end(
        _ id: MessageID, in queue: UpstreamQueue, as state: MessageState, error: AttemptError?, at moment: Timestamp
    ) throws -> Bool {
        let number = queue.number.rawValue
        guard
            let row = try Row.fetchOne(
                db, sql: "SELECT lane, length(payload) AS bytes FROM queue_\(number) WHERE id = ?",
                arguments: [id.rawValue])
        else { return false }
        let lane = try laneText(of: row["lane"], in: queue)
        // A refusal of the message itself is an attempt that counts.
        let attempt = state == .failed ? 1 : 0
        try db.execute(
            sql: """
                INSERT INTO ended_\(number) (id, state, kind, lane, laneGroup, acceptedAtMs, settledAtMs, expiresAtMs,
                  attempts, key, lastError, progress, payload)
                SELECT id, ?, kind, ?, ?, acceptedAtMs, ?, expiresAtMs, attempts + ?, key, coalesce(?, lastError),
                  progress, payload FROM queue_\(number) WHERE id = ?
                """,
            arguments: [
                state.rawValue, lane.text, lane.group, moment.milliseconds, attempt,
                error.map { RecordText.encode(ErrorRecord($0)) }, id.rawValue,
            ])
        guard try remove(id, bytes: row["bytes"], from: queue) else { return false }
        ledger(queue.number) { $0.add(1, to: state) }
        note(SettledNotice(id: id, state: state, error: error, result: nil))
        return true
    }

    private func wait(_ waiting: Settlement.Waiting, of queue: UpstreamQueue) throws {
        let statement = try statements.wait(in: queue.number, db: db)
        let error = waiting.error.map { RecordText.encode(ErrorRecord($0)) }
        for message in waiting.messages {
            statement.bind(waiting.nextAttemptAt == nil ? QueueColumn.ready : QueueColumn.retrying, at: 1)
            statement.bind(waiting.nextAttemptAt?.milliseconds, at: 2)
            statement.bind(waiting.counts ? 1 : 0, at: 3)
            statement.bind(error, at: 4)
            statement.bind(message.id.rawValue, at: 5)
            try statement.run(in: db)
        }
    }

    /// Applies changes of an upstream's state.
    func apply(_ changes: [StateChange], of number: UpstreamNumber) throws {
        for change in changes {
            switch change {
            case .set(let key, let value):
                try db.execute(
                    sql: "INSERT OR REPLACE INTO state (upstream, key, value) VALUES (?, ?, ?)",
                    arguments: [number.rawValue, key, value.data])
            case .remove(let key):
                try db.execute(
                    sql: "DELETE FROM state WHERE upstream = ? AND key = ?", arguments: [number.rawValue, key])
            case .release(let group):
                try release(group: group, of: number)
            }
        }
    }
}

// MARK: - Steering

extension Transaction {
    /// Takes a queued message back. False when it is settled already or is being sent.
    func cancel(_ id: MessageID, in queue: UpstreamQueue, at moment: Timestamp) throws -> Bool {
        guard tryRemoving(id, from: queue) else { return false }
        return try end(id, in: queue, as: .cancelled, error: nil, at: moment)
    }

    /// Queues an ended message again, under its old id and so at its old place. Nil when there is no such message, or
    /// its payload is gone.
    func requeue(_ id: MessageID, in queue: UpstreamQueue, at moment: Timestamp) throws -> Bool {
        let number = queue.number.rawValue
        guard
            let row = try Row.fetchOne(
                db,
                sql: """
                    SELECT state, lane, laneGroup, length(payload) AS bytes FROM ended_\(number)
                    WHERE id = ? AND payload IS NOT NULL
                    """, arguments: [id.rawValue]),
            let state = MessageState(rawValue: row["state"]), state == .failed || state == .dropped
        else { return false }
        let lane = try laneNumber(ofText: row["lane"], group: row["laneGroup"], of: queue.number, readyAt: moment)
        try db.execute(
            sql: """
                INSERT INTO queue_\(number) (id, kind, lane, acceptedAtMs, expiresAtMs, attempts, key, lastError,
                  progress, payload)
                SELECT id, kind, ?, acceptedAtMs, NULL, 0, key, lastError, progress, payload
                FROM ended_\(number) WHERE id = ?
                """, arguments: [lane, id.rawValue])
        try db.execute(sql: "DELETE FROM ended_\(number) WHERE id = ?", arguments: [id.rawValue])
        ledger(queue.number) { ledger in
            ledger.add(-1, to: state)
            ledger.queued += 1
            ledger.queuedBytes += row["bytes"] as Int
        }
        return true
    }
}
