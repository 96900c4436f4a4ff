import PosternCore

/// The memory of a mixed queue: where the worker stands in it, and whom it has to pass over. A plain value; the queue
/// guards it.
///
/// Rows up to `cursor` have been looked at: they are gone, being sent (`leased`), due again later (`groups`), not due
/// yet (scheduled ones, found through `scheduledCursor`), or were left for another time (`deferred`). What is kept
/// here is bounded by what can be under way and by `mostLeft`, never by the length of the queue.
struct ClaimState {
    struct Group: Equatable {
        var dueAt: Timestamp
        /// Ascending. Those in `members` no more have left it.
        var ids: [MessageID]
        var history = BatchHistory()
        /// Others of its lanes come first; cleared when a lane becomes free.
        var isHeld = false
    }

    /// Rows left behind beyond which looking further would only collect more of them: about 2 MB.
    static let mostLeft = 65_536

    private(set) var cursor = MessageID(rawValue: 0)
    private(set) var scheduledCursor = ScheduledPlace.beginning
    private(set) var leased: Set<MessageID> = []
    private var removing: Set<MessageID> = []
    /// Lanes of rows that could not be taken because they were about to be removed.
    private var metRemoving: [MessageID: Int64] = [:]
    private(set) var groups: [Group] = []
    /// Lanes of the rows in groups; mixed lanes are numbers without a row of their own.
    private var members: [MessageID: Int64] = [:]
    private(set) var deferred = DeferredRows()
    /// Ids of each lane that later ones have to wait for: being sent, or due again.
    private var holds: [Int64: [MessageID]] = [:]
    /// How many of each lane are being sent; earlier ones, should some come back, wait for those too.
    private var busy: [Int64: Int] = [:]
    /// Rows after the cursor may be there that no arrival told of.
    private(set) var isBehind = true

    var isCrowded: Bool { deferred.count + members.count >= Self.mostLeft }

    func isHeld(_ lane: Int64, before id: MessageID) -> Bool {
        guard lane != 0, let ids = holds[lane] else { return false }
        return busy[lane] != nil || ids.contains { $0 < id }
    }

    private mutating func hold(_ lane: Int64, by id: MessageID) {
        guard lane != 0, holds[lane]?.contains(id) != true else { return }
        holds[lane, default: []].append(id)
    }

    private mutating func free(_ lane: Int64, of id: MessageID) {
        guard lane != 0, holds[lane] != nil else { return }
        holds[lane]?.removeAll { $0 == id }
        if holds[lane]?.isEmpty == true { holds[lane] = nil }
        becameFree(lane)
    }

    private mutating func becameFree(_ lane: Int64) {
        deferred.becameFree(lane)
        for place in groups.indices { groups[place].isHeld = false }
    }

    private mutating func lease(_ message: Message) {
        let lane = message.lane.number
        guard leased.insert(message.id).inserted, lane != 0 else { return }
        busy[lane, default: 0] += 1
        hold(lane, by: message.id)
    }

    private mutating func endLease(_ message: Message) {
        let lane = message.lane.number
        guard leased.remove(message.id) != nil, lane != 0, let count = busy[lane] else { return }
        busy[lane] = count > 1 ? count - 1 : nil
        if count == 1 { becameFree(lane) }
    }

    /// When the next group is due that nobody holds up.
    var nextGroupDue: Timestamp? { groups.lazy.filter { !$0.isHeld }.map(\.dueAt).min() }

    // MARK: Claiming

    mutating func claim(_ scan: inout ClaimScan, from rows: QueueRows) throws {
        do {
            if try !claimGroup(&scan, from: rows) {
                try findScheduled(&scan, from: rows)
                try claimDeferred(&scan, from: rows)
                try claimFresh(&scan, from: rows)
            }
        } catch {
            // What was taken so far must not be lost with the look that failed.
            for message in scan.batch + scan.expired { leave(message.id, lane: message.lane.number) }
            isBehind = true
            throw error
        }
        scan.batch.sort { $0.id < $1.id }
        for message in scan.batch + scan.expired { lease(message) }
    }

    /// Leaves a row for the next look.
    private mutating func leave(_ id: MessageID, lane: Int64) {
        deferred.insert(id, lane: lane)
        deferred.becameFree(lane)
    }

    /// Is somebody else looking after it?
    private func isTakenCareOf(_ id: MessageID, lane: Int64) -> Bool {
        leased.contains(id) || members[id] != nil || deferred.contains(id, lane: lane)
    }

    /// The group that has been due longest, as it is, unless others of its lanes come first.
    private mutating func claimGroup(_ scan: inout ClaimScan, from rows: QueueRows) throws -> Bool {
        while let place = nextDueGroup(at: scan.now) {
            let group = groups[place]
            let found = try group.ids.map { try members[$0] == nil ? nil : rows.row($0) }
            groups.remove(at: place)
            var rest: [MessageID] = []
            for (id, row) in zip(group.ids, found) {
                guard let lane = members[id] else { continue }
                if removing.contains(id) {
                    metRemoving[id] = lane
                    deferred.insert(id, lane: lane)
                } else if let row {
                    // Limits may have shrunk since it was put together.
                    if !rest.isEmpty || !scan.take(row) {
                        rest.append(id)
                        continue
                    }
                }
                members[id] = nil
                free(lane, of: id)
            }
            if !rest.isEmpty { groups.append(Group(dueAt: group.dueAt, ids: rest, history: group.history)) }
            if !scan.isEmpty {
                scan.history = group.history
                scan.isGroup = true
                return true
            }
        }
        return false
    }

    private mutating func nextDueGroup(at now: Timestamp) -> Int? {
        while true {
            let due = groups.indices.filter { groups[$0].dueAt <= now && !groups[$0].isHeld }
            let next = due.min { left, right in
                (groups[left].dueAt, groups[left].ids[0]) < (groups[right].dueAt, groups[right].ids[0])
            }
            guard let next else { return nil }
            guard isHeldByOthers(groups[next]) else { return next }
            groups[next].isHeld = true
        }
    }

    private func isHeldByOthers(_ group: Group) -> Bool {
        let own = Set(group.ids)
        return group.ids.contains { id in
            guard let lane = members[id], lane != 0, let ids = holds[lane] else { return false }
            return busy[lane] != nil || ids.contains { $0 < id && !own.contains($0) }
        }
    }

    /// Brings scheduled rows whose time has come among the deferred ones.
    private mutating func findScheduled(_ scan: inout ClaimScan, from rows: QueueRows) throws {
        guard let due = scan.scheduledSince, due <= scan.now, !isCrowded else { return }
        // One that was accepted late for its time stands before the place reached.
        if due.milliseconds <= scheduledCursor.dueAtMs { scheduledCursor = .init(dueAtMs: due.milliseconds, id: 0) }
        let found = try rows.scheduled(after: scheduledCursor, until: scan.now, limit: scan.limits.maxMessages)
        for row in found where !isTakenCareOf(row.id, lane: row.lane) { leave(row.id, lane: row.lane) }
        if found.count == scan.limits.maxMessages, let last = found.last {
            scheduledCursor = last.place
            scan.nextDue = scan.now
        } else {
            scheduledCursor = .init(dueAtMs: scan.now.milliseconds, id: .max)
            scan.nextDue = try rows.nextScheduled(after: scan.now) ?? .never
        }
    }

    private mutating func claimDeferred(_ scan: inout ClaimScan, from rows: QueueRows) throws {
        while !scan.isFull, let (lane, ids) = deferred.takeFreeLane() {
            var left = ids[...]
            var passedOver: [MessageID] = []
            var isBlocked = false
            defer { deferred.putBack(passedOver + left, lane: lane, mayGoOn: !left.isEmpty && !isBlocked) }
            while let id = left.first, !isBlocked, !scan.isFull {
                if removing.contains(id) {
                    metRemoving[id] = lane
                    isBlocked = lane != 0
                    if !isBlocked { passedOver.append(id) }
                } else if isHeld(lane, before: id) {
                    isBlocked = true
                } else if let row = try rows.row(id), !scan.take(row) {
                    return
                }
                if !isBlocked { left.removeFirst() }
            }
        }
    }

    private mutating func claimFresh(_ scan: inout ClaimScan, from rows: QueueRows) throws {
        guard !scan.isFull, !isCrowded, cursor.rawValue < scan.newest || isBehind else { return }
        var position = cursor
        var isCut = false
        // Also when the look fails: what was taken is left for another one.
        defer { cursor = position }
        try rows.forEachFresh(after: cursor) { row in
            let id = row.id
            let lane = row.laneNumber
            if isTakenCareOf(id, lane: lane) {
                position = id
                return true
            }
            if removing.contains(id) {
                metRemoving[id] = lane
                deferred.insert(id, lane: lane)
            } else if lane != 0, deferred.holds(lane) || isHeld(lane, before: id) {
                deferred.insert(id, lane: lane)
            } else {
                guard scan.fits(row.byteCount) else {
                    isCut = true
                    return false
                }
                scan.take(row.queueRow())
            }
            position = id
            scan.looked(at: row.acceptedAt, bytes: row.byteCount)
            isCut = scan.isFull || isCrowded
            return !isCut
        }
        guard !isCut else { return }
        // All there was is behind; what is gone since needs no second look.
        position = max(position, MessageID(rawValue: scan.newest))
        isBehind = false
        scan.reachedEnd = true
    }

    // MARK: Giving back

    mutating func release(_ messages: [Message]) {
        for message in messages {
            endLease(message)
            free(message.lane.number, of: message.id)
        }
    }

    mutating func sendAgain(_ messages: [Message], from dueAt: Timestamp, history: BatchHistory) {
        guard !messages.isEmpty else { return }
        for message in messages {
            endLease(message)
            members[message.id] = message.lane.number
            hold(message.lane.number, by: message.id)
        }
        groups.append(Group(dueAt: dueAt, ids: messages.map(\.id).sorted(), history: history))
    }

    /// Groups need not wait any longer.
    mutating func hurry(to now: Timestamp) {
        for place in groups.indices { groups[place].dueAt = min(groups[place].dueAt, now) }
    }

    /// They were not sent after all; they are the first to be looked at again.
    mutating func giveBack(_ messages: [Message]) {
        for message in messages { deferred.insert(message.id, lane: message.lane.number) }
        release(messages)
        for message in messages { deferred.becameFree(message.lane.number) }
    }

    /// Rows before the cursor came back.
    mutating func rewind(before id: MessageID) {
        guard id <= cursor else { return }
        cursor = MessageID(rawValue: id.rawValue - 1)
        isBehind = true
    }

    mutating func adopt(_ retries: [(id: MessageID, lane: Int64, dueAt: Timestamp)]) {
        for (dueAt, some) in Dictionary(grouping: retries, by: \.dueAt) {
            groups.append(Group(dueAt: dueAt, ids: some.map(\.id).sorted()))
            for member in some {
                members[member.id] = member.lane
                hold(member.lane, by: member.id)
            }
        }
    }

    // MARK: Removing

    /// Keeps a row from being claimed until `doneRemoving`. False while it is being sent.
    mutating func tryRemoving(_ id: MessageID) -> Bool {
        guard !leased.contains(id) else { return false }
        removing.insert(id)
        return true
    }

    /// The removal is committed (`areGone`) or undone.
    mutating func doneRemoving(_ ids: [MessageID], areGone: Bool) {
        for id in ids {
            removing.remove(id)
            if let lane = metRemoving.removeValue(forKey: id) { deferred.becameFree(lane) }
            if areGone, let lane = members.removeValue(forKey: id) { free(lane, of: id) }
        }
    }
}

/// A place among the scheduled rows, which stand in the order of their time.
struct ScheduledPlace: Equatable {
    var dueAtMs: Int64
    var id: Int64
    static let beginning = ScheduledPlace(dueAtMs: .min, id: 0)
}

extension Timestamp {
}

/// What a batch has been through, as far as this run knows.
public struct BatchHistory: Sendable, Equatable {
    /// Failures of the upstream that it met, in a row.
    public var failures = 0
    /// How many requests the upstream had taken when this batch first came under suspicion; nil before that.
    public var suspectedAfter: Int?

    public init(failures: Int = 0, suspectedAfter: Int? = nil) {
        self.failures = failures
        self.suspectedAfter = suspectedAfter
    }
}

extension Lane {
    /// What the `lane` column of a mixed queue holds.
    var number: Int64 { if case .digest(let digest) = self { digest } else { 0 } }
}
