import PosternCore
import PosternMetrics

/// What a transaction has added to a queue on which another node works. Its row stays until the owner of the queue has counted it.
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
        (notice.accepted, notice.acceptedBytes) = (accepted, acceptedBytes)
        return notice
    }

    init(of upstream: UpstreamNumber, _ notice: AppendNotice) {
        self.upstream = upstream
        (first, last) = (notice.first, notice.newest)
        (accepted, acceptedBytes) = (notice.accepted, notice.acceptedBytes)
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

    /// Takes the oldest of the queues that a node works on, for a transaction that counts them.
    static func take(for node: Int64, with sql: SQL) throws -> [Arrival] {
        try sql.all(
            """
            DELETE FROM arrivals WHERE (upstream, writer, n) IN (
              SELECT upstream, writer, n FROM arrivals WHERE upstream IN (SELECT number FROM queues WHERE owner = ?)
              ORDER BY upstream, writer, n LIMIT ?)
            RETURNING upstream, firstId, lastId, accepted, acceptedBytes, ready, readyBytes, dueAtMs
            """, node, Int64(most)
        ) { Arrival($0) }
    }
}

extension Transaction {
    /// Counts what other nodes have added to the queues of this one, and tells these once this is committed. Returns whether
    /// there may be more.
    func hear() throws -> Bool {
        growth = nil
        guard let node = outbox.engine.node else { return false }
        let lag = try sql.value(
            """
            SELECT (extract(epoch FROM clock_timestamp()) * 1000)::BIGINT - min(log.at)
            FROM arrivals JOIN log USING (writer, n) WHERE upstream IN (SELECT number FROM queues WHERE owner = ?)
            """, node, as: Int?.self)
        outbox.metrics.database.logLagMilliseconds = max(0, (lag ?? nil) ?? 0)
        let arrivals = try Arrival.take(for: node, with: sql)
        for arrival in arrivals {
            let writeState = writeStates[arrival.upstream]
            writeState.change = writeState.change + arrival.ledger
            writeState.appendNotice = arrival.notice.joined(with: writeState.appendNotice)
            // A look that begins between the commit and its announcement does not find the row of the arrival.
            outbox.queues.adopted(arrival.upstream)?.mayHavePassed(arrival.first)
        }
        if outbox.isCapped { try evictForArrivals(arrivals.map(\.upstream)) }
        return arrivals.count >= Arrival.most
    }

    private func evictForArrivals(_ upstreams: [UpstreamNumber]) throws {
        for queue in Set(upstreams).compactMap({ outbox.queues.adopted($0)?.target })
        where queue.cap.whenFull == .dropOldest {
            let ledger = writeStates[queue.number].ledger
            guard !queue.cap.admits(messages: ledger.queued, bytes: ledger.queuedBytes) else { continue }
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
        (joined.accepted, joined.acceptedBytes) = (accepted + other.accepted, acceptedBytes + other.acceptedBytes)
        joined.dueAt = dueAt.map { min($0, other.dueAt ?? $0) } ?? other.dueAt
        return joined
    }
}

extension Ledger {
    /// What nodes have added to a queue, as far as its owner has not counted it.
    static func unheard(of number: UpstreamNumber, with sql: SQL) throws -> Ledger {
        let found = try sql.first(
            "SELECT max(lastId), sum(accepted), sum(acceptedBytes) FROM arrivals WHERE upstream = ?", number
        ) { Ledger(unheard: $0, from: 0) }
        return found ?? .empty
    }

    /// The same of all queues that have any.
    static func unheard(with sql: SQL) throws -> [UpstreamNumber: Ledger] {
        let found = try sql.all(
            "SELECT upstream, max(lastId), sum(accepted), sum(acceptedBytes) FROM arrivals GROUP BY upstream"
        ) { ($0[0] as UpstreamNumber, Ledger(unheard: $0, from: 1)) }
        return Dictionary(uniqueKeysWithValues: found)
    }

    private init(unheard row: borrowing SQLRow, from column: Int32) {
        let accepted: Int = row[column + 1]
        self.init(
            lastID: row[column], accepted: accepted, queuedBytes: row[column + 2], counts: Counts(queued: accepted))
    }
}
