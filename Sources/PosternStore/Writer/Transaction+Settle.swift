import PosternCore
import PosternEvents
import PosternUpstream

extension Transaction {
    /// Records that a request is about to be sent, so that the next start finds it if the process dies before the
    /// response.
    func openAttempt(
        _ batch: BatchID, carrying ids: [MessageID], step: String?, progress: [UInt8]?, at startedAt: Timestamp,
        of queue: QueueTarget
    ) throws {
        if let progress, let id = ids.first { try begin(progress, of: id, in: queue) }
        try sql.send(
            """
            INSERT INTO attempts (batch, upstream, startedAtMs, firstId, lastId, ids, step)
            VALUES (?, ?, ?, ?, ?, ?, ?)
            """,
            batch, queue.number, startedAt, ids.first, ids.last, MessageIDList.encode(ids), step)
    }

    /// Keeps what names the step of a request. No request of a new step may have arrived yet.
    private func begin(_ progress: [UInt8], of id: MessageID, in queue: QueueTarget) throws {
        try giveRow(to: id)
        let isNew = try sql.run(
            """
            UPDATE queue_# SET progress = ?1, tried = tried - (tried & ?3)
            WHERE id = ?2 AND progress IS DISTINCT FROM ?1
            """, of: queue.number, progress, id, MessageFlags.mayHaveArrived)
        if isNew > 0 { try endSchedule(of: id, in: queue) }
    }

    /// A message that has begun is not scheduled any more. Otherwise one that was accepted before it, and becomes due
    /// now, would be sent between its requests.
    private func endSchedule(of id: MessageID, in queue: QueueTarget) throws {
        try sql.run(
            "UPDATE queue_# SET waiting = 0, nextAttemptAtMs = NULL WHERE id = ? AND waiting = ?", of: queue.number, id,
            QueueColumn.scheduled)
    }

    /// Applies the result of an attempt, and the state changes that `changes` computes. Returns those.
    @discardableResult
    func settle(
        _ settlement: Settlement, of queue: QueueTarget,
        changes: StateChanges? = nil
    ) throws -> [StateChange] {
        try closeAttempt(settlement)
        try deliver(settlement.delivered, of: queue, result: settlement.result, at: settlement.endedAt)
        for ended in settlement.ended {
            try end(
                ended.message.id, in: queue, as: ended.state, error: ended.error, at: settlement.endedAt,
                result: ended.result, mayHaveArrived: ended.mayHaveArrived, attempts: ended.attempts)
        }
        try markPossiblyArrived(settlement.possiblyArrived, in: queue)
        if let waiting = settlement.waiting { try wait(waiting, of: queue) }
        for (message, progress) in settlement.progressed { try keep(progress, of: message, in: queue) }
        // The state of its credential first: lanes for which there is a valid one are not parked.
        let changes = try changes.map { try state(of: queue).decide($0) } ?? []
        try apply(changes, of: queue)
        if let parked = settlement.parked.first { try park(parked.lane, of: queue) }
        if settlement.isAmbiguous { writeStates[queue.number].change.ambiguousSends += 1 }
        if let circuit = settlement.circuit { try save(circuit, of: queue.number) }
        return changes
    }

    func save(_ circuit: CircuitRecord, of number: UpstreamNumber) throws {
        try sql.run("UPDATE upstreams SET circuit = ? WHERE number = ?", JSONRecord.encode(circuit), number)
    }

    private func closeAttempt(_ settlement: Settlement) throws {
        let update: Statement =
            "UPDATE attempts SET endedAtMs = ?, outcome = ?, status = ?, detail = ? WHERE batch = ?"
        // A sequence numbers batches there, so nothing has to be kept of one that was settled without a request.
        guard !sql.isPostgres else {
            return try sql.send(
                update, settlement.endedAt, settlement.outcome.rawValue, settlement.status, settlement.detail,
                settlement.batch)
        }
        let closed = try sql.run(
            update, settlement.endedAt, settlement.outcome.rawValue, settlement.status, settlement.detail,
            settlement.batch)
        // It was settled without a request.
        if closed == 0 { try writer.keepBatch(in: sql) }
    }

    // MARK: Delivered

    private func deliver(
        _ messages: [Message], of queue: QueueTarget, result: [UInt8]?, at moment: Timestamp
    ) throws {
        if let postgres = sql.postgres {
            return try deliverRows(messages, of: queue, result: result, at: moment, with: postgres)
        }
        var rest = try deliverBlocks(messages, of: queue, result: result, at: moment)[...]
        while !rest.isEmpty {
            let run = rest.prefix(rest.adjacentCount)
            if try !deliverRun(run, of: queue, result: result, at: moment) {
                for message in run { try deliver(message, of: queue, result: result, at: moment) }
            }
            rest.removeFirst(run.count)
        }
    }

    /// Most batches are adjacent in the queue, and can be moved with two statements instead of two per message.
    ///
    /// No other code removes messages that are being sent. If there are as many rows from the first to the last as
    /// there are messages, they are exactly these. Where lanes have rows of their own a batch is of one lane.
    private func deliverRun(
        _ messages: ArraySlice<Message>, of queue: QueueTarget, result: [UInt8]?, at moment: Timestamp
    ) throws -> Bool {
        guard messages.count > 4, let start = messages.first, let first = messages.first?.id,
            let last = messages.last?.id,
            try sql.value(
                "SELECT count(*) FROM queue_# WHERE id BETWEEN ? AND ?", of: queue.number, first, last, as: Int.self)
                == messages.count
        else { return false }
        try touchLane(of: start, in: queue)
        if outbox.keepsPayloads { try keepPayloads(from: first, through: last, at: moment) }
        if outbox.keepsDelivered {
            try sql.send(
                """
                INSERT INTO delivered_# (id, kind, acceptedAtMs, settledAtMs, attempts, key, result, tried)
                SELECT id, kind, acceptedAtMs, ?, attempts + 1, key, ?, tried & ? FROM queue_# WHERE id BETWEEN ? AND ?
                """, of: queue.number, moment, result, MessageFlags.isFromSDK, first, last)
        }
        let removed = try sql.run("DELETE FROM queue_# WHERE id BETWEEN ? AND ?", of: queue.number, first, last)
        guard removed == messages.count else {
            throw StoreError.failed(detail: "removed \(removed) messages instead of \(messages.count)")
        }
        let writeState = writeStates[queue.number]
        countLane(start.lane, -messages.count, of: queue)
        writeState.change.counts.queued -= messages.count
        writeState.change.queuedBytes -= messages.reduce(0) { $0 + $1.payload.count }
        book(messages, of: queue, result: result, at: moment)
        return true
    }

    private func deliver(_ message: Message, of queue: QueueTarget, result: [UInt8]?, at moment: Timestamp) throws {
        try touchLane(of: message, in: queue)
        guard try remove(message.id, bytes: message.payload.count, in: message.lane, from: queue) else { return }
        let writeState = writeStates[queue.number]
        if outbox.keepsPayloads { try keepPayload(of: message, at: moment) }
        if outbox.keepsDelivered {
            try sql.send(
                """
                INSERT INTO delivered_# (id, kind, acceptedAtMs, settledAtMs, attempts, key, result, tried)
                VALUES (?, ?, ?, ?, ?, ?, ?, ?)
                """,
                of: queue.number, message.id, writeState.kindNumber(of: message.kind, in: outbox.kinds),
                message.acceptedAt, moment, message.attempts + 1, message.key, result,
                message.isFromSDK ? .isFromSDK : [] as MessageFlags)
        }
        book([message], of: queue, result: result, at: moment)
    }

    func book(_ messages: ArraySlice<Message>, of queue: QueueTarget, result: [UInt8]?, at moment: Timestamp) {
        let writeState = writeStates[queue.number]
        writeState.change.counts.delivered += messages.count
        if !outbox.keepsDelivered { writeState.change.purged.delivered += messages.count }
        // By index: to copy each message would take longer.
        for index in messages.indices {
            recordEnd(
                .delivered, of: messages[index].id, messages[index].kind, in: writeState, error: nil, result: result)
        }
        guard !callbacks.isEmpty else { return }
        for message in messages { report(message, of: queue, result: result, at: moment) }
    }

    /// Deletes a queue row. Returns false if it was deleted already.
    private func remove(_ id: MessageID, bytes: Int, in lane: Lane, from queue: QueueTarget) throws -> Bool {
        guard try sql.run("DELETE FROM queue_# WHERE id = ?", of: queue.number, id) == 1 else { return false }
        let writeState = writeStates[queue.number]
        countLane(lane, -1, of: queue)
        writeState.change.counts.queued -= 1
        writeState.change.queuedBytes -= bytes
        return true
    }

    // MARK: Ended

    /// Moves a queued message, including its payload, to the ended ones. Returns false if it is not queued.
    @discardableResult
    func end(
        _ id: MessageID, in queue: QueueTarget, as state: MessageState, error: AttemptError?, at moment: Timestamp,
        result: [UInt8]? = nil, mayHaveArrived: Bool = false, attempts: Int = 0
    ) throws -> Bool {
        growth = nil
        try giveRow(to: id)
        let found = try sql.first(
            "SELECT lane, length(payload), kind FROM queue_# WHERE id = ?", of: queue.number, id
        ) {
            (lane: $0[0] as Int64, bytes: $0[1] as Int, kind: $0[2] as Int)
        }
        guard let found else { return false }
        // A claim returns damaged messages together with expired ones, because neither is sent.
        if state == .expired, try isDamaged(id, in: queue) {
            return try end(
                id, in: queue, as: .failed,
                error: AttemptError(
                    .damaged, detail: "the stored payload is not what was accepted: its checksum differs", at: moment),
                at: moment, result: result, mayHaveArrived: mayHaveArrived)
        }
        let report = try report(
            of: id, in: queue, as: state, error: error, at: moment, result: result, attempts: attempts)
        let lane = try lane(found.lane, of: id)
        try sql.send(
            """
            INSERT INTO ended_# (id, state, kind, lane, laneGroup, acceptedAtMs, settledAtMs, expiresAtMs, attempts,
              key, lastError, progress, tried, traceParent, result, checksum, payload)
            SELECT id, ?, kind, ?, ?, acceptedAtMs, ?, expiresAtMs, attempts + ?, key, coalesce(?, lastError),
              progress, tried | ?, traceParent, ?, checksum, payload FROM queue_# WHERE id = ?
            """,
            of: queue.number, state, lane.stored, lane.group, moment, attempts,
            error.map(JSONRecord.encode), Self.flags(mayHaveArrived), result, id)
        if lane.isNamed { touch(found.lane, of: queue, isServed: state == .failed) }
        // A lane that was not admitted yet is not closed.
        if sql.admitsLate, let group = lane.group {
            touchedOwners.insert(CredentialOwner(upstream: queue.number, name: group))
        }
        guard try remove(id, bytes: found.bytes, in: lane, from: queue) else { return false }
        let writeState = writeStates[queue.number]
        writeState.change.counts[state] += 1
        recordEnd(state, of: id, outbox.kinds.kind(found.kind), in: writeState, error: error, result: result)
        if let report { reports.append(report) }
        return true
    }

    private func isDamaged(_ id: MessageID, in queue: QueueTarget) throws -> Bool {
        let isWhole = try sql.first("SELECT checksum, payload FROM queue_# WHERE id = ?", of: queue.number, id) {
            $0.isWhole(payload: 1, checksum: 0)
        }
        return isWhole == false
    }

    // MARK: Waiting

    private func wait(_ waiting: Settlement.Waiting, of queue: QueueTarget) throws {
        let error = waiting.error.map(JSONRecord.encode)
        for message in waiting.messages {
            try giveRow(to: message.id)
            emit(.messageRetrying, of: message.id, message.kind)
        }
        try sql.sendEach(
            Statement(
                sqlite: """
                    UPDATE queue_# SET waiting = ?, nextAttemptAtMs = ?, attempts = attempts + ?,
                      lastError = coalesce(?, lastError), tried = tried | ? WHERE id = ?
                    """,
                postgres: """
                    UPDATE queue_# SET waiting = ?, nextAttemptAtMs = ?, attempts = attempts + ?,
                      lastError = coalesce(?, lastError), tried = tried | ? WHERE id = ANY (?)
                    """),
            of: queue.number, QueueColumn.retrying, waiting.nextAttemptAt, waiting.counts ? 1 : 0, error,
            Self.flags(waiting.mayHaveArrived), for: waiting.messages.lazy.map(\.id))
        for message in waiting.messages { try touchLane(of: message, in: queue) }
        if let first = waiting.messages.first { try failLane(of: first, in: queue) }
    }

    private func markPossiblyArrived(_ ids: [MessageID], in queue: QueueTarget) throws {
        for id in ids { try giveRow(to: id) }
        try sql.sendEach(
            Statement(
                sqlite: "UPDATE queue_# SET tried = tried | ? WHERE id = ?",
                postgres: "UPDATE queue_# SET tried = tried | ? WHERE id = ANY (?)"), of: queue.number,
            MessageFlags.mayHaveArrived, for: ids)
    }

    private static func flags(_ mayHaveArrived: Bool) -> MessageFlags { mayHaveArrived ? .mayHaveArrived : [] }

    private func keep(_ progress: [UInt8], of message: Message, in queue: QueueTarget) throws {
        try giveRow(to: message.id)
        try sql.run("UPDATE queue_# SET progress = ? WHERE id = ?", of: queue.number, progress, message.id)
        try endSchedule(of: message.id, in: queue)
        try touchLane(of: message, in: queue)
    }

    // MARK: State

    /// Applies changes of an upstream's state.
    func apply(_ changes: [StateChange], of queue: QueueTarget) throws {
        for change in changes {
            switch change {
            case .set(let key, let value, let expiry):
                try sql.run(
                    """
                    INSERT INTO state (upstream, key, value, expiresAtMs, lane) VALUES (?, ?, ?, ?, ?)
                    ON CONFLICT (upstream, key) DO UPDATE SET value = excluded.value,
                      expiresAtMs = excluded.expiresAtMs, lane = excluded.lane
                    """, queue.number, key, value, expiry?.at, expiry?.lane)
            case .remove(let key):
                try sql.run("DELETE FROM state WHERE upstream = ? AND key = ?", queue.number, key)
            case .cache(let key, let value, let until):
                // What is left of the disk is for messages.
                guard !outbox.isFull else { continue }
                try apply([.set(key: key, value: value, expiry: StateChange.Expiry(at: until))], of: queue)
            case .removeAll(let key):
                try sql.run(
                    "DELETE FROM state WHERE upstream = ? AND key > ? AND key < ?", queue.number, key + "/", key + "0")
            case .release(let group):
                try release(group: group, of: queue)
            case .wake(let lane): try wake(lane, of: queue)
            case .draft(let draft): writeStates[queue.number].draft = draft
            // The transaction that stores messages has left the message out.
            case .repeats: break
            case .hold(let credential): try hold(credential, of: queue)
            case .drop(let owner): try drop(credentialOf: owner, of: queue)
            case .refuse(let owner, let version): try refuse(credentialOf: owner, version: version, of: queue)
            }
        }
    }

    /// Changes the state of an upstream independently of messages, for example for a credential that a caller hands in.
    func change(_ changes: [StateChange], of queue: QueueTarget) throws {
        try borrow(queue.number)
        try apply(changes, of: queue)
    }
}

extension ArraySlice<Message> {
    /// How many of the first may be adjacent in the queue: the number of messages between two of them, of all upstreams, is
    /// small, so that counting the rows of the queue from the first to the last costs little.
    fileprivate var adjacentCount: Int {
        var end = startIndex + 1
        while end < endIndex, self[end].id.rawValue - self[end - 1].id.rawValue <= 64 << 8 { end += 1 }
        return end - startIndex
    }
}

// MARK: - Steering

extension Transaction {
    /// Cancels a queued message. Returns false if it is settled already or is being sent.
    func cancel(_ id: MessageID, in queue: QueueTarget, at moment: Timestamp) throws -> Bool {
        guard try tryRemoving(id, from: queue) else { return false }
        return try end(id, in: queue, as: .cancelled, error: nil, at: moment)
    }

    /// Deletes a settled message. Returns false if it is not settled, or in another state than `wanted`.
    func purge(_ id: MessageID, in wanted: MessageState?) throws -> Bool {
        var state: MessageState?
        if wanted != .delivered {
            state = try sql.first(
                "DELETE FROM ended_# WHERE id = ? AND state = coalesce(?, state) RETURNING state", of: id.upstream, id,
                wanted
            ) { $0[0] }
        }
        if state == nil, wanted == nil || wanted == .delivered {
            try giveReceiptRow(to: id)
            if try sql.run("DELETE FROM delivered_# WHERE id = ?", of: id.upstream, id) > 0 {
                state = .delivered
                try dropPayload(of: id)
            }
        }
        guard let state else { return false }
        writeStates[id.upstream].change.purge(1, of: state)
        return true
    }

    /// Queues an ended message again, under its old id and therefore at its old position. Returns false if there is no
    /// such message, or its payload has been deleted.
    func requeue(_ id: MessageID, in queue: QueueTarget, at moment: Timestamp) throws -> Bool {
        try borrow(queue.number)
        let found = try sql.first(
            """
            SELECT state, lane, laneGroup, length(payload), kind FROM ended_#
            WHERE id = ? AND payload IS NOT NULL AND state IN (?, ?)
            """, of: queue.number, id, MessageState.failed, MessageState.dropped
        ) { row in
            (
                state: row[0] as MessageState, lane: Lane(stored: row[1], group: row[2]), bytes: row[3] as Int,
                kind: row[4] as Int
            )
        }
        guard let found else { return false }
        var lane = found.lane.number
        var waitsForOther = false
        if case .named(let name, let group) = found.lane {
            lane =
                try sql.admitsLate
                ? Lane.number(of: name, in: queue.number)
                : openLane(name, group: group, of: queue, readyAt: moment).number
            touch(lane, of: queue, isServed: false)
            let rows = QueueRows(sql: sql, kinds: outbox.kinds, number: queue.number)
            // Like one that becomes due now, it is not sent between the requests of another.
            waitsForOther = try rows.begunMessage(inLane: lane) != nil
        }
        // Its age counts from now on, so it gets its own expiry.
        let age = queue.collecting.expireAfter
        let expiresAt: Timestamp? = age > .zero ? moment + age : nil
        try sql.run(
            """
            INSERT INTO queue_# (id, kind, lane, acceptedAtMs, expiresAtMs, attempts, key, lastError, progress, tried,
              traceParent, turn, checksum, payload, waiting, nextAttemptAtMs)
            SELECT id, kind, ?, acceptedAtMs, ?, 0, key, lastError, progress, tried | ?, traceParent, ?, checksum,
              payload, ?, ?
            FROM ended_#
            WHERE id = ?
            """, of: queue.number, lane, expiresAt,
            MessageFlags.requeued(from: found.state),
            queue.hasTurns && found.lane.number != 0 ? turn(ofLane: lane, in: queue, or: 0) : 0,
            waitsForOther ? QueueColumn.scheduled : 0, waitsForOther ? moment : nil, id)
        if sql.admitsLate { try nameLane(found.lane, of: id) }
        try sql.run("DELETE FROM ended_# WHERE id = ?", of: queue.number, id)
        let writeState = writeStates[queue.number]
        countLane(found.lane, 1, of: queue)
        writeState.change.counts[found.state] -= 1
        writeState.change.counts.queued += 1
        writeState.change.queuedBytes += found.bytes
        emit(.messageQueued, of: id, outbox.kinds.kind(found.kind), isAgain: true)
        return true
    }
}
