import PosternCore
import PosternMetrics

/// What a transaction of another node has added to a queue. Its row stays until the owner has counted it, and has told the
/// queue; it is the only thing besides rows of messages that such a node writes.
///
/// Commits of several nodes do not follow the order of their ids. So the owner learns of messages in two ways. Before a claim
/// looks at the rows of a mixed queue, it reads the arrivals in the same snapshot, and goes back to messages that it has
/// passed (`UnheardArrivals`). And several times a second, the writer counts them, opens their lanes and wakes the
/// worker, as if it had added them itself (`Transaction.hear`).
struct Arrival: Equatable {
    let upstream: UpstreamNumber
    var first: MessageID
    var last: MessageID
    var accepted: Int
    var acceptedBytes: Int
    /// The number of messages that can be sent at once, their bytes, and when something else is due.
    var ready: Int
    var readyBytes: Int
    var dueAt: Timestamp?

    /// What it changes in the figures of the upstream.
    var ledger: Ledger {
        Ledger(
            lastID: Int(last.rawValue), accepted: accepted, queuedBytes: acceptedBytes,
            counts: Ledger.Counts(queued: accepted))
    }

    /// What the queue has to know of it.
    var notice: AppendNotice {
        var notice = AppendNotice(first: first)
        (notice.newest, notice.messages, notice.bytes, notice.dueAt) = (last, ready, readyBytes, dueAt)
        return notice
    }

    init(of upstream: UpstreamNumber, _ notice: AppendNotice, _ ledger: Ledger) {
        self.upstream = upstream
        (first, last) = (notice.first, notice.newest)
        (accepted, acceptedBytes) = (ledger.accepted, ledger.queuedBytes)
        (ready, readyBytes, dueAt) = (notice.messages, notice.bytes, notice.dueAt)
    }

    /// - Parameter row: `columns`.
    init(_ row: borrowing SQLRow) {
        (upstream, first, last) = (row[0], row[1], row[2])
        (accepted, acceptedBytes, ready, readyBytes, dueAt) = (row[3], row[4], row[5], row[6], row[7])
    }
}

/// A transaction by its writer and its number there.
struct ArrivalNumber: Hashable {
    let writer: Int64
    let number: Int64
}

/// The arrivals of a queue that its claims know, although they were not told of them. As many as were added since the writer
/// has last looked.
struct UnheardArrivals {
    private var known: Set<ArrivalNumber> = []

    /// The first message of those that were added since the last call; nil if there are none. Rows of messages that are read
    /// on the same snapshot belong to no other.
    mutating func firstOfNew(in number: UpstreamNumber, with sql: SQL) throws -> MessageID? {
        guard sql.isPostgres else { return nil }
        var (found, first): (Set<ArrivalNumber>, MessageID?) = ([], nil)
        try sql.each("SELECT writer, n, firstId FROM arrivals WHERE upstream = ?", number) { row in
            let arrival = ArrivalNumber(writer: row[0], number: row[1])
            found.insert(arrival)
            if !known.contains(arrival) { first = min(first ?? row[2], row[2]) }
        }
        // A row that is gone does not come back.
        known = found
        return first
    }
}

extension Arrival {
    /// The maximum number that are counted in one transaction.
    static let most = 1000

    /// Takes the oldest that are not counted, for a transaction that counts them.
    static func take(with sql: SQL) throws -> [Arrival] {
        let found = try sql.all(
            """
            SELECT upstream, firstId, lastId, accepted, acceptedBytes, ready, readyBytes, dueAtMs, writer, n
            FROM arrivals JOIN writers USING (writer) WHERE n > heard ORDER BY writer, n LIMIT ?
            """, Int64(most + 255)
        ) { (arrival: Arrival($0), writer: $0[8] as Int64, number: $0[9] as Int64) }
        // Of a transaction, all are counted or none.
        let last = found.dropFirst(most - 1).first
        let rest = found.dropFirst(most).drop { $0.writer == last?.writer && $0.number == last?.number }
        let taken = found.dropLast(rest.count)
        let heard = Dictionary(taken.map { ($0.writer, $0.number) }) { $1 }
        for (writer, number) in heard { try sql.run("UPDATE writers SET heard = ? WHERE writer = ?", number, writer) }
        return taken.map(\.arrival)
    }
}

extension Transaction {
    /// Counts what other nodes have added, and tells their queues once this is committed. Returns whether there may be more.
    func hear() throws -> Bool {
        growth = nil
        // Their queues were told after an earlier transaction.
        try sql.run("DELETE FROM arrivals USING writers WHERE arrivals.writer = writers.writer AND n <= heard")
        let lag = try sql.value(
            """
            SELECT (extract(epoch FROM clock_timestamp()) * 1000)::BIGINT - min(log.at)
            FROM arrivals JOIN writers USING (writer) JOIN log USING (writer, n) WHERE n > heard
            """, as: Int?.self)
        outbox.metrics.database.logLagMilliseconds = max(0, (lag ?? nil) ?? 0)
        let arrivals = try Arrival.take(with: sql)
        for arrival in arrivals {
            let writeState = writeStates[arrival.upstream]
            writeState.change = writeState.change + arrival.ledger
            writeState.appendNotice = arrival.notice.joined(with: writeState.appendNotice)
        }
        if outbox.isCapped { try evictForArrivals(arrivals.map(\.upstream)) }
        return arrivals.count >= Arrival.most
    }

    private func evictForArrivals(_ upstreams: [UpstreamNumber]) throws {
        for queue in Set(upstreams).compactMap({ outbox.target($0) }) where queue.cap.whenFull == .dropOldest {
            try evictOldest(of: queue, for: 0, bytes: 0)
        }
    }
}

extension AppendNotice {
    fileprivate func joined(with other: AppendNotice?) -> AppendNotice {
        guard let other else { return self }
        var joined = AppendNotice(first: min(first, other.first))
        joined.newest = max(newest, other.newest)
        (joined.messages, joined.bytes) = (messages + other.messages, bytes + other.bytes)
        joined.dueAt = dueAt.map { min($0, other.dueAt ?? $0) } ?? other.dueAt
        return joined
    }
}

extension Ledger {
    /// Counts what other nodes have added. No queue is told: this process has adopted none yet.
    static func addArrivals(with sql: SQL) throws {
        var arrivals: [Arrival]
        repeat {
            arrivals = try Arrival.take(with: sql)
            for arrival in arrivals { try arrival.ledger.add(to: arrival.upstream, with: sql) }
        } while arrivals.count >= Arrival.most
    }

    /// What other nodes have added to an upstream, as far as its row does not count it.
    static func unheard(of number: UpstreamNumber, with sql: SQL) throws -> Ledger {
        let found = try sql.first(
            """
            SELECT max(lastId), sum(accepted), sum(acceptedBytes) FROM arrivals JOIN writers USING (writer)
            WHERE upstream = ? AND n > heard
            """, number
        ) { Ledger(lastID: $0[0], accepted: $0[1], queuedBytes: $0[2], counts: Counts(queued: $0[1])) }
        return found ?? .empty
    }
}
