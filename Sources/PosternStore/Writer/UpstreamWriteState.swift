import PosternCore
import PosternUpstream

/// The writer's state of one upstream: its ledger, and what the current transaction changes.
///
/// Belongs to the writer's thread and outlives transactions, so that the hot path accesses no dictionary.
final class UpstreamWriteState {
    let number: UpstreamNumber
    /// The ledger as of the last commit.
    private(set) var committed: Ledger
    /// What the current transaction adds to it.
    private var added = Ledger()
    /// The same, for a change that the rows behind `lastId` do not show: it is added to the row of the upstream.
    var change: Ledger {
        get { added }
        set { (added, mustSave) = (newValue, true) }
    }
    private var mustSave = false
    /// What earlier transactions have accepted, as far as it was not added to the row of the upstream.
    private var unsaved = Ledger()
    /// The ledger with that change.
    var ledger: Ledger { committed + added }
    var appendNotice: AppendNotice?
    /// What the current transaction has accepted and not written yet.
    var block = BlockDraft()
    /// The same, where each message has a row of its own and one statement writes several.
    var rows = NewRows()
    /// Lanes to update before the commit; true for those that were served and move behind the others.
    var touchedLanes: [Int64: Bool] = [:]
    /// The named lane that got the last message: consecutive messages are mostly of one lane. Nil if its row may have
    /// changed since.
    var openLane: OpenLane?
    var laneCounts = LaneCounts()
    /// What the upstream's `accept` changes with all messages of the current request.
    var draft: StateChange.Draft?
    var settled = [Int](repeating: 0, count: MessageState.allCases.count)
    /// When the log may say again that callbacks are dropped.
    var nextCallbackWarning = MonotonicInstant.distantPast
    // The kind that was bound last: consecutive messages are mostly of one kind.
    private var lastKind: (kind: Kind, number: Int64)?

    init(number: UpstreamNumber, ledger: Ledger) {
        self.number = number
        committed = ledger
    }

    var isChanged: Bool { added != Ledger() }
    var hasSettled: Bool { settled.contains { $0 > 0 } }

    func kindNumber(of kind: Kind, in kinds: KindTable) -> Int64 {
        if let lastKind, lastKind.kind == kind { return lastKind.number }
        let number = Int64(kinds.number(of: kind))
        lastKind = (kind, number)
        return number
    }

    /// Counts a message that was added to the queue.
    func accept(_ id: MessageID, bytes: Int) {
        added.lastID = Int(id.rawValue)
        added.accepted += 1
        added.counts.queued += 1
        added.queuedBytes += bytes
    }

    /// Adds the change to the row of the upstream, unless the rows of the queue show it (`Ledger.tail`).
    func save(with sql: SQL) throws {
        guard mustSave || added.accepted > 0 else { return }
        // Of several writers, one may commit a message behind those of another that are counted.
        let isShown = !sql.admitsLate && unsaved.accepted + added.accepted <= Ledger.longestTail
        mustSave = mustSave || !isShown
        let change = unsaved + added
        if mustSave, change != Ledger() { try change.add(to: number, with: sql) }
    }

    /// Passes what the current transaction has added to the queue to its owner, and adds the rest to the row of the upstream.
    func tellOwner(by writer: any StoreWriter, with sql: SQL) throws {
        var rest = added
        if let appendNotice {
            let arrival = Arrival(of: number, appendNotice)
            try writer.tell(of: arrival, in: sql)
            rest.accepted -= arrival.accepted
            rest.counts.queued -= arrival.accepted
            rest.queuedBytes -= arrival.acceptedBytes
            if rest.accepted == 0 { rest.lastID = 0 }
        }
        if rest != Ledger() { try rest.add(to: number, with: sql) }
        mustSave = true
    }

    /// What others have done to the queue, too, is `ledger`.
    func refresh(_ ledger: Ledger) { committed = ledger }

    func begin() {
        appendNotice = nil
        block.removeAll()
        rows.removeAll()
        openLane = nil
        laneCounts.begin()
        draft = nil
        touchedLanes.removeAll(keepingCapacity: true)
        for state in settled.indices { settled[state] = 0 }
    }

    func didCommit() {
        committed = ledger
        unsaved = mustSave ? Ledger() : unsaved + added
        (added, mustSave) = (Ledger(), false)
    }

    func didRollBack() {
        (added, mustSave) = (Ledger(), false)
        laneCounts.forget()
    }
}

/// How many messages the named lanes have that an upstream's `accept` has counted. To count a long lane again for each message
/// that arrives, or that is rejected because the lane is full, would hold up the writer.
struct LaneCounts {
    /// By the bytes of their names, as the store compares them. Those that are not exact are at least as many.
    private var known: [[UInt8]: (count: Int, isExact: Bool)] = [:]
    /// What has changed since the first mark of the transaction, so that it can be undone. Nil without a mark.
    private var changes: [(lane: [UInt8], by: Int)]?
    /// The maximum number of lanes that are remembered.
    static let most = 10_000

    /// The number of messages of the lane, at most `most`. `count` is called with the same maximum if it is not known.
    mutating func count(of name: String, atMost most: Int, _ count: (Int) throws -> Int) rethrows -> Int {
        let key = Array(name.utf8)
        if let known = known[key], known.isExact || known.count >= most { return min(known.count, most) }
        let found = try count(most)
        if known.count >= Self.most { forget() }
        known[key] = (found, found < most)
        return found
    }

    /// Messages of the lane were stored, or removed if the number is negative.
    mutating func add(_ number: Int, to name: String) {
        guard !known.isEmpty || changes != nil else { return }
        let key = Array(name.utf8)
        known[key]?.count += number
        changes?.append((key, number))
    }

    mutating func begin() { changes = nil }

    /// Returns a mark to which `undo` can go back.
    mutating func mark() -> Int {
        changes = changes ?? []
        return changes?.count ?? 0
    }

    /// Undoes the changes since that mark, also of lanes that were counted after them.
    mutating func undo(to mark: Int) {
        for (lane, number) in changes?[mark...] ?? [] { known[lane]?.count -= number }
        changes?.removeSubrange(mark...)
    }

    /// It is no longer known what the store has.
    mutating func forget() { known.removeAll(keepingCapacity: true) }
}

/// A named lane with queued messages, as it is stored.
struct OpenLane {
    let name: String
    let number: Int64
    /// Nil while it is parked.
    let readyAt: Timestamp?
    /// Whether it is held or parked: arrivals do not make it ready earlier.
    let isBound: Bool

    func isReady(by moment: Timestamp) -> Bool { isBound || readyAt.map { $0 <= moment } ?? false }
}

/// What a transaction added to one queue.
struct AppendNotice {
    /// The ids of its oldest and its newest message.
    let first: MessageID
    var newest: MessageID
    /// The number of messages that can be sent at once, and their payload bytes.
    var messages = 0
    var bytes = 0
    /// The number of all messages, and their payload bytes.
    var accepted = 0
    var acceptedBytes = 0
    /// When the first scheduled message, or the first lane, is due.
    var dueAt: Timestamp?

    init(first: MessageID) { (self.first, newest) = (first, first) }

    mutating func announceDue(at moment: Timestamp) { dueAt = min(dueAt ?? moment, moment) }
}

/// The states by number.
final class UpstreamWriteStates {
    private var all = [UpstreamWriteState?](repeating: nil, count: 256)
    private(set) var open: [UpstreamWriteState] = []

    init(_ ledgers: [UpstreamNumber: Ledger]) {
        for (number, ledger) in ledgers.sorted(by: { $0.key.rawValue < $1.key.rawValue }) {
            add(UpstreamWriteState(number: number, ledger: ledger))
        }
    }

    private func add(_ writeState: UpstreamWriteState) {
        all[Int(writeState.number.rawValue)] = writeState
        open.append(writeState)
    }

    subscript(number: UpstreamNumber) -> UpstreamWriteState {
        if let known = all[Int(number.rawValue)] { return known }
        let writeState = UpstreamWriteState(number: number, ledger: Ledger())
        add(writeState)
        return writeState
    }
}
