import CSQLite
public import PosternCore

/// The payload of a delivered message, as long as it is being visited.
struct KeptPayload {
    let id: MessageID
    let acceptedAt: Timestamp
    let checksum: Int64
    /// Empty if its block does not have all of it.
    let bytes: UnsafeRawBufferPointer

    var isWhole: Bool { BorrowedBytes(bytes).checksum == checksum }
}

extension SQL {
    /// Visits the payloads that are kept of delivered messages in the order of their ids, until `body` returns false.
    func walkPayloads(of number: UpstreamNumber, _ ids: IDRange, _ body: (KeptPayload) throws -> Bool) throws {
        try walk(
            """
            SELECT first, acceptedAtMs, checksum, heads, payloads FROM payloads_#
            WHERE first >= coalesce((SELECT max(first) FROM payloads_# WHERE first <= ?1), ?1) AND first <= ?2
            ORDER BY first
            """, of: number, ids.first, ids.last
        ) { row in
            let (first, heads, payloads): (MessageID, BorrowedBytes, BorrowedBytes) = (row[0], row[3], row[4])
            guard !heads.bytes.isEmpty else {
                guard first.rawValue >= ids.first else { return true }
                return try body(
                    KeptPayload(id: first, acceptedAt: row[1], checksum: row[2], bytes: payloads.bytes))
            }
            var goesOn = true
            try MessageHead.each(in: heads, of: first, acceptedAt: row[1]) { head in
                guard head.id >= ids.first else { return true }
                guard head.id <= ids.last else { return false }
                let (start, end) = (Int(head.offset), Int(head.offset + head.size))
                let bytes = end <= payloads.bytes.count ? payloads.bytes[start..<end] : payloads.bytes[..<0]
                goesOn = try body(
                    KeptPayload(
                        id: MessageID(rawValue: head.id), acceptedAt: Timestamp(milliseconds: head.acceptedAtMs),
                        checksum: head.checksum, bytes: UnsafeRawBufferPointer(rebasing: bytes)))
                return goesOn
            }
            return goesOn
        }
    }

    /// The message of which another one is a copy; nil if it is none.
    func original(of id: MessageID) throws -> MessageID? {
        try value("SELECT original FROM replayed WHERE id = ?", id, as: MessageID.self)
    }
}

/// Delivered messages in the order of their acceptance, for a replay.
public struct ReplayPage: Sendable {
    public enum Payload: Sendable {
        case kept([UInt8])
        /// It is no longer kept, or never was.
        case missing
        /// Its checksum differs.
        case damaged
    }
    public var messages: [(record: MessageRecord, payload: Payload)] = []
    /// The message behind which the next page begins; nil if there is none.
    public var next: MessageID?
}

extension StoreReader {
    /// The payload of a delivered message; nil if it is not kept.
    func keptPayload(of id: MessageID) throws -> [UInt8]? {
        var payload: [UInt8]?
        try sql.walkPayloads(of: id.upstream, IDRange(first: id.rawValue, last: id.rawValue)) { kept in
            payload = Array(kept.bytes)
            return false
        }
        return payload
    }

    /// Delivered messages with their payloads, in the order of their ids: at most `limit`, and not more than `maxBytes` of
    /// payload unless it is one message. Copies of messages of the same upstream are left out, whose originals say the same.
    func replayPage(
        _ filter: MessageFilter, of number: UpstreamNumber, after cursor: MessageID?, limit: Int, maxBytes: Int
    ) throws -> ReplayPage {
        let (found, next) = try messages(filter, after: cursor, limit: limit, payload: false)
        let records = found.filter { $0.replayOf?.upstream != number }
        var page = ReplayPage(next: next)
        guard let first = records.first?.id, let last = records.last?.id else { return page }
        var bytes = 0
        try sql.walkPayloads(of: number, IDRange(first: first.rawValue, last: last.rawValue)) { kept in
            while page.messages.count < records.count, records[page.messages.count].id < kept.id {
                page.messages.append((records[page.messages.count], .missing))
            }
            guard page.messages.count < records.count, records[page.messages.count].id == kept.id else { return true }
            guard bytes == 0 || bytes + kept.bytes.count <= maxBytes else {
                page.next = page.messages.last?.record.id
                return false
            }
            bytes += kept.bytes.count
            page.messages.append((records[page.messages.count], kept.isWhole ? .kept(Array(kept.bytes)) : .damaged))
            return true
        }
        if page.next == next {
            page.messages += records[page.messages.count...].map { ($0, ReplayPage.Payload.missing) }
        }
        return page
    }
}
