public import PosternCore
import PosternEvents
import PosternUpstream

/// One write transaction. Used only on the writer's thread, while the writer commits.
///
/// What changes in ledgers is collected in memory and added to the stored figures before the commit, or with a later one
/// while messages are only accepted. A rollback undoes everything here, except these changes, which the writer drops.
final class Transaction {
    let sql: SQL
    let writer: any StoreWriter
    let outbox: Outbox
    let writeStates: UpstreamWriteStates
    /// Of the last message, and the last that the next ones may have; 0 before the first.
    private(set) var sequence: Int64 = 0
    private var lastSequence: Int64 = 0
    /// Settled messages, if a reply waits for one.
    private(set) var notices: [SettledNotice] = []
    /// What happens to messages, if events are collected.
    private(set) var events = MessageEvents()
    /// Rows that must not be claimed until the transaction has ended.
    private var removals: [(queue: UpstreamQueue, id: MessageID)] = []
    /// Queues whose lanes have changed.
    private(set) var lanesDue: [(number: UpstreamNumber, at: Timestamp)] = []
    /// Kinds that the store did not know, with their numbers.
    var newKinds: [(kind: Kind, number: Int)] = []
    /// Owners whose credential may no longer be needed.
    var touchedOwners: Set<CredentialOwner> = []
    let callbacks: [Callback]
    /// False if the disk is full and the same transaction has failed with the events in it.
    let mayStoreCallbacks: Bool
    /// Settled messages, as far as a callback reports them, until their events are stored.
    var reports: [SettledMessage] = []
    /// The events that were stored.
    var callbackCounts: [CallbackCount] = []
    /// The key of the operator whose request is carried out, for events; nil for others, and without a key.
    var operatorKey: String?
    /// What it adds to the store, as long as it only accepts messages; nil if it does anything else.
    var growth: Growth? = Growth()
    /// The queues whose turns no other process finds out before this transaction has ended.
    var hasLocked: Set<UpstreamNumber> = []
    /// How many messages its jobs may store, besides events.
    private let expectedMessages: Int
    private let storesBlocks: Bool
    private let isWaitedFor: Bool
    private let collectsEvents: Bool

    init(
        sql: SQL, writer: any StoreWriter, outbox: Outbox, writeStates: UpstreamWriteStates,
        expectedMessages: Int = 1, mayStoreCallbacks: Bool = true
    ) {
        self.sql = sql
        self.expectedMessages = expectedMessages
        self.writer = writer
        self.outbox = outbox
        self.writeStates = writeStates
        // An engine with several writers stores messages in another order than that of their ids.
        storesBlocks = outbox.options.storesBlocks && !sql.admitsLate
        isWaitedFor = outbox.isWaitedFor
        collectsEvents = outbox.events.isCollecting
        callbacks = outbox.callbacks ?? []
        self.mayStoreCallbacks = mayStoreCallbacks
        writeStates.open.forEach { $0.begin() }
    }

    /// The id of the next message.
    func nextID(of upstream: UpstreamNumber) throws -> MessageID {
        if sequence == lastSequence {
            let next = try writer.nextSequences(expectedMessages, in: sql)
            (sequence, lastSequence) = (next.lowerBound - 1, next.upperBound)
        }
        sequence += 1
        return MessageID(sequence: sequence, upstream: upstream)
    }

    /// Prevents `id` from being claimed while this transaction removes it. Returns false if it is being sent. If no
    /// worker sends from the queue, none begins before this transaction has ended (`Outbox.adopt`). Throws
    /// `StoreError.notOwner` if another process works on the queue.
    func tryRemoving(_ id: MessageID, from target: QueueTarget) throws -> Bool {
        guard let queue = outbox.queues.adopted(target.number) else {
            try borrow(target.number)
            return true
        }
        guard queue.tryRemoving(id) else { return false }
        removals.append((queue, id))
        return true
    }

    /// Makes certain that no other process works on a queue until the transaction has ended. Throws `StoreError.notOwner` if one
    /// does.
    func borrow(_ number: UpstreamNumber) throws {
        if outbox.isOthers(number) { try writer.borrow(number, in: sql) }
    }

    /// Releases those rows: the transaction was committed or rolled back.
    func doneRemoving(isCommitted: Bool) { endRemovals(from: 0, areGone: isCommitted) }

    /// Releases those that were added since there were `count`.
    private func endRemovals(from count: Int, areGone: Bool = false) {
        var rest = removals[count...]
        while let queue = rest.first?.queue {
            let run = rest.prefix { $0.queue === queue }
            queue.doneRemoving(run.map(\.id), areGone: areGone)
            rest.removeFirst(run.count)
        }
        removals.removeSubrange(count...)
    }

    func recordEnd(
        _ state: MessageState, of id: MessageID, _ kind: Kind, in writeState: UpstreamWriteState, error: AttemptError?,
        result: [UInt8]?
    ) {
        writeState.settled[Int(state.rawValue)] += 1
        if let type = EventType(state) { emit(type, of: id, kind) }
        guard isWaitedFor else { return }
        notices.append(SettledNotice(id: id, state: state, error: error, result: result))
    }

    /// `isAgain`: the message had an end before.
    func emit(_ type: EventType, of id: MessageID, _ kind: Kind, isAgain: Bool = false) {
        if collectsEvents { events.add(type, of: id, kind, isAgain: isAgain, by: operatorKey) }
    }

    func lanesAreDue(of queue: QueueTarget, at moment: Timestamp) { lanesDue.append((queue.number, moment)) }

    /// Writes what is kept in memory during the transaction. Call once, as the last step.
    func finish() throws {
        try closeBlocks()
        try storeCallbacks()
        try closeBlocks()
        try writeStates.open.forEach(settleLanes)
        try dropUnneededCredentials()
        let isShared = outbox.engine.isShared
        for writeState in writeStates.open {
            if isShared, outbox.isOthers(writeState.number) {
                try writeState.tellOwner(by: writer, with: sql)
            } else {
                try writeState.save(with: sql)
            }
        }
    }
}

extension Transaction {
    /// Runs `body`. If it returns false, its changes are undone, in the rows and in memory.
    func inSavepoint(_ body: () throws -> Bool) throws {
        try closeBlocks()
        let (sequence, lastSequence) = (sequence, lastSequence)
        let (noted, told, reported) = (notices.count, events.end, reports.count)
        let removed = removals.count
        let before = writeStates.open.map {
            (
                writeState: $0, change: $0.change, notice: $0.appendNotice, settled: $0.settled,
                lanes: $0.laneCounts.mark()
            )
        }
        try sql.savepoint {
            if try body() { return true }
            (self.sequence, self.lastSequence) = (sequence, lastSequence)
            notices.removeSubrange(noted...)
            events.remove(from: told)
            reports.removeSubrange(reported...)
            endRemovals(from: removed)
            for (writeState, change, notice, settled, lanes) in before {
                writeState.change = change
                writeState.appendNotice = notice
                writeState.block.removeAll()
                writeState.rows.removeAll()
                writeState.settled = settled
                writeState.openLane = nil
                writeState.laneCounts.undo(to: lanes)
                writeState.draft = nil
            }
            // Upstreams whose first message this would have been.
            for writeState in writeStates.open.dropFirst(before.count) {
                writeState.didRollBack()
                writeState.begin()
            }
            return false
        }
    }
}

/// Records a message that reached a final state, for replies that wait for it.
public struct SettledNotice: Sendable {
    public let id: MessageID
    public let state: MessageState
    public let error: AttemptError?
    public let result: [UInt8]?
}

extension SettledNotice {
    /// Nil while the message is queued.
    public init?(_ record: MessageRecord) {
        guard record.state != .queued else { return nil }
        self.init(
            id: record.id, state: record.state, error: record.state == .delivered ? nil : record.lastError,
            result: record.result)
    }
}

// MARK: - Accepting

extension Transaction {
    /// Stores all of `messages` or, if one is rejected, none. If the disk is full, other messages are evicted for them.
    func append(
        _ messages: [NewMessage], after admission: Admission? = nil, isDiskFull: Bool = false
    ) throws -> Result<AppendReceipt, AppendError> {
        if outbox.engine.isShared {
            // Its owner alone decides by the state of a queue.
            for number in Outbox.queuesNeeded(by: messages, after: admission) where outbox.isOthers(number) {
                do { try borrow(number) } catch StoreError.notOwner { return .failure(.store(.notOwner)) }
            }
        }
        guard isDiskFull || admission != nil || messages.contains(where: \.queue.validatesAgainstState) else {
            return try store(messages, isDiskFull: false)
        }
        growth = nil
        // One may be rejected after others of the same request were stored, or after messages were evicted for it. All
        // of that is undone.
        var result: Result<AppendReceipt, AppendError> = .failure(.store(.closed))
        try inSavepoint {
            if let refusal = try admission.flatMap(refusal(by:)) {
                result = .failure(.notAdmitted(refusal))
                return false
            }
            result = try store(messages, isDiskFull: isDiskFull)
            if let admission { writeStates[admission.queue.number].draft = nil }
            if case .success = result { return true } else { return false }
        }
        return result
    }

    /// Applies what follows from the request as a whole, or returns why it is refused.
    private func refusal(by admission: Admission) throws -> AcceptanceError? {
        do {
            try apply(try state(of: admission.queue).decide(admission.decide), of: admission.queue)
            return nil
        } catch let refusal as AcceptanceError {
            return refusal
        }
    }

    private func store(
        _ messages: [NewMessage], isDiskFull: Bool
    ) throws -> Result<AppendReceipt, AppendError> {
        var receipt = AppendReceipt()
        if isDiskFull, let refusal = try makeRoomOnDisk(for: messages, evicted: &receipt.evicted) {
            return .failure(refusal)
        }
        if outbox.isCapped, let refusal = try makeRoom(for: messages, evicted: &receipt.evicted) {
            return .failure(refusal)
        }
        receipt.ids.reserveCapacity(messages.count)
        var refused: [AppendError.Refused] = []
        for (index, message) in messages.enumerated() {
            let id = try nextID(of: message.queue.number)
            var failure = message.failure
            if failure == nil {
                if let credential = message.credential {
                    growth = nil
                    if try !hold(credential, of: message.queue) { receipt.needsCredential = true }
                }
                if message.queue.validatesAgainstState {
                    switch try validate(message, as: id) {
                    case .success(nil): break
                    case .success(let former?):
                        // The next message gets the id.
                        sequence -= 1
                        receipt.repeated.insert(index)
                        receipt.ids.append(former)
                        continue
                    case .failure(let refusal):
                        guard message.failsIfRejected, refusal.reason != .full else {
                            refused.append(.init(index: index, refusal: refusal))
                            continue
                        }
                        failure = refusal.pointer.isEmpty ? refusal.detail : "\(refusal.pointer) \(refusal.detail)"
                    }
                }
            }
            if let failure {
                let error = AttemptError(.refused, detail: failure, at: message.acceptedAt)
                try insert(message, as: id, endedAs: .failed, error)
                receipt.failed[index] = error
            } else {
                try insert(message, as: id)
            }
            receipt.ids.append(id)
        }
        guard refused.isEmpty else { return .failure(.refused(refused)) }
        try applyDrafts(of: messages)
        return .success(receipt)
    }

    /// Applies what the messages of a request have changed together.
    private func applyDrafts(of messages: [NewMessage]) throws {
        for message in messages where message.queue.validatesAgainstState {
            let writeState = writeStates[message.queue.number]
            guard let draft = writeState.draft else { continue }
            writeState.draft = nil
            try apply(draft.changes, of: message.queue)
        }
    }

    /// Calls the upstream's second validation, and applies the state changes that it returns. For a repeat, returns the id of
    /// the first message.
    private func validate(_ message: NewMessage, as id: MessageID) throws -> Result<MessageID?, AcceptanceError> {
        let changes: [StateChange]
        do {
            let candidate = PendingMessage(
                id: id, kind: message.kind, lane: message.lane, acceptedAt: message.acceptedAt,
                payload: Array(message.bytes[message.range]), credentialOwner: message.credential?.owner,
                isScheduled: message.notBefore != nil)
            changes = try state(of: message.queue).decide {
                try message.queue.upstream.validate(candidate, against: $0)
            }
        } catch let refusal as AcceptanceError {
            return .failure(refusal)
        }
        if case .repeats(let former)? = changes.first { return .success(former) }
        try apply(changes, of: message.queue)
        return .success(nil)
    }

    func insert(_ message: NewMessage, as id: MessageID) throws {
        let queue = message.queue
        let writeState = writeStates[queue.number]
        var notice = writeState.appendNotice ?? AppendNotice(first: id)
        writeState.appendNotice = nil
        let scheduledAt = message.notBefore.flatMap { $0 > message.acceptedAt ? $0 : nil }
        let kind = writeState.kindNumber(of: message.kind, in: outbox.kinds)
        // A row, so that the turn of the lane is found.
        let takesTurnOfLane = queue.hasTurns && message.lane.number != 0
        if storesBlocks, message.isPlain, !takesTurnOfLane {
            if !writeState.block.fits(message.range.count, ofKind: kind, inTurn: message.turn) {
                try closeBlock(of: writeState)
            }
            writeState.block.append(message, as: id, kind: kind)
        } else {
            if !sql.isPostgres { try closeBlock(of: writeState) }
            let lane = try openLane(of: message, scheduledAt: scheduledAt, notice: &notice)
            let turn = try takesTurnOfLane ? turn(ofLane: lane, in: queue, or: message.turn) : message.turn
            try insert(message, as: id, kind: kind, lane: lane, turn: turn, scheduledAt: scheduledAt)
            countLane(message.lane, 1, of: queue)
        }
        writeState.accept(id, bytes: message.range.count)
        (notice.accepted, notice.acceptedBytes) = (notice.accepted + 1, notice.acceptedBytes + message.range.count)
        emit(.messageQueued, of: id, message.kind)
        notice.newest = id
        if scheduledAt == nil {
            notice.messages += 1
            notice.bytes += message.range.count
        }
        writeState.appendNotice = notice
    }

    /// Stores a message that ends as soon as it is accepted. It was never queued, and nothing reports that it was.
    func insert(
        _ message: NewMessage, as id: MessageID, endedAs state: MessageState, _ error: AttemptError?,
        withPayload: Bool = true
    ) throws {
        growth = nil
        let writeState = writeStates[id.upstream]
        // If it is queued again, no block may have ids around its own.
        try closeBlock(of: writeState)
        var lane = message.lane
        // Only a queue with mixed lanes sends what has none. What is not valid may not say which is its lane.
        if !lane.isNamed, message.queue.upstream.traits.laneRule == .perLane { lane = .named(id.description) }
        let payload = Array(message.bytes[message.range])
        try sql.run(
            """
            INSERT INTO ended_# (id, state, kind, lane, laneGroup, acceptedAtMs, settledAtMs, expiresAtMs, attempts, key,
              lastError, tried, traceParent, checksum, payload)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?, ?, ?, ?, ?)
            """, of: id.upstream, id, state, writeState.kindNumber(of: message.kind, in: outbox.kinds), lane.stored,
            lane.group, message.acceptedAt, message.acceptedAt, message.expiresAt, message.key,
            error.map(JSONRecord.encode), message.flags, message.traceParent,
            payload.withUnsafeBytes { Checksum.of($0) }, withPayload ? payload : nil)
        writeState.change.lastID = Int(id.rawValue)
        writeState.change.accepted += 1
        writeState.change.counts[state] += 1
        report(message, as: id, endedAs: state, error)
        recordEnd(state, of: id, message.kind, in: writeState, error: error, result: nil)
    }

    func insert(
        _ message: NewMessage, as id: MessageID, kind: Int64, lane: Int64, turn: Int64, scheduledAt: Timestamp?
    ) throws {
        if sql.isPostgres {
            let writeState = writeStates[id.upstream]
            writeState.rows.append(message, as: id, kind: kind, lane: lane, turn: turn, scheduledAt: scheduledAt)
            if writeState.rows.isFull { try closeBlock(of: writeState) }
            return
        }
        growth?.messages += 1
        growth?.bytes += message.range.count
        try message.bytes.withUnsafeBytes { bytes in
            let payload = BorrowedBytes(UnsafeRawBufferPointer(rebasing: bytes[message.range]))
            let checksum = payload.checksum
            // Most messages have none of the optional columns, and binding those would cost a tenth of the insert.
            if scheduledAt == nil, message.expiresAt == nil, message.key == nil, message.traceParent == nil,
                message.flags.isEmpty, turn == 0
            {
                try sql.send(
                    "INSERT INTO queue_# (id, kind, lane, acceptedAtMs, checksum, payload) VALUES (?, ?, ?, ?, ?, ?)",
                    of: id.upstream, id, kind, lane, message.acceptedAt, checksum, payload)
            } else {
                try sql.send(
                    """
                    INSERT INTO queue_#
                      (id, kind, lane, acceptedAtMs, waiting, nextAttemptAtMs, expiresAtMs, key, tried, traceParent, turn,
                       checksum, payload)
                    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
                    """,
                    of: id.upstream, id, kind, lane, message.acceptedAt,
                    scheduledAt == nil ? QueueColumn.ready : QueueColumn.scheduled, scheduledAt, message.expiresAt,
                    message.key, message.flags, message.traceParent, turn,
                    checksum, payload)
            }
        }
        if sql.admitsLate { try nameLane(message.lane, of: id) }
    }
}

// MARK: - Making room

extension Transaction {
    private struct SpaceRequest {
        let queue: QueueTarget
        var messages = 0
        var bytes = 0
        var isFromSDK = false

        /// What the queue may hold. An SDK cannot divide what it sends, so a request of one that is larger than the cap gets in
        /// when nothing else is queued; otherwise the SDK would repeat it forever.
        var cap: QueueCap {
            var cap = queue.cap
            guard isFromSDK else { return cap }
            if cap.maxMessages > 0 { cap.maxMessages = max(cap.maxMessages, messages) }
            if cap.maxBytes > 0 { cap.maxBytes = max(cap.maxBytes, bytes) }
            return cap
        }
    }

    private func spaceRequests(of messages: some Sequence<NewMessage>) -> [UpstreamNumber: SpaceRequest] {
        var spaceRequests: [UpstreamNumber: SpaceRequest] = [:]
        for message in messages {
            var request = spaceRequests[message.queue.number] ?? SpaceRequest(queue: message.queue)
            request.messages += 1
            request.bytes += message.range.count
            request.isFromSDK = message.isFromSDK
            spaceRequests[message.queue.number] = request
        }
        return spaceRequests
    }

    /// Makes room by the queues' policies. Returns why there is none; if so, nothing was dropped.
    private func makeRoom(for messages: [NewMessage], evicted: inout [MessageID]) throws -> AppendError? {
        let spaceRequests = spaceRequests(of: messages.lazy.filter { $0.failure == nil })
        guard !spaceRequests.isEmpty else { return nil }
        let allBytes = spaceRequests.values.reduce(0) { $0 + $1.bytes }
        if outbox.maxBytes > 0, writeStates.open.reduce(allBytes, { $0 + $1.ledger.queuedBytes }) > outbox.maxBytes {
            return allBytes > outbox.maxBytes ? .neverFits(nil) : .queueFull(nil)
        }
        var victims: [(queue: QueueTarget, ids: [MessageID])] = []
        let removed = removals.count
        for request in spaceRequests.values {
            guard let ids = try evictions(request) else {
                // Nothing is evicted for a request that is rejected.
                endRemovals(from: removed)
                let mayFit = request.cap.admits(messages: request.messages, bytes: request.bytes)
                return mayFit ? .queueFull(request.queue.name) : .neverFits(request.queue.name)
            }
            if !ids.isEmpty { victims.append((request.queue, ids)) }
        }
        for (queue, ids) in victims {
            for id in ids { try end(id, in: queue, as: .dropped, error: nil, at: outbox.time.now) }
            evicted += ids
        }
        return nil
    }

    /// If the disk is full, the oldest messages are evicted, with their payloads, for at least as many bytes as arrive.
    /// Evicting fewer bytes would not make room.
    func makeRoomOnDisk(for messages: [NewMessage], evicted: inout [MessageID]) throws -> AppendError? {
        for request in spaceRequests(of: messages).values {
            var victims: [MessageID] = []
            var bytes = 0
            // A block that is removed in part needs more room than before.
            var last: MessageID?
            try forEachOldest(of: request.queue) { id, size in
                if let last, id > last { return false }
                // Undone with the rest if it is not enough.
                guard try tryRemoving(id, from: request.queue) else { return true }
                victims.append(id)
                bytes += size
                if last == nil, bytes >= request.bytes { last = try block(of: id)?.last ?? id }
                return last.map { id < $0 } ?? true
            }
            guard bytes >= request.bytes else {
                return .store(.full(detail: "the disk is full, and nothing can make room"))
            }
            try emptyBlocks(of: victims)
            for id in victims { try dropWithPayload(id, from: request.queue) }
            writeStates[request.queue.number].change.queuedBytes -= bytes
            evicted += victims
        }
        return nil
    }

    /// Gives rows without payloads to the messages of blocks that are removed whole. The others need room for the payloads
    /// of what is being sent.
    private func emptyBlocks(of victims: [MessageID]) throws {
        var rest = victims[...]
        while let id = rest.first {
            guard let block = try block(of: id) else {
                rest.removeFirst()
                continue
            }
            let inBlock = rest.prefix { $0 <= block.last }
            try giveRows(to: block, withPayloads: inBlock.count < block.count)
            rest = rest[inBlock.endIndex...]
        }
    }

    /// Deletes the payload first, because there is no room to move it. The caller updates the ledger.
    private func dropWithPayload(_ id: MessageID, from queue: QueueTarget) throws {
        try sql.run("UPDATE queue_# SET payload = ? WHERE id = ?", of: queue.number, [] as [UInt8], id)
        try end(id, in: queue, as: .dropped, error: nil, at: outbox.time.now)
        try sql.run("UPDATE ended_# SET payload = NULL WHERE id = ?", of: queue.number, id)
    }

    /// Visits queued messages and their sizes, oldest first, until `body` returns false.
    private func forEachOldest(of queue: QueueTarget, _ body: (MessageID, Int) throws -> Bool) throws {
        try closeBlocks()
        try sql.walk("SELECT id, size FROM queued_# ORDER BY id", of: queue.number) { row in
            try body(row[0], row[1])
        }
    }

    /// The oldest messages that are not being sent, as many as have to be evicted; nil if even all of them would not be
    /// enough. The caller releases them then.
    private func evictions(_ request: SpaceRequest) throws -> [MessageID]? {
        let (queue, cap) = (request.queue, request.cap)
        let ledger = writeStates[queue.number].ledger
        if cap.admits(messages: ledger.queued + request.messages, bytes: ledger.queuedBytes + request.bytes) {
            return []
        }
        guard cap.whenFull == .dropOldest, cap.admits(messages: request.messages, bytes: request.bytes) else {
            return nil
        }
        // The owner evicts them, once it has counted the others.
        guard try mayEvict(from: queue) else { return [] }
        let (victims, areEnough) = try takeOldest(of: queue, to: cap, for: request.messages, bytes: request.bytes)
        return areEnough ? victims : nil
    }

    /// Prevents the oldest messages that are not being sent from being claimed, as many as have to be evicted so that
    /// `messages` more fit; all of them if that is not enough.
    private func takeOldest(
        of queue: QueueTarget, to cap: QueueCap, for messages: Int, bytes: Int
    ) throws -> (ids: [MessageID], areEnough: Bool) {
        let ledger = writeStates[queue.number].ledger
        var messages = ledger.queued + messages
        var bytes = ledger.queuedBytes + bytes
        var ids: [MessageID] = []
        try forEachOldest(of: queue) { id, size in
            guard try tryRemoving(id, from: queue) else { return true }
            ids.append(id)
            messages -= 1
            bytes -= size
            return !cap.admits(messages: messages, bytes: bytes)
        }
        return (ids, cap.admits(messages: messages, bytes: bytes))
    }

    /// Whether this process may decide which messages are evicted.
    private func mayEvict(from queue: QueueTarget) throws -> Bool {
        guard outbox.isOthers(queue.number) else { return true }
        guard outbox.isResponsible(for: queue.number) else { return false }
        do { try borrow(queue.number) } catch StoreError.notOwner { return false }
        return true
    }

    /// Evicts the oldest messages that are not being sent until `messages` more fit, or there are no others. What another
    /// process works on, it evicts from itself.
    func evictOldest(of queue: QueueTarget, for messages: Int, bytes: Int) throws {
        guard try mayEvict(from: queue) else { return }
        let ids = try takeOldest(of: queue, to: queue.cap, for: messages, bytes: bytes).ids
        for id in ids { try end(id, in: queue, as: .dropped, error: nil, at: outbox.time.now) }
    }
}
