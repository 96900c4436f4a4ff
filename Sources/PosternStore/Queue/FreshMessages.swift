import CSQLite
import PosternCore

/// A message that waits for nothing, in a row of its own or in a block. For the duration of a call.
struct FreshMessage {
    let id: MessageID
    let lane: Int64
    let kind: Kind
    let payloadCount: Int
    fileprivate let source: Source

    var isInBlock: Bool { if case .block = source { true } else { false } }

    fileprivate enum Source {
        case row(RowPosition)
        /// Its head and its payload, as far as the block has it.
        case block(MessageHead, UnsafeRawBufferPointer)
    }
}

typealias MessageHead = postern_head

extension MessageHead {
    /// Visits the heads of a block until `body` returns false.
    @inline(__always)
    static func each(
        in heads: BorrowedBytes, of first: MessageID, acceptedAt: Timestamp, _ body: (MessageHead) throws -> Bool
    ) throws {
        var head = MessageHead()
        (head.id, head.acceptedAtMs) = (first.rawValue, acceptedAt.milliseconds)
        guard var at = heads.bytes.assumingMemoryBound(to: UInt8.self).baseAddress else { return }
        let end = at + heads.bytes.count
        while at < end {
            guard let next = postern_next_head(&head, at, end) else {
                throw SQLiteError(SQLITE_CORRUPT, "the heads of a block are damaged")
            }
            at = next
            guard try body(head) else { return }
        }
    }

    /// One that is not all there is damaged, which its checksum shows.
    func payload(in payloads: BorrowedBytes) -> BorrowedBytes {
        let start = min(Int(offset), payloads.bytes.count)
        let payload = payloads.bytes[start..<min(start + Int(size), payloads.bytes.count)]
        return BorrowedBytes(UnsafeRawBufferPointer(rebasing: payload))
    }

    var keyText: String? {
        key.map { start in
            UnsafeRawBufferPointer(start: start, count: Int(keySize)).withMemoryRebound(to: UInt8.self) {
                String(decoding: $0, as: UTF8.self)
            }
        }
    }
}

extension QueueRows {
    /// Visits the messages that wait for nothing, from `cursor` on in the order of their ids, until `body` returns false.
    /// Payloads are copied on demand.
    ///
    /// - Parameters:
    ///   - turn: Only its messages are visited; those of all turns if it is nil.
    ///   - expected: How many messages are visited, as far as that is known.
    ///   - begin: Called with the messages and bytes of a block that is visited from its first message on. The visit ends if
    ///     it returns false.
    func forEachFresh(
        after cursor: MessageID, inTurn turn: Int64? = nil, expecting expected: Int = 0, begin: (Int, Int) -> Bool,
        _ body: (FreshMessage) throws -> Bool
    ) throws {
        var position = cursor
        var goesOn = true
        var kind: (number: Int, kind: Kind)?
        func known(_ number: Int) -> Kind {
            if let kind, kind.number == number { return kind.kind }
            let found = kinds.kind(number)
            kind = (number, found)
            return found
        }
        func visitRow(_ row: borrowing SQLRow) throws -> Bool {
            goesOn = try body(
                FreshMessage(
                    id: row.id, lane: row.lane, kind: known(row[1]), payloadCount: row.payloadCount,
                    source: .row(row.position)))
            return goesOn
        }
        func visitRows(before end: MessageID) throws {
            if let turn {
                try sql.walk(
                    """
                    SELECT id, kind, lane, acceptedAtMs, waiting, nextAttemptAtMs, expiresAtMs, attempts, key, progress,
                      tried, checksum, payload, traceParent FROM queue_#
                    WHERE turn = ? AND id > ? AND id < ? AND waiting = 0 ORDER BY id
                    """, of: number, turn, position, end, expecting: expected, body: visitRow)
            } else {
                try sql.walk(
                    """
                    SELECT id, kind, lane, acceptedAtMs, waiting, nextAttemptAtMs, expiresAtMs, attempts, key, progress,
                      tried, checksum, payload, traceParent FROM queue_# WHERE id > ? AND id < ? AND waiting = 0 ORDER BY id
                    """, of: number, position, end, expecting: expected, body: visitRow)
            }
        }
        func visitBlock(_ row: borrowing SQLRow) throws -> Bool {
            let first: MessageID = row[0]
            if first > position {
                try visitRows(before: first)
                if goesOn { goesOn = begin(row[3], row[4]) }
            }
            if goesOn {
                try visit(row) { head, payload in
                    guard head.id > position.rawValue else { return true }
                    goesOn = try body(
                        FreshMessage(
                            id: MessageID(rawValue: head.id), lane: head.lane, kind: known(Int(head.kind)),
                            payloadCount: Int(head.size), source: .block(head, payload)))
                    return goesOn
                }
            }
            position = row[1]
            return goesOn
        }
        // No row has an id between those of a block.
        if sql.isPostgres {
            // Nothing is stored in blocks.
        } else if let turn {
            try sql.walk(
                """
                SELECT first, last, acceptedAtMs, count, bytes, heads, payloads FROM blocks_#
                WHERE turn = ?2 AND last > ?1 AND first >=
                  coalesce((SELECT max(first) FROM blocks_# WHERE turn = ?2 AND first <= ?1), ?1) ORDER BY first
                """, of: number, cursor, turn, body: visitBlock)
        } else {
            try sql.walk(
                """
                SELECT first, last, acceptedAtMs, count, bytes, heads, payloads FROM blocks_#
                WHERE first >= coalesce((SELECT max(first) FROM blocks_# WHERE first <= ?1), ?1) AND last > ?1 ORDER BY first
                """, of: number, cursor, body: visitBlock)
        }
        if goesOn { try visitRows(before: MessageID(rawValue: .max)) }
    }

    /// Visits the messages of a block until `body` returns false.
    private func visit(
        _ block: borrowing SQLRow, _ body: (MessageHead, UnsafeRawBufferPointer) throws -> Bool
    ) throws {
        let payloads: BorrowedBytes = block[6]
        try MessageHead.each(in: block[5], of: block[0], acceptedAt: block[2]) { head in
            try body(head, head.payload(in: payloads).bytes)
        }
    }

    func queueRow(_ message: FreshMessage) -> QueueRow {
        switch message.source {
        case .row(let position): queueRow(SQLRow(position), nil, message.kind)
        case .block(let head, let payload):
            QueueRow(
                message: Message(
                    id: message.id, kind: message.kind, lane: Lane(number: head.lane), key: head.keyText,
                    acceptedAt: Timestamp(milliseconds: head.acceptedAtMs), payload: [UInt8](payload),
                    isFromSDK: MessageFlags(rawValue: head.tried).contains(.isFromSDK)),
                expiresAt: nil, wasRequeued: false, isWhole: Checksum.of(payload) == head.checksum)
        }
    }

    /// The message as if it had a row; nil if no block has it.
    func rowInBlock(_ id: MessageID) throws -> QueueRow? {
        guard let block = try blocks.block(of: id, read: readBlock) else { return nil }
        return try block.heads.withUnsafeBytes { heads in
            try block.payloads.withUnsafeBytes { payloads in
                var found: QueueRow?
                try MessageHead.each(in: BorrowedBytes(heads), of: block.first, acceptedAt: block.acceptedAt) { head in
                    if head.id == id.rawValue {
                        let payload = head.payload(in: BorrowedBytes(payloads)).bytes
                        found = queueRow(
                            FreshMessage(
                                id: id, lane: head.lane, kind: kinds.kind(Int(head.kind)), payloadCount: payload.count,
                                source: .block(head, payload)))
                    }
                    return head.id < id.rawValue
                }
                return found
            }
        }
    }

    private func readBlock(of id: MessageID) throws -> ReadBlocks.Block? {
        try sql.first(
            """
            SELECT first, last, acceptedAtMs, heads, payloads FROM blocks_# WHERE first <= ? ORDER BY first DESC LIMIT 1
            """, of: number, id
        ) { ReadBlocks.Block(first: $0[0], last: $0[1], acceptedAt: $0[2], heads: $0[3], payloads: $0[4]) }
    }
}

/// The blocks of which single messages were read last. Those that waited for their lanes while the rest of their block was sent
/// are often read together.
final class ReadBlocks {
    struct Block {
        let first: MessageID
        let last: MessageID
        let acceptedAt: Timestamp
        let heads: [UInt8]
        let payloads: [UInt8]
    }

    private static let most = 4
    private var latest: [Block] = []

    func block(of id: MessageID, read: (MessageID) throws -> Block?) rethrows -> Block? {
        if let known = latest.last(where: { $0.first <= id && id <= $0.last }) { return known }
        guard let block = try read(id), id <= block.last else { return nil }
        if latest.count == Self.most { latest.removeFirst() }
        latest.append(block)
        return block
    }
}
