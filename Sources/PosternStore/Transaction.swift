import GRDB
public import PosternCore

/// One write transaction; lives on the writer's thread while the writer commits, and nowhere else.
///
/// Ledgers are changed in memory and written once before the commit. Everything here is undone by a rollback, the
/// ledgers by the writer.
public final class Transaction {
    let db: Database
    let outbox: Outbox
    let statements: WriterStatements
    var ledgers: [UpstreamNumber: Ledger]
    var sequence: Int64
    private(set) var changedLedgers: Set<UpstreamNumber> = []
    private(set) var settled: [SettledNotice] = []
    private(set) var arrivals: [UpstreamNumber: Arrival] = [:]
    /// Rows kept from being claimed until the transaction is over.
    private(set) var removals: [(queue: UpstreamQueue, ids: [MessageID])] = []

    struct Arrival {
        var queue: UpstreamQueue
        var messages = 0
        var bytes = 0
        var newest: Int64 = 0
        var scheduledAt: Timestamp?
    }

    init(
        db: Database, outbox: Outbox, statements: WriterStatements, ledgers: [UpstreamNumber: Ledger], sequence: Int64
    ) {
        self.db = db
        self.outbox = outbox
        self.statements = statements
        self.ledgers = ledgers
        self.sequence = sequence
    }

    func ledger(_ number: UpstreamNumber, _ change: (inout Ledger) -> Void) {
        change(&ledgers[number, default: Ledger()])
        changedLedgers.insert(number)
    }

    /// Keeps `id` from being claimed while this transaction removes it. False while it is being sent.
    func tryRemoving(_ id: MessageID, from queue: UpstreamQueue) -> Bool {
        guard queue.tryRemoving(id) else { return false }
        removals.append((queue, [id]))
        return true
    }

    /// What a part of the transaction can be undone to.
    struct Mark {
        fileprivate let ledgers: [UpstreamNumber: Ledger]
        fileprivate let sequence: Int64
        fileprivate let arrivals: [UpstreamNumber: Arrival]
        fileprivate let settled: Int
    }

    var mark: Mark {
        Mark(ledgers: ledgers, sequence: sequence, arrivals: arrivals, settled: settled.count)
    }

    /// Undoes what is kept in memory; the rows are the savepoint's to undo.
    func restore(_ mark: Mark) {
        ledgers = mark.ledgers
        sequence = mark.sequence
        arrivals = mark.arrivals
        settled.removeSubrange(mark.settled...)
    }

    func note(_ notice: SettledNotice) { settled.append(notice) }

    /// Writes what is kept in memory during the transaction. Call once, last.
    func finish() throws {
        for number in changedLedgers {
            guard let ledger = ledgers[number] else { continue }
            let statement = try statements.ledger(in: db)
            for (place, column) in Ledger.columns.enumerated() {
                statement.bind(ledger[keyPath: column.path], at: Int32(place + 1))
            }
            statement.bind(Int64(number.rawValue), at: Int32(Ledger.columns.count + 1))
            try statement.run(in: db)
        }
        guard !changedLedgers.isEmpty else { return }
        let statement = try statements.counters(in: db)
        statement.bind(sequence, at: 1)
        statement.bind(outbox.batches.latest, at: 2)
        try statement.run(in: db)
    }
}

/// A message that reached a final state, for those who wait for it.
public struct SettledNotice: Sendable {
    public let id: MessageID
    public let state: MessageState
    public let error: AttemptError?
    public let result: [UInt8]?
}

// MARK: - Accepting

extension Transaction {
    /// Stores all of `messages` or, on a refusal, none.
    func append(_ messages: [NewMessage]) throws -> Result<AppendReceipt, AppendRefusal> {
        var evicted: [MessageID] = []
        if let refusal = try makeRoom(for: messages, evicted: &evicted) { return .failure(refusal) }
        var ids: [MessageID] = []
        ids.reserveCapacity(messages.count)
        var refused: [AppendRefusal.Refused] = []
        for (index, message) in messages.enumerated() {
            sequence += 1
            let id = MessageID(sequence: sequence, upstream: message.queue.number)
            if message.queue.upstream.acceptsByState {
                do throws(Refusal) {
                    let state = StoredState(upstream: message.queue.number, db: db)
                    let changes = try message.queue.upstream.accept(
                        Array(message.bytes[message.range]), of: message.kind, id: id, in: state)
                    try? apply(changes, of: message.queue.number)
                } catch {
                    refused.append(.init(index: index, refusal: error))
                    continue
                }
            }
            try insert(message, as: id)
            ids.append(id)
        }
        return refused.isEmpty
            ? .success(AppendReceipt(ids: ids, evicted: evicted)) : .failure(.refused(refused))
    }

    private func insert(_ message: NewMessage, as id: MessageID) throws {
        let queue = message.queue
        let waits = message.notBefore.map { $0 > message.acceptedAt } ?? false
        let statement = try statements.insert(into: queue.number, in: db)
        statement.bind(id.rawValue, at: 1)
        statement.bind(Int64(outbox.kinds.number(of: message.kind)), at: 2)
        statement.bind(try laneNumber(of: message.lane, in: queue, readyAt: message.acceptedAt), at: 3)
        statement.bind(message.acceptedAt.milliseconds, at: 4)
        statement.bind(waits ? QueueColumn.scheduled : QueueColumn.ready, at: 5)
        statement.bind(waits ? message.notBefore?.milliseconds : nil, at: 6)
        statement.bind(message.expiresAt?.milliseconds, at: 7)
        statement.bind(message.key, at: 8)
        try message.bytes.withUnsafeBytes { bytes in
            statement.bind(borrowing: UnsafeRawBufferPointer(rebasing: bytes[message.range]), at: 9)
            try statement.run(in: db)
        }
        ledger(queue.number) { ledger in
            ledger.lastID = Int(id.rawValue)
            ledger.accepted += 1
            ledger.queued += 1
            ledger.queuedBytes += message.range.count
        }
        var arrival = arrivals[queue.number] ?? Arrival(queue: queue)
        arrival.newest = id.rawValue
        if waits, let due = message.notBefore {
            arrival.scheduledAt = min(arrival.scheduledAt ?? due, due)
        } else {
            arrival.messages += 1
            arrival.bytes += message.range.count
        }
        arrivals[queue.number] = arrival
    }

    /// Makes room by the queues' policies; answers why there is none.
    private func makeRoom(for messages: [NewMessage], evicted: inout [MessageID]) throws -> AppendRefusal? {
        guard outbox.isCapped else { return nil }
        var wanted: [UpstreamNumber: (queue: UpstreamQueue, messages: Int, bytes: Int)] = [:]
        for message in messages {
            let known = wanted[message.queue.number] ?? (message.queue, 0, 0)
            wanted[message.queue.number] = (message.queue, known.messages + 1, known.bytes + message.range.count)
        }
        let allBytes = wanted.values.reduce(0) { $0 + $1.bytes }
        if outbox.maxBytes > 0, ledgers.values.reduce(allBytes, { $0 + $1.queuedBytes }) > outbox.maxBytes {
            return .queueFull(nil)
        }
        for (number, wish) in wanted {
            let cap = wish.queue.cap
            let ledger = ledgers[number] ?? Ledger()
            if cap.admits(messages: ledger.queued + wish.messages, bytes: ledger.queuedBytes + wish.bytes) { continue }
            guard cap.whenFull == .dropOldest,
                let removed = try evict(for: wish.messages, bytes: wish.bytes, from: wish.queue)
            else { return .queueFull(wish.queue.name) }
            evicted += removed
        }
        return nil
    }

    /// Drops the oldest messages that are not being sent until the new ones fit. Nil, and nothing dropped, when even
    /// that would not do.
    private func evict(for messages: Int, bytes: Int, from queue: UpstreamQueue) throws -> [MessageID]? {
        guard queue.cap.admits(messages: messages, bytes: bytes) else { return nil }
        let books = ledgers[queue.number] ?? Ledger()
        var remaining = (messages: books.queued, bytes: books.queuedBytes)
        var victims: [MessageID] = []
        let statement = try db.cachedStatement(
            sql: "SELECT id, length(payload) FROM queue_\(queue.number.rawValue) ORDER BY id")
        try statement.forEachRow(in: db) { row in
            let id = MessageID(rawValue: row.integer(0))
            guard queue.tryRemoving(id) else { return true }
            victims.append(id)
            remaining.messages -= 1
            remaining.bytes -= Int(row.integer(1))
            return !queue.cap.admits(messages: remaining.messages + messages, bytes: remaining.bytes + bytes)
        }
        guard queue.cap.admits(messages: remaining.messages + messages, bytes: remaining.bytes + bytes) else {
            queue.doneRemoving(victims)
            return nil
        }
        removals.append((queue, victims))
        for id in victims { try end(id, in: queue, as: .dropped, error: nil, at: outbox.time.now) }
        return victims
    }

    /// The number under which a queue row names its lane; a named lane becomes ready.
    private func laneNumber(of lane: Lane, in queue: UpstreamQueue, readyAt: Timestamp) throws -> Int64 {
        switch lane {
        case .none: 0
        case .digest(let digest): digest
        case .named(let name, let group):
            try laneNumber(named: name, group: group, of: queue.number, readyAt: readyAt)
        }
    }
}
