import PosternCore
import PosternMetrics
import PosternThreads

/// One request to erase messages, from step to step. What depends on a message is done before the message, or in the same
/// transaction, so that a request that was interrupted finds it again.
struct EraseRun: Sendable {
    /// How long messages that are being sent may take.
    static let patience = Duration.seconds(60)
    private static let pause = Duration.milliseconds(100)
    /// The most items that are changed in one commit.
    private static let itemsPerStep = 50
    /// The most rows, and the most bytes of payloads, of one snapshot.
    private static let (rowsPerRead, bytesPerRead) = (20_000, 4 << 20)

    private let request: EraseRequest
    private let outbox: Outbox
    private let executor: EraseExecutor
    private let completion: @Sendable (Result<EraseCounts, EraseFailure>) -> Void
    /// The newest message that it is about.
    private let last: MessageID

    /// What was found.
    private struct Found: Sendable {
        var states: [MessageID: MessageState] = [:]
        /// Events, by the message that they report.
        var callbacks: [MessageID: [MessageID]] = [:]
        var records: [Record] = []
        /// Requests whose details may quote a message.
        var batches: [BatchID] = []
        var counts = EraseCounts()
        /// What was erased before these messages, which are copies of it.
        var erased: [MessageID] = []
        var ids: [MessageID] { states.keys + callbacks.values.flatMap(\.self) }
    }

    /// A row of `responses`. `replacement`: nil if it is deleted.
    fileprivate struct Record: Sendable {
        let key: [UInt8]
        let replacement: [UInt8]?
    }

    init(
        _ request: EraseRequest, of outbox: Outbox, on executor: EraseExecutor,
        _ completion: @escaping @Sendable (Result<EraseCounts, EraseFailure>) -> Void
    ) {
        self.request = request
        self.outbox = outbox
        self.executor = executor
        self.completion = completion
        last = outbox.newestID
    }

    func begin() {
        read { () throws(StoreError) in
            var found = Found()
            found.states = try messages()
            for state in found.states.values { found.counts.messages[state, default: 0] += 1 }
            guard !request.isDryRun else {
                try addDependents(to: &found)
                return completion(.success(found.counts))
            }
            settle(Array(found.states.keys)) { [found] in eraseDependents(of: found) }
        }
    }

    private func eraseDependents(of former: Found) {
        read { () throws(StoreError) in
            var found = former
            try addDependents(to: &found)
            settle(found.callbacks.values.flatMap(\.self)) { [found] in
                change(found.records[...]) {
                    try $0.replace($1)
                } then: {
                    change(found.batches[...]) {
                        try $0.clearDetail(of: $1)
                    } then: {
                        eraseMessages(of: found)
                    }
                }
            }
        }
    }

    private func eraseMessages(of found: Found) {
        change(Array(found.states.keys)[...]) { transaction, id in
            try transaction.erase(id, reportedBy: found.callbacks[id] ?? [])
        } then: {
            change(request.keys[...]) {
                try $0.eraseReplays(ofKey: $1)
            } then: {
                eraseCopies(of: found)
            }
        }
    }

    /// Until the payload of a delivered message was gone, a replay may have queued a copy of it, after the search.
    private func eraseCopies(of former: Found) {
        read { () throws(StoreError) in
            var found = Found(states: try copies(of: former.states), counts: former.counts)
            found.erased = former.erased + former.ids
            guard !found.states.isEmpty else { return overwrite(found) }
            for state in found.states.values { found.counts.messages[state, default: 0] += 1 }
            settle(Array(found.states.keys)) { [found] in eraseDependents(of: found) }
        }
    }

    private func overwrite(_ found: Found) {
        read { () throws(StoreError) in
            let left = try queued(found.erased)
            guard left.isEmpty else { return completion(.failure(.beingSent(left.count))) }
            for (number, ids) in Dictionary(grouping: found.erased, by: \.upstream) {
                if let name = outbox.names[number] { outbox.metrics.erased(name.description).add(ids.count) }
            }
            var counts = found.counts
            counts.isKeptByDatabase = outbox.engine.keepsDeleted
            outbox.writer.overwriteUnused { [counts] result in
                switch result {
                case .success(true): completion(.success(counts))
                case .success(false): completion(.failure(.heldUp))
                case .failure(let error): completion(.failure(.store(error)))
                }
            }
        }
    }

    // MARK: Steps

    private func read(_ body: @escaping @Sendable () throws(StoreError) -> Void) {
        executor.run {
            do throws(StoreError) { try body() } catch { completion(.failure(.store(error))) }
        }
    }

    /// Changes all items, a few in each commit.
    private func change<Item: Sendable>(
        _ items: ArraySlice<Item>, _ body: @escaping @Sendable (Transaction, Item) throws -> Void,
        then follow: @escaping @Sendable () -> Void
    ) {
        guard !items.isEmpty else { return follow() }
        let step = items.prefix(Self.itemsPerStep)
        outbox.writer.change {
            for item in step { try body($0, item) }
        } completion: { result in
            switch result {
            case .success: change(items.dropFirst(step.count), body, then: follow)
            case .failure(let error): completion(.failure(.store(error)))
            }
        }
    }

    /// Cancels those of `ids` that are queued. What is being sent is waited for: it is settled, or can be cancelled.
    private func settle(
        _ ids: [MessageID], since start: MonotonicInstant? = nil, then follow: @escaping @Sendable () -> Void
    ) {
        let start = start ?? outbox.threads.instant
        read { () throws(StoreError) in
            let left = try queued(ids)
            guard !left.isEmpty else { return follow() }
            guard outbox.threads.instant - start < Self.patience, !executor.isStopping() else {
                return completion(.failure(.beingSent(left.count)))
            }
            cancel(left[...]) { done in
                if done == left.count { return follow() }
                executor.later(Self.pause) { settle(left, since: start, then: follow) }
            }
        }
    }

    /// `follow` gets how many were cancelled.
    private func cancel(_ ids: ArraySlice<MessageID>, _ done: Int = 0, then follow: @escaping @Sendable (Int) -> Void) {
        guard !ids.isEmpty else { return follow(done) }
        let step = ids.prefix(Self.itemsPerStep)
        outbox.perform(.cancel, on: Array(step), by: request.by) { result in
            switch result {
            case .success(let cancelled): cancel(ids.dropFirst(step.count), done + cancelled.count, then: follow)
            case .failure(let error): completion(.failure(.store(error)))
            }
        }
    }

    // MARK: Reading

    private func queued(_ ids: [MessageID]) throws(StoreError) -> [MessageID] {
        try outbox.readMessages { reader in
            try ids.filter { try reader.message($0, payload: false)?.state == .queued }
        }
    }

    /// Visits all messages, a part of them on each snapshot. A message that changes its table meanwhile is not missed.
    private func forEachMessage(
        of numbers: [UpstreamNumber], _ all: ClosedRange<MessageID>, payload: Bool, _ body: (borrowing SQLRow) -> Void
    ) throws(StoreError) {
        for number in numbers {
            var ids = IDRange(first: all.lowerBound.rawValue, last: all.upperBound.rawValue)
            while ids.first <= ids.last {
                try outbox.readMessages { reader in
                    for table in StoreReader.Table.allCases {
                        var (rows, bytes) = (0, 0)
                        try reader.walk(table, of: number, ids, .oldest, payload: payload) { row in
                            body(row)
                            (rows, bytes) = (rows + 1, bytes + row.byteCount(9))
                            guard rows == Self.rowsPerRead || bytes > Self.bytesPerRead else { return true }
                            // The next table is read no further than this one.
                            ids.last = row[0]
                            return false
                        }
                    }
                }
                ids = IDRange(first: ids.last + 1, last: all.upperBound.rawValue)
            }
        }
    }

    /// Visits the payloads that are kept of delivered messages, a part of them on each snapshot.
    private func forEachKeptPayload(of numbers: [UpstreamNumber], _ body: (KeptPayload) -> Void) throws(StoreError) {
        for number in numbers {
            var ids = IDRange(first: 0, last: last.rawValue)
            while ids.first <= ids.last {
                try outbox.read { sql in
                    var (bytes, next) = (0, ids.last + 1)
                    try sql.walkPayloads(of: number, ids) { kept in
                        body(kept)
                        bytes += kept.bytes.count
                        guard bytes > Self.bytesPerRead else { return true }
                        next = kept.id.rawValue + 1
                        return false
                    }
                    ids.first = next
                }
            }
        }
    }

    private func messages() throws(StoreError) -> [MessageID: MessageState] {
        let (names, all) = (outbox.names, MessageID(rawValue: 0)...last)
        var found: [MessageID: MessageState] = [:]
        /// What is reported by an event with the payload.
        var reported: Set<MessageID> = []
        switch request.selection {
        case .key(let key):
            let numbers = names.filter { request.shows($0.value) }.map(\.key)
            try forEachMessage(of: numbers, all, payload: false) { row in
                if row[3] as String? == key { found[row[0]] = row[2] }
            }
        case .payload(let matches):
            func shows(_ id: MessageID) -> Bool { names[id.upstream].map(request.shows) ?? false }
            try forEachMessage(of: Array(names.keys), all, payload: true) { row in
                guard let payload = row[9] as [UInt8]? else { return }
                let id: MessageID = row[0]
                if shows(id), matches(payload, false) { found[id] = row[2] }
                if let subject = Self.subject(of: row), shows(subject), matches(payload, true) {
                    reported.insert(subject)
                }
            }
            let numbers = names.filter { request.shows($0.value) }.map(\.key)
            try forEachKeptPayload(of: numbers) { kept in
                if matches(Array(kept.bytes), false) { found[kept.id] = .delivered }
            }
        }
        for id in reported { found[id] = try outbox.message(id)?.state ?? .delivered }
        return found
    }

    /// The copies of messages that are newer than what the request is about.
    private func copies(of originals: [MessageID: MessageState]) throws(StoreError) -> [MessageID: MessageState] {
        guard outbox.hasReplays else { return [:] }
        let rows = try outbox.read { sql in
            try sql.all("SELECT id, original FROM replayed WHERE id > ?", last) {
                (copy: $0[0] as MessageID, original: $0[1] as MessageID)
            }
        }
        let names = outbox.names
        var found: [MessageID: MessageState] = [:]
        for row in rows where originals[row.original] != nil && names[row.copy.upstream].map(request.shows) == true {
            found[row.copy] = try outbox.message(row.copy)?.state
        }
        return found
    }

    /// The message that an event reports: its key. Nil for most others.
    private static func subject(of row: borrowing SQLRow) -> MessageID? {
        guard row.byteCount(3) == 13, let subject = MessageID(row[3] as String) else { return nil }
        return subject < (row[0] as MessageID) ? subject : nil
    }

    private func addDependents(to found: inout Found) throws(StoreError) {
        guard let first = found.states.keys.min() else { return }
        var callbacks: [MessageID: [MessageID]] = [:]
        // A message that has been waited for may have been reported since.
        let later = first...max(first, outbox.newestID)
        try forEachMessage(of: Array(outbox.names.keys), later, payload: false) { row in
            guard let subject = Self.subject(of: row), found.states[subject] != nil else { return }
            callbacks[subject, default: []].append(row[0])
        }
        found.callbacks = callbacks.mapValues { Array(Set($0)) }
        found.counts.callbacks += found.callbacks.values.reduce(0) { $0 + $1.count }
        try addRecords(to: &found)
        try addBatches(to: &found)
    }

    /// A record names its messages by their ids. Without ids (`return=minimal`) it has nothing of them.
    private func addRecords(to found: inout Found) throws(StoreError) {
        var (key, hasMore): ([UInt8], Bool) = ([], true)
        while hasMore {
            hasMore = false
            try outbox.read { sql in
                var rows = 0
                try sql.walk("SELECT key, response FROM responses WHERE key > ? ORDER BY key", key) { row in
                    let response: [UInt8] = row[1]
                    key = row[0]
                    rows += 1
                    hasMore = rows == Self.rowsPerRead / 10
                    let ids = Self.ids(in: response)
                    let others = ids.count { found.states[$0] == nil }
                    guard others < ids.count else { return !hasMore }
                    found.records.append(Record(key: key, replacement: others > 0 ? request.neutral(response) : nil))
                    if response.count == 13 { found.counts.events += 1 } else { found.counts.idempotencyRecords += 1 }
                    return !hasMore
                }
            }
        }
    }

    private static func ids(in response: [UInt8]) -> [MessageID] {
        response.split { !(0x30...0x39).contains($0) && !(0x61...0x7A).contains($0) }.compactMap { word in
            word.count == 13 ? MessageID(String(decoding: word, as: UTF8.self)) : nil
        }
    }

    private func addBatches(to found: inout Found) throws(StoreError) {
        var (batch, hasMore) = (Int64(0), true)
        while hasMore {
            hasMore = false
            try outbox.read { sql in
                var rows = 0
                try sql.walk(
                    "SELECT batch, ids, detail FROM attempts WHERE batch > ? ORDER BY batch", batch
                ) { row in
                    batch = row[0]
                    rows += 1
                    if row[2] as String? != nil,
                        MessageIDList.decode(row[1]).contains(where: { found.states[$0] != nil })
                    {
                        found.batches.append(BatchID(rawValue: batch))
                    }
                    hasMore = rows == Self.rowsPerRead / 10
                    return !hasMore
                }
            }
        }
    }
}

extension Transaction {
    // MARK: Erasing

    /// Erases a settled message, and the events about it. Does nothing to one that is queued again.
    fileprivate func erase(_ id: MessageID, reportedBy callbacks: [MessageID]) throws {
        for id in callbacks + [id] where outbox.names[id.upstream] != nil { try erase(id) }
    }

    /// Leaves of a settled message that it existed, and how it ended.
    private func erase(_ id: MessageID) throws {
        try giveReceiptRow(to: id)
        try dropPayload(of: id)
        let receipts = try sql.run("UPDATE delivered_# SET key = NULL, result = NULL WHERE id = ?", of: id.upstream, id)
        guard receipts == 0 else { return }
        let error = try sql.value("SELECT lastError FROM ended_# WHERE id = ?", of: id.upstream, id, as: String?.self)
            .flatMap(\.self).flatMap { JSONRecord.decode($0, as: AttemptError.self) }
            .map { AttemptError($0.errorClass, status: $0.status, detail: "erased", at: $0.at) }
        try sql.run(
            """
            UPDATE ended_# SET lane = ?, laneGroup = NULL, key = NULL, lastError = ?, progress = NULL,
              tried = tried | ?, traceParent = NULL, result = NULL, checksum = 0, payload = NULL WHERE id = ?
            """, of: id.upstream, Lane.none.stored, error.map(JSONRecord.encode), MessageFlags.wasErased, id)
    }

    fileprivate func replace(_ record: EraseRun.Record) throws {
        if let response = record.replacement {
            try sql.run("UPDATE responses SET response = ? WHERE key = ?", response, record.key)
        } else {
            try sql.run("DELETE FROM responses WHERE key = ?", record.key)
        }
    }

    fileprivate func clearDetail(of batch: BatchID) throws {
        try sql.run("UPDATE attempts SET detail = NULL WHERE batch = ?", batch)
    }
}

extension Outbox {
    /// That of the message that was accepted last.
    fileprivate var newestID: MessageID { MessageID(rawValue: Int64(ledgers.values.map(\.lastID).max() ?? 0)) }
}
