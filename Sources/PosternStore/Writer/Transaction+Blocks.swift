import CSQLite
import PosternCore
import PosternUpstream

// A block is one row of `blocks_#` with consecutive messages of one upstream, of one commit, of which nothing is known but
// what their caller gave. Either all of them are in the block, or it is gone: once they are delivered, it becomes one row of
// `receipts_#`; before anything else happens to one of them, all of them get rows of their own. If only some are delivered,
// because others wait for an earlier message of their lanes, those others get rows.

/// The messages of one upstream that a transaction has accepted and not written yet.
struct BlockDraft {
    /// Fewer messages get rows of their own.
    static let fewest = 4
    private static let maxBytes = 1 << 16
    /// Larger payloads get rows of their own: what is read and written together with a block stays small.
    static let maxPayload = 1 << 14

    private(set) var messages: [(id: MessageID, kind: Int64, message: NewMessage)] = []
    private(set) var bytes = 0
    private var room = BatchRoom(BatchLimits(maxMessages: 0, maxBytes: 0))
    /// The kind of all messages; nil if they may have several.
    private var kind: Int64?
    /// The turn of all messages.
    private(set) var turn: Int64 = 0

    /// Whether another message belongs in the block. Not more than one request carries, so that a claim takes it whole.
    func fits(_ bytes: Int, ofKind kind: Int64, inTurn turn: Int64) -> Bool {
        messages.isEmpty || room.fits(bytes) && (self.kind ?? kind) == kind && self.turn == turn
    }

    mutating func append(_ message: NewMessage, as id: MessageID, kind: Int64) {
        if messages.isEmpty {
            var limits = message.queue.limits
            turn = message.turn
            // A block is taken whole.
            if turn != 0 { limits.maxMessages = limits.turnShare }
            limits.maxMessages = min(limits.maxMessages, Int(POSTERN_BLOCK_MESSAGES))
            limits.maxBytes = min(limits.maxBytes, Self.maxBytes)
            room = BatchRoom(limits)
            self.kind = message.queue.sendsKindsApart ? kind : nil
        }
        room.take(message.range.count)
        bytes += message.range.count
        messages.append((id, kind, message))
    }

    mutating func removeAll() {
        guard !messages.isEmpty else { return }
        messages.removeAll(keepingCapacity: true)
        bytes = 0
    }
}

extension NewMessage {
    /// Whether nothing more is known of it than a block can hold.
    var isPlain: Bool {
        queue.mayUseBlocks && range.count <= BlockDraft.maxPayload && !lane.isNamed
            && notBefore.map { $0 <= acceptedAt } ?? true
            && expiresAt == nil && traceParent == nil && credential == nil && flags.isSubset(of: .isFromSDK)
            && key.map { $0.utf8.count < 256 } ?? true
    }
}

/// A row of `blocks_#`, without what it contains.
struct BlockRange {
    let first: MessageID
    let last: MessageID
    let count: Int

    init(_ row: borrowing SQLRow) { (first, last, count) = (row[0], row[1], row[2]) }
}

extension Transaction {
    // MARK: Writing

    /// Writes what was accepted so far. Call it before anything reads or changes queued messages.
    func closeBlocks() throws { for writeState in writeStates.open { try closeBlock(of: writeState) } }

    func closeBlock(of writeState: UpstreamWriteState) throws {
        try writeState.rows.write(to: writeState.number, with: sql)
        let count = writeState.block.messages.count
        guard count > 0 else { return }
        if count < BlockDraft.fewest {
            for index in 0..<count {
                let (id, kind, message) = writeState.block.messages[index]
                try insert(
                    message, as: id, kind: kind, lane: message.lane.number, turn: message.turn, scheduledAt: nil)
            }
        } else {
            try insert(writeState.block)
        }
        writeState.block.removeAll()
    }

    private func insert(_ block: BlockDraft) throws {
        let (first, last) = (block.messages[0], block.messages[block.messages.count - 1])
        growth?.messages += 1
        growth?.bytes += block.bytes + block.messages.count * Int(POSTERN_HEAD_BYTES)
        let headBytes = block.messages.count * Int(POSTERN_HEAD_BYTES)
        try withUnsafeTemporaryAllocation(byteCount: headBytes + block.bytes, alignment: 1) { buffer in
            guard let heads = buffer.baseAddress else { return }
            let payloads = heads + headBytes
            var (headEnd, payloadEnd) = (0, 0)
            var former = MessageHead()
            (former.id, former.acceptedAtMs) = (first.id.rawValue, first.message.acceptedAt.milliseconds)
            // By index: to copy each message would cost as much as the rest.
            for index in block.messages.indices {
                let range = block.messages[index].message.range
                var head = MessageHead()
                (head.id, head.kind) = (block.messages[index].id.rawValue, block.messages[index].kind)
                head.lane = block.messages[index].message.lane.number
                head.acceptedAtMs = block.messages[index].message.acceptedAt.milliseconds
                head.size = Int64(range.count)
                head.tried = block.messages[index].message.flags.rawValue
                block.messages[index].message.bytes.withUnsafeBytes { bytes in
                    let payload = UnsafeRawBufferPointer(rebasing: bytes[range])
                    head.checksum = Checksum.of(payload)
                    guard let start = payload.baseAddress else { return }
                    (payloads + payloadEnd).copyMemory(from: start, byteCount: payload.count)
                }
                payloadEnd += range.count
                let end = (heads + headEnd).assumingMemoryBound(to: UInt8.self)
                if var key = block.messages[index].message.key {
                    key.withUTF8 { text in
                        text.withMemoryRebound(to: CChar.self) { text in
                            (head.key, head.keySize) = (text.baseAddress, Int64(text.count))
                            headEnd += postern_put_head(end, &former, &head)
                        }
                    }
                } else {
                    headEnd += postern_put_head(end, &former, &head)
                }
                former = head
            }
            try sql.run(
                """
                INSERT INTO blocks_# (first, last, count, bytes, acceptedAtMs, turn, heads, payloads)
                VALUES (?, ?, ?, ?, ?, ?, ?, ?)
                """, of: first.id.upstream, first.id, last.id, block.messages.count, block.bytes,
                first.message.acceptedAt, block.turn,
                BorrowedBytes(UnsafeRawBufferPointer(start: heads, count: headEnd)),
                BorrowedBytes(UnsafeRawBufferPointer(start: payloads, count: payloadEnd)))
        }
    }

    // MARK: Rows instead of blocks

    /// Gives a queued message a row of its own, together with all of its block. Call it before anything happens to one
    /// message.
    func giveRow(to id: MessageID) throws {
        if let block = try block(of: id) { try giveRows(to: block) }
    }

    /// The block of a message; nil if it has a row of its own, or is not queued.
    func block(of id: MessageID) throws -> BlockRange? {
        guard !sql.isPostgres else { return nil }
        let block = try sql.first(
            "SELECT first, last, count FROM blocks_# WHERE first <= ? ORDER BY first DESC LIMIT 1", of: id.upstream, id,
            read: BlockRange.init)
        return block.flatMap { $0.last < id ? nil : $0 }
    }

    /// On a full disk, this takes pages of those that are reserved (`DiskReserve`), twice the 64 KiB of a block at most, because
    /// the rows are made before the block is deleted. That frees its pages, so what remains is what the rows do not fill of
    /// theirs. Claims are small then, so that few blocks are given rows before what fails is tried again, as rows.
    ///
    /// - Parameter withPayloads: If not, the payloads are empty: what makes room must not need any.
    func giveRows(to block: BlockRange, withPayloads: Bool = true) throws {
        let made = try sql.run(
            """
            INSERT INTO queue_# (id, kind, lane, acceptedAtMs, key, tried, turn, checksum, payload)
            SELECT id, kind, lane, acceptedAtMs, key, tried, (SELECT turn FROM blocks_# WHERE first = ?3), checksum,
              CASE WHEN ?1 THEN payload ELSE ?2 END
            FROM queued_# WHERE id BETWEEN ?3 AND ?4 ORDER BY id
            """, of: block.first.upstream, withPayloads, [] as [UInt8], block.first, block.last)
        guard made == block.count else {
            throw StoreError.failed(detail: "a block of \(block.count) messages has \(made)")
        }
        try sql.run("DELETE FROM blocks_# WHERE first = ?", of: block.first.upstream, block.first)
    }

    /// Gives a delivered message a row of its own, as above.
    func giveReceiptRow(to id: MessageID) throws {
        guard !sql.isPostgres else { return }
        let block = try sql.first(
            "SELECT first, last, count FROM receipts_# WHERE first <= ? ORDER BY first DESC LIMIT 1", of: id.upstream,
            id,
            read: BlockRange.init)
        guard let block, block.last >= id else { return }
        try sql.run(
            """
            INSERT INTO delivered_# (id, kind, acceptedAtMs, settledAtMs, attempts, key, result, tried)
            SELECT id, kind, acceptedAtMs, settledAtMs, attempts, key, result, tried FROM received_#
            WHERE id BETWEEN ?1 AND ?2 AND id NOT IN (SELECT id FROM delivered_# WHERE id BETWEEN ?1 AND ?2) ORDER BY id
            """, of: id.upstream, block.first, block.last)
        try sql.run("DELETE FROM receipts_# WHERE first = ?", of: id.upstream, block.first)
    }

    // MARK: Delivered

    /// Replaces the blocks of which all messages are delivered by their receipts. Returns the other messages: those have
    /// rows.
    func deliverBlocks(
        _ messages: [Message], of queue: QueueTarget, result: [UInt8]?, at moment: Timestamp
    ) throws -> [Message] {
        let isSorted = messages.indices.dropFirst().allSatisfy { messages[$0 - 1].id < messages[$0].id }
        let messages = isSorted ? messages : messages.sorted { $0.id < $1.id }
        guard let least = messages.first?.id, let greatest = messages.last?.id else { return [] }
        let blocks = try sql.all(
            """
            SELECT first, last, count FROM blocks_#
            WHERE first >= coalesce((SELECT max(first) FROM blocks_# WHERE first <= ?1), ?1) AND first <= ?2 AND last >= ?1
            ORDER BY first
            """, of: queue.number, least, greatest, read: BlockRange.init)
        guard !blocks.isEmpty else { return messages }
        var others: [Message] = []
        var rest = messages[...]
        for block in blocks {
            let start = rest.firstIndex { $0.id >= block.first } ?? rest.endIndex
            let end = rest[start...].firstIndex { $0.id > block.last } ?? rest.endIndex
            others += rest[..<start]
            if end - start == block.count {
                try deliver(block, rest[start..<end], of: queue, result: result, at: moment)
            } else if end - start >= BlockDraft.fewest {
                try deliver(rest[start..<end], outOf: block, of: queue, result: result, at: moment)
            } else if start < end {
                try giveRows(to: block)
                others += rest[start..<end]
            }
            rest = rest[end...]
        }
        return others + rest
    }

    private func deliver(
        _ block: BlockRange, _ messages: ArraySlice<Message>, of queue: QueueTarget, result: [UInt8]?,
        at moment: Timestamp
    ) throws {
        if outbox.keepsDelivered {
            try sql.run(
                """
                INSERT INTO receipts_# (first, last, count, acceptedAtMs, settledAtMs, result, heads)
                SELECT first, last, count, acceptedAtMs, ?, ?, heads FROM blocks_# WHERE first = ?
                """, of: queue.number, moment, result, block.first)
        }
        if outbox.keepsPayloads { try keepPayloads(of: block, at: moment) }
        try endBlock(block, messages, of: queue, result: result, at: moment)
    }

    /// Replaces a block by the receipt of some of its messages, and rows of the others.
    private func deliver(
        _ messages: ArraySlice<Message>, outOf block: BlockRange, of queue: QueueTarget, result: [UInt8]?,
        at moment: Timestamp
    ) throws {
        var delivered = messages
        let size = messages.count * Int(POSTERN_HEAD_BYTES)
        try withUnsafeTemporaryAllocation(byteCount: size, alignment: 1) { buffer in
            guard let heads = buffer.baseAddress, let first = messages.first?.id, let last = messages.last?.id else {
                return
            }
            var former = MessageHead()
            var (end, acceptedAt) = (0, Timestamp(milliseconds: 0))
            try sql.each(
                "SELECT heads, payloads, acceptedAtMs FROM blocks_# WHERE first = ?", of: queue.number, block.first
            ) {
                row in
                acceptedAt = row[2]
                (former.id, former.acceptedAtMs) = (first.rawValue, acceptedAt.milliseconds)
                let payloads: BorrowedBytes = row[1]
                try MessageHead.each(in: row[0], of: block.first, acceptedAt: acceptedAt) { head in
                    var head = head
                    if delivered.first?.id.rawValue == head.id {
                        delivered.removeFirst()
                        end += postern_put_head((heads + end).assumingMemoryBound(to: UInt8.self), &former, &head)
                        former = head
                    } else {
                        try insert(head, head.payload(in: payloads), of: block, into: queue)
                    }
                    return true
                }
            }
            guard delivered.isEmpty else {
                throw StoreError.failed(detail: "a block lacks \(delivered.count) messages")
            }
            guard outbox.keepsDelivered else { return }
            try sql.run(
                """
                INSERT INTO receipts_# (first, last, count, acceptedAtMs, settledAtMs, result, heads)
                VALUES (?, ?, ?, ?, ?, ?, ?)
                """, of: queue.number, first, last, messages.count, acceptedAt, moment, result,
                BorrowedBytes(UnsafeRawBufferPointer(start: heads, count: end)))
        }
        if outbox.keepsPayloads { for message in messages { try keepPayload(of: message, at: moment) } }
        try endBlock(block, messages, of: queue, result: result, at: moment)
    }

    private func insert(
        _ head: MessageHead, _ payload: BorrowedBytes, of block: BlockRange, into queue: QueueTarget
    ) throws {
        try sql.run(
            """
            INSERT INTO queue_# (id, kind, lane, acceptedAtMs, key, tried, turn, checksum, payload)
            VALUES (?, ?, ?, ?, ?, ?, (SELECT turn FROM blocks_# WHERE first = ?), ?, ?)
            """, of: queue.number, MessageID(rawValue: head.id), head.kind, head.lane, head.acceptedAtMs, head.keyText,
            head.tried, block.first, head.checksum, payload)
    }

    private func endBlock(
        _ block: BlockRange, _ messages: ArraySlice<Message>, of queue: QueueTarget, result: [UInt8]?,
        at moment: Timestamp
    ) throws {
        try sql.run("DELETE FROM blocks_# WHERE first = ?", of: queue.number, block.first)
        let writeState = writeStates[queue.number]
        writeState.change.counts.queued -= messages.count
        writeState.change.queuedBytes -= messages.reduce(0) { $0 + $1.payload.count }
        book(messages, of: queue, result: result, at: moment)
    }
}
