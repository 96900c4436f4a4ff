public import PosternCore
import PosternUpstream

// MARK: - Keeping payloads

extension Transaction {
    /// Keeps the payloads of a run of rows that is delivered. Those of events about other messages are not: to replay them
    /// would report events.
    func keepPayloads(from first: MessageID, through last: MessageID, at moment: Timestamp) throws {
        try sql.run(
            """
            INSERT INTO payloads_# (first, last, acceptedAtMs, settledAtMs, checksum, payloads)
            SELECT id, id, acceptedAtMs, ?, checksum, payload FROM queue_# WHERE id BETWEEN ? AND ? AND (tried & ?) = 0
            """, of: first.upstream, moment, first, last, MessageFlags.isCallback)
    }

    func keepPayloads(of block: BlockRange, at moment: Timestamp) throws {
        try sql.run(
            """
            INSERT INTO payloads_# (first, last, acceptedAtMs, settledAtMs, heads, payloads)
            SELECT first, last, acceptedAtMs, ?, heads, payloads FROM blocks_# WHERE first = ?
            """, of: block.first.upstream, moment, block.first)
    }

    func keepPayload(of message: Message, at moment: Timestamp) throws {
        guard !message.isCallback else { return }
        try message.payload.withUnsafeBytes { bytes in
            try keep(
                KeptPayload(
                    id: message.id, acceptedAt: message.acceptedAt, checksum: Checksum.of(bytes), bytes: bytes),
                at: moment)
        }
    }

    private func keep(_ payload: KeptPayload, at moment: Timestamp) throws {
        try sql.run(
            """
            INSERT INTO payloads_# (first, last, acceptedAtMs, settledAtMs, checksum, payloads) VALUES (?, ?, ?, ?, ?, ?)
            """, of: payload.id.upstream, payload.id, payload.id, payload.acceptedAt, moment, payload.checksum,
            BorrowedBytes(payload.bytes))
    }

    /// Removes the payload of a delivered message. The others of its block get rows of their own.
    func dropPayload(of id: MessageID) throws {
        let found = try sql.first(
            "SELECT first, last, settledAtMs FROM payloads_# WHERE first <= ? ORDER BY first DESC LIMIT 1",
            of: id.upstream, id
        ) { (first: $0[0] as MessageID, last: $0[1] as MessageID, settledAt: $0[2] as Timestamp) }
        guard let found, found.last >= id else { return }
        var others: [(id: MessageID, acceptedAt: Timestamp, checksum: Int64, bytes: [UInt8])] = []
        try sql.walkPayloads(of: id.upstream, IDRange(first: found.first.rawValue, last: found.last.rawValue)) { kept in
            if kept.id != id { others.append((kept.id, kept.acceptedAt, kept.checksum, Array(kept.bytes))) }
            return true
        }
        try sql.run("DELETE FROM payloads_# WHERE first = ?", of: id.upstream, found.first)
        for (id, acceptedAt, checksum, bytes) in others {
            try bytes.withUnsafeBytes { bytes in
                try keep(
                    KeptPayload(id: id, acceptedAt: acceptedAt, checksum: checksum, bytes: bytes), at: found.settledAt)
            }
        }
    }
}

// MARK: - Replaying

extension Transaction {
    /// Stores a new replay. If its id is known, that one is returned, and nothing is changed.
    func begin(_ replay: Replay) throws -> Replay {
        if let (_, known) = try sql.replay(replay.id) { return known }
        outbox.mayReplay()
        try sql.run("INSERT INTO replays (id, record) VALUES (?, ?)", replay.id, JSONRecord.encode(replay))
        return replay
    }

    /// Stores the messages of a step together with where the replay is then, so that each is stored once. Returns nil
    /// if the queue or the disk has no room, or there is no such replay.
    func advance(_ id: String, _ step: Replay.Step, into queue: QueueTarget) throws -> Replay.Progress? {
        guard let (number, found) = try sql.replay(id) else { return nil }
        guard found.isRunning, found.cursor == step.from else {
            return Replay.Progress(replay: found, kinds: [])
        }
        var (step, replay) = (step, found)
        guard !outbox.isFull, hasRoom(for: step, in: queue) else { return nil }
        // What was erased since it was read is not stored again.
        let read = step.messages.count
        step.messages = try step.messages.filter { try sql.keepsPayload(of: $0.original) }
        step.withoutPayload += read - step.messages.count
        operatorKey = replay.by
        defer { operatorKey = nil }
        var ids: [MessageID] = []
        while !step.messages.isEmpty, ids.isEmpty {
            switch try append(step.messages.map(\.message)) {
            case .success(let receipt):
                ids = receipt.ids.enumerated().filter { !receipt.repeated.contains($0.offset) }.map(\.element)
                for index in receipt.repeated.sorted(by: >) {
                    let detail = "repeats \(receipt.ids[index]), which was accepted before"
                    step.refused.append(Replay.Skipped(step.messages.remove(at: index).original, detail))
                }
            case .failure(.refused(let refused)):
                for (index, refusal) in refused.map({ ($0.index, $0.refusal) }).reversed() {
                    step.refused.append(Replay.Skipped(step.messages.remove(at: index).original, refusal.detail))
                }
            case .failure: return nil
            }
        }
        for (copy, message) in zip(ids, step.messages) {
            try sql.run(
                "INSERT INTO replayed (id, replay, original) VALUES (?, ?, ?)", copy, number, message.original)
        }
        replay.advance(by: step, at: outbox.time.now)
        try save(replay, number)
        return Replay.Progress(replay: replay, kinds: step.messages.map(\.message.kind))
    }

    /// Ends a replay that goes on. Returns it as it is stored; nil if there is none.
    func stopReplay(_ id: String) throws -> Replay? {
        guard let (number, found) = try sql.replay(id) else { return nil }
        guard found.isRunning else { return found }
        var replay = found
        replay.stop(at: outbox.time.now)
        try save(replay, number)
        return replay
    }

    func eraseReplays(ofKey key: String) throws {
        for (number, record) in try sql.all(
            "SELECT number, record FROM replays", read: { ($0[0] as Int64, $0[1] as String) })
        {
            guard var replay = JSONRecord.decode(record, as: Replay.self), replay.request.key == key else { continue }
            replay.forgetKey(at: outbox.time.now)
            try save(replay, number)
        }
    }

    private func save(_ replay: Replay, _ number: Int64) throws {
        try sql.run(
            "UPDATE replays SET record = ?, finishedAtMs = ? WHERE number = ?", JSONRecord.encode(replay),
            replay.finishedAtMs, number)
    }

    /// Whether the messages leave the queue and the outbox a tenth of their limits for callers. Nothing is evicted for them.
    private func hasRoom(for step: Replay.Step, in queue: QueueTarget) -> Bool {
        let bytes = step.messages.reduce(0) { $0 + $1.message.range.count }
        let all = writeStates.open.reduce(bytes) { $0 + $1.ledger.queuedBytes }
        let most = all == bytes ? outbox.maxBytes : outbox.maxBytes - outbox.maxBytes / 10
        return (outbox.maxBytes == 0 || all <= most)
            && queue.hasRoomForReplay(
                of: step.messages.count, bytes: bytes, besides: writeStates[queue.number].ledger)
    }
}

extension QueueTarget {
    /// Whether a replay may add messages to the queue: a tenth of its limits is left for callers, unless it is empty.
    public func hasRoomForReplay(of messages: Int, bytes: Int, besides ledger: Ledger) -> Bool {
        var cap = cap
        if ledger.queued > 0 {
            cap.maxMessages -= cap.maxMessages / 10
            cap.maxBytes -= cap.maxBytes / 10
        }
        return cap.admits(messages: ledger.queued + messages, bytes: ledger.queuedBytes + bytes)
    }
}

extension SQL {
    fileprivate func keepsPayload(of id: MessageID) throws -> Bool {
        let last = try value(
            "SELECT last FROM payloads_# WHERE first <= ? ORDER BY first DESC LIMIT 1", of: id.upstream, id,
            as: MessageID.self)
        return last.map { id <= $0 } ?? false
    }

    fileprivate func replay(_ id: String) throws -> (number: Int64, replay: Replay)? {
        let found = try first("SELECT number, record FROM replays WHERE id = ?", id) {
            (number: $0[0] as Int64, record: $0[1] as String)
        }
        return found.flatMap { found in JSONRecord.decode(found.record, as: Replay.self).map { (found.number, $0) } }
    }
}

// MARK: - From outside

extension Outbox {
    /// Stores a new replay, which `advance` carries out. If its id is known, the completion gets that one. It runs on the
    /// writer's thread after the commit.
    public func begin(_ replay: Replay, completion: @escaping @Sendable (Result<Replay, StoreError>) -> Void) {
        writer.change({ try $0.begin(replay) }, completion: completion)
    }

    /// Carries out a step of a replay, all of it in one transaction. The completion runs on the writer's thread after the
    /// commit; nil if there was no room, or there is no such replay.
    public func advance(
        _ id: String, _ step: Replay.Step, into queue: QueueTarget,
        completion: @escaping @Sendable (Result<Replay.Progress?, StoreError>) -> Void
    ) {
        writer.change({ try $0.advance(id, step, into: queue) }, completion: completion)
    }

    /// Ends a replay that goes on. Nil: there is none with that id.
    public func stopReplay(_ id: String, completion: @escaping @Sendable (Result<Replay?, StoreError>) -> Void) {
        writer.change({ try $0.stopReplay(id) }, completion: completion)
    }

    /// Nil if there is no replay with that id. Blocks.
    public func replay(_ id: String) throws(StoreError) -> Replay? { try read { try $0.replay(id)?.replay } }

    /// The replays that go on, and the latest others, `most` in all, newest first. Blocks.
    public func replays(atMost most: Int) throws(StoreError) -> [Replay] {
        guard hasReplays else { return [] }
        return try read { sql in
            try sql.all(
                "SELECT record FROM replays ORDER BY finishedAtMs IS NOT NULL, number DESC LIMIT ?", most
            ) { JSONRecord.decode($0[0], as: Replay.self) }.compactMap(\.self)
        }
    }

    /// How many of the latest `most` messages of a replay to an upstream are queued. Blocks.
    public func queued(of id: String, to number: UpstreamNumber, atMost most: Int) throws(StoreError) -> Int {
        try read { sql in
            guard let (replay, _) = try sql.replay(id) else { return 0 }
            return try sql.value(
                """
                SELECT count(*) FROM (SELECT id FROM replayed WHERE replay = ? ORDER BY original DESC LIMIT ?) AS latest
                WHERE EXISTS (SELECT 1 FROM queue_# WHERE queue_#.id = latest.id)
                  OR (SELECT last FROM blocks_# WHERE first <= latest.id ORDER BY first DESC LIMIT 1) >= latest.id
                """, of: number, replay, most, as: Int.self) ?? 0
        }
    }

    /// Delivered messages that a replay is about, behind `cursor`. Blocks.
    public func page(
        of replay: Replay, after cursor: MessageID?, limit: Int, maxBytes: Int
    ) throws(StoreError) -> ReplayPage {
        try readMessages { reader in
            guard let number = names.first(where: { $0.value.description == replay.request.upstream })?.key else {
                return ReplayPage()
            }
            return try reader.replayPage(replay.filter, of: number, after: cursor, limit: limit, maxBytes: maxBytes)
        }
    }
}
