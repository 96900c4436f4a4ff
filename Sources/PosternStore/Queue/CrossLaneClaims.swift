import PosternCore
import PosternUpstream

/// The position of the worker in a mixed queue, and the rows that it has skipped. A plain value, which the worker owns.
///
/// Rows up to `cursor` have been examined: they are deleted, being sent, or in `skipped`. Some of those are to be sent
/// again together (`groups`). Scheduled rows are found through `scheduledCursor` when they are due. What is kept here
/// is bounded by what can be in flight and by the scan limit, never by the length of the queue.
struct CrossLaneClaims: QueueClaims {
    struct Group {
        var dueAt: Timestamp
        /// Ascending. Those that are not in `members` have left the group.
        var ids: [MessageID]
        var history = BatchHistory()
        /// Whether earlier messages precede it in each of its lanes; cleared when a lane becomes free.
        var isBlocked = false
    }

    /// Messages of one kind that wait for its endpoint. Above `least`, a scan skips further ones instead of remembering
    /// them. Otherwise one endpoint that is down would fill the scan limit and stop the other kinds. Only messages
    /// without an order are skipped: those of a lane hold up later ones of any kind.
    private struct PostponedKind {
        static let least = 1024
        /// More than what is in flight, so that a probe does not make room.
        static func most(_ limits: BatchLimits) -> Int { max(least, 4 * limits.maxMessages) }

        var count = 0
        /// The first row that a scan has passed.
        var passed: MessageID?
        /// The first scheduled row that it has passed although it is due.
        var passedScheduled: ScheduledPosition?

        /// Whether most of the messages have been sent, and rows were passed.
        var mayRescanPassed: Bool { (passed != nil || passedScheduled != nil) && count < Self.least / 2 }

        mutating func pass(_ id: MessageID) { passed = min(passed ?? id, id) }
        mutating func pass(_ position: ScheduledPosition) {
            passedScheduled = passedScheduled.map { min($0, position) } ?? position
        }
    }

    /// The number of skipped rows from which on a scan would only collect more of them: about 2 MB.
    static let defaultScanLimit = 65_536

    /// The number of rows that one scan looks at while it passes those of a kind.
    private static let passLimit = 1 << 18

    private let scanLimit: Int
    private let sendsKindsApart: Bool
    /// Where messages take turns, each turn has a cursor of its own. Rows up to this one have been examined in all of them,
    /// besides those of turns that have an earlier one.
    private var turns = Turns()
    private var tookLeftLast = false
    private(set) var cursor = MessageID(rawValue: 0)
    /// Ids above this one have not been examined.
    private var frontier = MessageID(rawValue: 0)
    private var scheduledCursor = ScheduledPosition.beginning
    /// Whether rows after it may be due. Until they are found, nothing new is taken, which they could precede.
    private var isScheduleBehind = false
    private var skipped = SkippedRows()
    private var groups: [Group] = []
    /// The lanes of the rows in groups; mixed lanes are numbers without a row of their own.
    private var members: [MessageID: Int64] = [:]
    /// Messages in groups that were postponed without an attempt, because what they need is missing, and their kinds.
    private var postponed: [MessageID: Kind] = [:]
    /// Those of them that other kinds may do without; empty if kinds are not sent apart.
    private var postponedKinds: [Kind: PostponedKind] = [:]
    /// The rows that wait because their kind has been sent as often as it may.
    private var withheld = WithheldRows()
    /// The lanes of rows that could not be taken because the writer was removing them.
    private var awaitingRemoval: [MessageID: Int64] = [:]
    /// Whether there may be rows after the cursor that were not announced.
    private var isBehind = true
    /// Whether rows may have been removed without a notification of the worker.
    private var mustVerify = false
    private var tookGroupLast = false
    /// Whether a lane became free since groups were found blocked.
    private var mayUnblock = false

    /// `sendsKindsApart`: whether what one kind needs may be there while that of another is missing.
    init(scanLimit: Int = defaultScanLimit, sendsKindsApart: Bool = false) {
        self.scanLimit = scanLimit
        self.sendsKindsApart = sendsKindsApart
    }

    // Inlined, because a call would copy all of this for each row.
    @inline(__always) var countInMemory: Int { skipped.count + members.count + withheld.count }
    @inline(__always) private var countOfRows: Int { skipped.count + members.count }
    @inline(__always) var isAtScanLimit: Bool { countOfRows >= scanLimit }
    /// Whether no more rows of a turn are skipped: the rest is for those of others that may be sent.
    @inline(__always) private var isCrowded: Bool { countOfRows >= scanLimit / 2 }
    var mustScan: Bool { skipped.hasFree || mustVerify || ((isBehind || mayRescanPassed) && !isAtScanLimit) }

    /// Whether most of a kind's postponed messages have been sent, and rows of it were passed.
    private var mayRescanPassed: Bool { postponedKinds.values.contains(where: \.mayRescanPassed) }

    /// Whether an earlier message of the lane is being sent, or waits to be sent again. A postponed one waits for the
    /// same reason as those after it.
    func isHeldUp(_ id: MessageID, in lane: Int64) -> Bool? {
        guard lane != 0 else { return false }
        return skipped.isInFlight(lane) || withheld.isWaiting(lane) && skipped.row(at: 0, of: lane) != id
            || skipped.rows(before: id, of: lane).contains { members[$0] != nil && postponed[$0] == nil }
    }

    /// When the next group is due that may have a free lane, or the next kind whose rows are withheld.
    var nextGroupDue: Timestamp? {
        let group = groups.lazy.filter { mayUnblock || !$0.isBlocked }.map(\.dueAt).min()
        return withheld.isEmpty ? group : [group, withheld.due].compactMap(\.self).min()
    }

    func maySend(through id: MessageID, now: Timestamp, from rows: QueueRows) throws -> Bool {
        if cursor < id, !isAtScanLimit, try !turns.isOn || hasUnexamined(through: id, in: rows) { return true }
        let groups = groups.filter { $0.dueAt <= now && !($0.ids.count == 1 && $0.history.suspectTries > 0) }
        let due = Set(groups.flatMap { $0.ids.filter { $0 <= id && members[$0] != nil } })
        return due.contains { members[$0] == 0 }
            || skipped.contains(through: id) { members[$0] == nil ? awaitingRemoval[$0] == nil : due.contains($0) }
    }

    /// The same without cursors, none of which says how far all turns have been examined.
    private func hasUnexamined(through id: MessageID, in rows: QueueRows) throws -> Bool {
        var isFound = false
        try rows.forEachFresh(after: cursor, begin: { _, _ in true }) { message in
            guard message.id <= id else { return false }
            let kind = message.kind
            let wasPassed = message.lane == 0 && (postponedKinds[kind]?.passed != nil || withheld.hasPassed(kind))
            isFound = !wasPassed && !isKnown(message.id, in: message.lane, kind) { _ in false }
            return !isFound
        }
        return isFound
    }

    mutating func share(by weights: [Int64: Int]?) {
        if weights == nil, let least = turns.forget() { rewind(to: least) }
        turns.weights = weights
    }

    // MARK: Claiming

    /// `isLeased` is called for rows that are passed again.
    mutating func look(_ scan: inout ClaimScan, from rows: QueueRows, isLeased: (MessageID) -> Bool) throws {
        do {
            if mustVerify { try findRemoved(in: rows) }
            if !withheld.isEmpty { withheld.update(scan.request.waitingKinds, now: scan.now) }
            try findScheduled(&scan, from: rows, isLeased: isLeased)
            let isFreshFirst = scan.request.preference == .fresh || tookGroupLast
            if isFreshFirst { try claimUnsent(&scan, from: rows, isLeased: isLeased) }
            if scan.isEmpty { try claimGroup(&scan, from: rows) }
            if scan.isEmpty, !isFreshFirst { try claimUnsent(&scan, from: rows, isLeased: isLeased) }
            if sendsKindsApart { for message in scan.keepOneKind() { leave(message.id, in: message.lane.number) } }
            tookGroupLast = scan.isGroup
        } catch {
            // What was taken so far must not be lost if the scan fails.
            for message in scan.messages { leave(message.id, in: message.lane.number) }
            isBehind = true
            throw error
        }
    }

    mutating func end(_ scan: ClaimScan, found: [Message], as leases: Leases, refused: Set<MessageID>?) {
        guard let refused else {
            for index in found.indices { skipped.beginFlight(in: found[index].lane.number) }
            return
        }
        for message in found {
            let (id, lane) = (message.id, message.lane.number)
            if leases.contains(id) {
                skipped.beginFlight(in: lane)
            } else if refused.contains(id) {
                if leases.isRemoving(id) { awaitingRemoval[id] = lane }
                // No message overtakes it before its removal is known.
                if lane != 0 { skipped.insert(id, in: lane) }
            } else {
                becameFree(lane)
            }
        }
    }

    private func isKnown(
        _ id: MessageID, in lane: Int64, _ kind: Kind, _ isLeased: (MessageID) -> Bool
    ) -> Bool {
        guard id <= frontier else { return false }
        return members[id] != nil || awaitingRemoval[id] != nil || skipped.contains(id, in: lane)
            || !withheld.isEmpty && lane == 0 && withheld.contains(id, of: kind) || isLeased(id)
    }

    /// Leaves a row for a later scan.
    private mutating func leave(_ id: MessageID, in lane: Int64) {
        skipped.insert(id, in: lane)
        frontier = max(frontier, id)
        becameFree(lane)
    }

    /// The wait of the lane has ended. If a group is next in it, the group is examined again.
    private mutating func becameFree(_ lane: Int64) {
        laneMoved()
        guard let first = skipped.row(at: 0, of: lane) else { return }
        if lane == 0 || (members[first] == nil && awaitingRemoval[first] == nil) { skipped.becameFree(lane) }
    }

    /// Rows of a lane are no longer waited for.
    private mutating func laneMoved() {
        mayUnblock = true
        if turns.hasCursors { isBehind = true }
    }

    // MARK: Groups

    /// Takes from the group that has been due longest the messages whose lanes are free. The others stay in it.
    private mutating func claimGroup(_ scan: inout ClaimScan, from rows: QueueRows) throws {
        if mayUnblock {
            for index in groups.indices { groups[index].isBlocked = false }
            mayUnblock = false
        }
        while scan.isEmpty, let index = nextGroup(for: scan.request) {
            let free = freeMembers(of: groups[index], atMost: scan.limits.maxMessages)
            let found = try free.map { try rows.row($0) }
            var waitsUntil: Timestamp?
            var waitingLanes: Set<Int64> = []
            for (id, row) in zip(free, found) {
                if let row, let until = scan.request.waitingKinds[row.message.kind] {
                    waitsUntil = min(waitsUntil ?? until, until)
                    waitingLanes.insert(row.message.lane.number)
                } else if let row, row.message.lane != .none, waitingLanes.contains(row.message.lane.number) {
                    continue
                } else {
                    // Limits may have shrunk since the group was formed.
                    if let row, !scan.take(row) { break }
                    leaveGroup(id, isGone: row == nil)
                }
            }
            groups[index].ids.removeAll { members[$0] == nil }
            if scan.isEmpty {
                if let waitsUntil { groups[index].dueAt = waitsUntil } else { groups[index].isBlocked = true }
            }
            scan.history = groups[index].history
            if groups[index].ids.isEmpty { groups.remove(at: index) }
        }
        scan.isGroup = !scan.isEmpty
        if !scan.isGroup { scan.history = BatchHistory() }
    }

    /// The group that has been due longest. A probe carries one of those under suspicion only if there are no others: they
    /// have made probes fail already, and there may be one in each lane.
    private func nextGroup(for request: ClaimRequest) -> Int? {
        func rank(_ group: Group) -> (isSuspected: Int, dueAt: Timestamp, first: MessageID) {
            let isSuspected = request.preference == .fresh && group.history.suspectedAfter != nil
            return (isSuspected ? 1 : 0, group.dueAt, group.ids[0])
        }
        return groups.indices.lazy.filter { index in
            let group = groups[index]
            return group.dueAt <= request.now && !group.isBlocked && request.mayRepeat(group.history, group.ids.count)
        }.min { rank(groups[$0]) < rank(groups[$1]) }
    }

    /// The messages without an earlier one that waits or has to be sent first, unless that one is in the same request.
    private func freeMembers(of group: Group, atMost most: Int) -> [MessageID] {
        var free: [MessageID] = []
        var taken: [Int64: Int] = [:]
        for id in group.ids where free.count < most {
            guard let lane = members[id], awaitingRemoval[id] == nil else { continue }
            if lane != 0 {
                let index = taken[lane, default: 0]
                guard skipped.isNext(id, in: lane, at: index) else { continue }
                taken[lane] = index + 1
            }
            free.append(id)
        }
        return free
    }

    private mutating func leaveGroup(_ id: MessageID, isGone: Bool) {
        guard let lane = members.removeValue(forKey: id) else { return }
        if let kind = postponed.removeValue(forKey: id) { postponedKinds[kind]?.count -= 1 }
        skipped.remove(id, from: lane)
        if isGone { becameFree(lane) }
    }

    // MARK: Scheduled, left and new messages

    /// Adds all scheduled rows that are due to the skipped rows. In their lane, they are ordered by id.
    private mutating func findScheduled(
        _ scan: inout ClaimScan, from rows: QueueRows, isLeased: (MessageID) -> Bool
    ) throws {
        for (kind, state) in postponedKinds where state.mayRescanPassed {
            guard let passed = state.passedScheduled else { continue }
            postponedKinds[kind]?.passedScheduled = nil
            scheduledCursor = min(scheduledCursor, passed.before)
            isScheduleBehind = true
        }
        let most = PostponedKind.most(scan.limits)
        if !withheld.isEmpty, let passed = withheld.takePassedScheduled(ifFewerThan: most / 2) {
            scheduledCursor = min(scheduledCursor, passed.before)
            isScheduleBehind = true
        }
        guard scan.due <= scan.now || isScheduleBehind else { return }
        // A row whose scheduled time is before its acceptance is before the position reached.
        if scan.due.milliseconds <= scheduledCursor.dueAtMs {
            scheduledCursor = .init(dueAtMs: scan.due.milliseconds, id: MessageID(rawValue: 0))
        }
        scan.nextDue = scan.now
        isScheduleBehind = true
        let full = fullKinds(most)
        let waiting = scan.request.waitingKinds
        var passed = 0
        // Whether a kind can be sent is known once some of it was claimed. So not more of it are skipped at a time than
        // may be postponed; those of a lane are, because they hold up later ones.
        while !isAtScanLimit, !sendsKindsApart || skipped.count(of: 0) < most, passed < Self.passLimit {
            let found = try rows.scheduled(after: scheduledCursor, until: scan.now, limit: Self.scheduledPage)
            for (position, lane, kind) in found where !isKnown(position.id, in: lane, kind, isLeased) {
                if lane == 0, full.contains(kind) {
                    postponedKinds[kind]?.pass(position)
                    passed += 1
                } else if lane == 0, let until = waiting[kind] {
                    if withheld.add(scheduled: position, of: kind, until: until, atMost: most) {
                        frontier = max(frontier, position.id)
                    } else {
                        passed += 1
                    }
                } else {
                    leave(position.id, in: lane)
                }
            }
            guard found.count == Self.scheduledPage, let last = found.last else {
                scheduledCursor = .init(dueAtMs: scan.now.milliseconds, id: MessageID(rawValue: .max))
                scan.nextDue = try rows.nextScheduled(after: scan.now) ?? .never
                isScheduleBehind = false
                return
            }
            scheduledCursor = last.position
        }
    }

    /// The kinds of which enough messages are postponed.
    private func fullKinds(_ most: Int) -> Set<Kind> { Set(postponedKinds.filter { $0.value.count >= most }.keys) }

    private static let scheduledPage = 1000

    private mutating func claimUnsent(
        _ scan: inout ClaimScan, from rows: QueueRows, isLeased: (MessageID) -> Bool
    ) throws {
        let isWithheldFirst = !withheld.wasTakenLast
        withheld.wasTakenLast = false
        if isWithheldFirst, !withheld.isEmpty {
            try claimWithheld(&scan, from: rows, isLeased: isLeased)
            if !scan.isEmpty { return }
        }
        // Where messages take turns, rows that were left may be those of one turn only: new ones are first every other
        // time, and then a request that has one kind only has none that were left.
        let isFreshFirst = turns.isOn && tookLeftLast
        if isFreshFirst { try claimFresh(&scan, from: rows, isLeased: isLeased) }
        let mayMix = !turns.isOn || !sendsKindsApart
        if mayMix || scan.isEmpty {
            while !scan.isFull, let lane = skipped.takeFree(), try claimLeft(of: lane, &scan, from: rows) {}
        }
        tookLeftLast = !isFreshFirst && !scan.isEmpty
        if !isFreshFirst, mayMix || scan.isEmpty { try claimFresh(&scan, from: rows, isLeased: isLeased) }
        if !isWithheldFirst, scan.isEmpty, !withheld.isEmpty {
            try claimWithheld(&scan, from: rows, isLeased: isLeased)
        }
    }

    /// Takes withheld rows of the kind that may be sent again and has waited longest.
    private mutating func claimWithheld(
        _ scan: inout ClaimScan, from rows: QueueRows, isLeased: (MessageID) -> Bool
    ) throws {
        while scan.isEmpty, let kind = withheld.next(at: scan.now) {
            try refill(kind, PostponedKind.most(scan.limits), from: rows, isLeased: isLeased)
            let most = scan.request.maxMessagesOfKind[kind] ?? .max
            while !scan.isFull, scan.count < most {
                let (id, lane) = (withheld.firstID(of: kind), withheld.firstLane(of: kind))
                if let lane, let first = skipped.row(at: 0, of: lane), id.map({ first < $0 }) ?? true {
                    withheld.remove(lane: lane)
                    // One with something in flight becomes free after that.
                    if !skipped.isInFlight(lane), try !claimLeft(of: lane, &scan, from: rows) { break }
                } else if let id {
                    if let row = try rows.row(id), !scan.take(row) { break }
                    withheld.removeFirstID(of: kind)
                } else if let lane {
                    withheld.remove(lane: lane)
                } else {
                    break
                }
            }
            if !scan.isEmpty { withheld.wasTaken(kind, now: scan.now) }
            // Nothing of it could be taken although there was room: it waits for its lanes.
            if scan.isEmpty, withheld.hasRows(of: kind) { break }
        }
    }

    /// Finds withheld rows again that a scan has passed, if most of those that were kept have been sent.
    private mutating func refill(
        _ kind: Kind, _ most: Int, from rows: QueueRows, isLeased: (MessageID) -> Bool
    ) throws {
        guard let passed = withheld.takePassed(of: kind, ifFewerThan: most / 2) else { return }
        let room = most - withheld.count(of: kind)
        var found: [MessageID] = []
        // Of a scan that fails, all is passed again.
        var rest: MessageID? = passed
        defer { withheld.keep(found, of: kind, rest: rest) }
        // `claimFresh` finds those after the cursor. Where messages take turns, each turn has its own.
        let end = turns.isOn ? frontier : cursor
        var next: MessageID?
        try rows.forEachFresh(after: MessageID(rawValue: passed.rawValue - 1), begin: { _, _ in true }) { message in
            guard message.id <= end else { return false }
            guard message.lane == 0, message.kind == kind, !isKnown(message.id, in: 0, kind, isLeased) else {
                return true
            }
            guard found.count < room else {
                next = message.id
                return false
            }
            found.append(message.id)
            return true
        }
        rest = next
    }

    /// Returns whether there was room for all of the lane that may be sent.
    private mutating func claimLeft(of lane: Int64, _ scan: inout ClaimScan, from rows: QueueRows) throws -> Bool {
        var done = 0
        var isDone = false
        if !withheld.isEmpty { withheld.remove(lane: lane) }
        let waiting = scan.request.waitingKinds
        let before = scan.count
        // Also if a row cannot be read: the lane would not be looked at again.
        defer {
            skipped.removeFirst(done, from: lane)
            if !isDone { skipped.becameFree(lane, isNext: true) }
            // A group may be next.
            if done > 0 { laneMoved() }
        }
        while let id = skipped.row(at: done, of: lane), members[id] == nil, awaitingRemoval[id] == nil {
            let row = try rows.row(id)
            if !waiting.isEmpty, let kind = row?.message.kind, let until = waiting[kind] {
                if lane == 0 {
                    skipped.remove(id, from: 0)
                    _ = withheld.add(id, of: kind, until: until)
                    continue
                }
                // With an earlier one in flight, the lane becomes free again after that.
                if scan.count == before { withheld.add(lane: lane, of: kind, until: until) }
                break
            }
            guard !scan.isFull, row.map({ scan.take($0) }) ?? true else { return false }
            done += 1
        }
        isDone = true
        return true
    }

    private mutating func claimFresh(
        _ scan: inout ClaimScan, from rows: QueueRows, isLeased: (MessageID) -> Bool
    ) throws {
        if mayRescanPassed { rewindToPassed() }
        guard !scan.isFull, !isAtScanLimit, !isScheduleBehind, cursor < scan.newest || isBehind else { return }
        let most = PostponedKind.most(scan.limits)
        var look = FreshLook(
            full: fullKinds(most), most: most, waiting: scan.request.waitingKinds,
            // Rows that were returned before the cursor lead past some that were just taken.
            taken: cursor < frontier || turns.isOn ? Set(scan.messages.map(\.id)) : [])
        guard !turns.isOn else { return try claimInTurns(&scan, &look, from: rows, isLeased: isLeased) }
        let (end, _) = try examine(nil, &scan, &look, from: rows, isLeased: isLeased)
        guard end == .exhausted else { return }
        // All rows have been examined; rows that were removed since do not have to be examined again.
        cursor = max(cursor, scan.newest)
        isBehind = false
    }

    /// What a scan of new rows needs to know.
    private struct FreshLook {
        /// Kinds of which no more rows are taken.
        let full: Set<Kind>
        /// The most rows of a kind that are kept.
        let most: Int
        /// Kinds that may not be sent now.
        let waiting: [Kind: Timestamp]
        let taken: Set<MessageID>
        var passed = 0
    }

    private enum FreshEnd {
        case exhausted
        /// The turn has had its share.
        case spent
        /// Rows of the turn wait for their lanes, and no more of them are skipped.
        case blocked
        /// The next row is of another kind than the request.
        case otherKind
        /// There is no room.
        case cut
    }

    /// Examines the new rows of a turn, or of the queue if it is nil, until `share` of them were taken. Returns what is left
    /// of that.
    ///
    /// - Parameter wasServed: Whether the scan has taken rows of the turn.
    private mutating func examine(
        _ turn: Int64?, share: Int = .max, wasServed: Bool = false, _ scan: inout ClaimScan, _ look: inout FreshLook,
        from rows: QueueRows, isLeased: (MessageID) -> Bool
    ) throws -> (FreshEnd, rest: Int) {
        let start = turn.flatMap { turns.cursor(of: $0) } ?? cursor
        var position = start
        var end = FreshEnd.exhausted
        var rest = share
        // Also if the scan fails: what was taken is left for another one.
        defer {
            if let turn { turns.examined(turn, through: position, rest: rest) } else { cursor = position }
            frontier = max(frontier, position)
        }
        try rows.forEachFresh(after: start, inTurn: turn) { count, bytes in
            if rest <= 0 { end = .spent } else if !scan.mayBegin(count, of: bytes) { end = .cut }
            return end == .exhausted
        } _: { message in
            let (id, lane, size) = (message.id, message.lane, message.payloadCount)
            // A block is taken whole.
            if rest <= 0, !message.isInBlock {
                end = .spent
                return false
            }
            if !look.taken.contains(id), !isKnown(id, in: lane, message.kind, isLeased) {
                if !look.full.isEmpty, lane == 0, look.full.contains(message.kind) {
                    postponedKinds[message.kind]?.pass(id)
                    look.passed += 1
                } else if !look.waiting.isEmpty, let until = look.waiting[message.kind], skipped.mayTake(id, in: lane) {
                    if lane != 0 {
                        skipped.insert(id, in: lane)
                        withheld.add(lane: lane, of: message.kind, until: until)
                    } else if !withheld.add(id, of: message.kind, until: until, atMost: look.most) {
                        look.passed += 1
                    }
                } else if skipped.mayTake(id, in: lane) {
                    if turn != nil, sendsKindsApart, let kind = scan.kind, kind != message.kind {
                        guard wasServed || rest < share, !isCrowded else {
                            end = .otherKind
                            return false
                        }
                        leave(id, in: lane)
                    } else {
                        guard scan.fits(size) else {
                            end = .cut
                            return false
                        }
                        scan.take(rows.queueRow(message))
                        rest -= 1
                    }
                } else if turn != nil, isCrowded {
                    end = .blocked
                    return false
                } else {
                    skipped.insert(id, in: lane)
                }
                scan.countExamined(bytes: size)
            }
            position = id
            // Not with `||`, whose right side would have a copy of everything.
            if scan.isFull { end = .cut }
            if isAtScanLimit { end = .cut }
            if look.passed >= Self.passLimit { end = .cut }
            return end == .exhausted
        }
        return (end, rest)
    }

    /// Visits turns in a circle, and takes a share of the new rows of each. A scan that finds nothing has been all around.
    private mutating func claimInTurns(
        _ scan: inout ClaimScan, _ look: inout FreshLook, from rows: QueueRows, isLeased: (MessageID) -> Bool
    ) throws {
        var (turn, visits) = (turns.last, 0)
        // Those from which nothing more can be taken in this scan, and those that wait for lanes.
        var (done, blocked, served) = (Set<Int64>(), Set<Int64>(), Set<Int64>())
        var (isCut, hasWrapped, isLive) = (false, false, false)
        // Of a request that has one kind only, the first turn that has another kind is the first of the next scan.
        var passedOver: Int64?
        isBehind = true
        defer {
            turns.last = passedOver.map { $0 - 1 } ?? turn
            if let least = turns.forgetIfMany() { rewind(to: least) }
        }
        while !scan.isFull, !isAtScanLimit, look.passed < Self.passLimit, scan.isEmpty || visits < Turns.perScan {
            guard let next = try rows.nextTurn(after: turn) else {
                if hasWrapped, !isLive {
                    if !isCut {
                        turns.examinedAll(besides: blocked)
                        cursor = max(cursor, scan.newest, frontier)
                        isBehind = false
                    }
                    return
                }
                (turn, hasWrapped, isLive) = (.min, true, false)
                continue
            }
            turn = next
            visits += 1
            guard !done.contains(turn) else { continue }
            isLive = true
            let share = turns.share(of: turn, in: scan.limits)
            guard share > 0 else { continue }
            let (end, rest) = try examine(
                turn, share: share, wasServed: served.contains(turn), &scan, &look, from: rows, isLeased: isLeased)
            if rest < share { served.insert(turn) }
            guard end != .spent else { continue }
            done.insert(turn)
            switch end {
            case .exhausted, .spent: turns.clearDebt(of: turn)
            case .blocked: blocked.insert(turn)
            case .otherKind: (isCut, passedOver) = (true, passedOver ?? turn)
            case .cut: isCut = true
            }
        }
    }

    /// Examines rows behind this one again.
    private mutating func rewind(to id: MessageID) {
        cursor = min(cursor, id)
        turns.rewind(to: id)
        isBehind = true
    }

    /// Looks at rows again that were passed, if their kind has room for them.
    private mutating func rewindToPassed() {
        for (kind, state) in postponedKinds where state.mayRescanPassed {
            guard let passed = state.passed else { continue }
            postponedKinds[kind]?.passed = nil
            rewind(to: MessageID(rawValue: passed.rawValue - 1))
        }
    }

    // MARK: Results of a claim

    mutating func end(_ ended: [Lease], as end: ClaimEnd) {
        switch end {
        case .settled: break
        case .again(let dueAt, _, let history): groupTogether(ended, dueAt: dueAt, history: history)
        case .postponed(let kind, let dueAt, let history):
            groupTogether(ended, dueAt: dueAt, history: history)
            for lease in ended { postponed[lease.id] = kind }
            if sendsKindsApart { postponedKinds[kind, default: PostponedKind()].count += ended.count }
        // They are the first to be examined again.
        case .unsent: for lease in ended { leave(lease.id, in: lease.lane) }
        }
        for lease in ended where skipped.endFlight(in: lease.lane) { becameFree(lease.lane) }
    }

    private mutating func groupTogether(_ rows: [Lease], dueAt: Timestamp, history: BatchHistory = BatchHistory()) {
        for row in rows {
            members[row.id] = row.lane
            if row.lane != 0 { skipped.insert(row.id, in: row.lane) }
            frontier = max(frontier, row.id)
        }
        groups.append(Group(dueAt: dueAt, ids: rows.map(\.id).sorted(), history: history))
    }

    mutating func makeDue(at now: Timestamp) -> Bool {
        for index in groups.indices { groups[index].dueAt = min(groups[index].dueAt, now) }
        withheld.makeDue(at: now)
        return true
    }

    mutating func makePostponedDue(at now: Timestamp) -> Bool {
        for index in groups.indices where groups[index].ids.contains(where: { postponed[$0] != nil }) {
            groups[index].dueAt = min(groups[index].dueAt, now)
        }
        return true
    }

    mutating func adoptLeftovers(from rows: QueueRows) throws -> Timestamp? {
        let (retries, scheduled) = try rows.leftovers()
        for (dueAt, rows) in Dictionary(grouping: retries, by: \.dueAt) {
            groupTogether(rows.map { Lease(id: $0.id, lane: $0.lane) }, dueAt: dueAt)
        }
        return scheduled ?? .never
    }

    // MARK: Changes by the writer

    mutating func apply(_ updates: QueueMailbox.PendingUpdates) {
        mustVerify = mustVerify || updates.isCut
        // The row of the kind that a lane waits for may be gone.
        if !withheld.isEmpty, !updates.removals.isEmpty || updates.isCut {
            for lane in withheld.takeLanes() { becameFree(lane) }
        }
        for removal in updates.removals { recordRemoval(of: removal.id, isGone: removal.isGone) }
        // Rows before the cursor were returned or came late, or rows after it were never announced.
        if let id = updates.rewindsTo { rewind(to: MessageID(rawValue: id.rawValue - 1)) }
        if let now = updates.makesDueAt { _ = makeDue(at: now) }
    }

    private mutating func recordRemoval(of id: MessageID, isGone: Bool) {
        guard let lane = awaitingRemoval.removeValue(forKey: id) ?? members[id] else { return }
        if isGone {
            leaveGroup(id, isGone: true)
            skipped.remove(id, from: lane)
        } else if members[id] == nil {
            skipped.insert(id, in: lane)
        }
        becameFree(lane)
    }

    /// More was removed than was announced: checks the rows that others wait for.
    private mutating func findRemoved(in rows: QueueRows) throws {
        for id in Array(members.keys) + Array(awaitingRemoval.keys) {
            let isGone = try !rows.exists(id)
            if isGone || members[id] == nil { recordRemoval(of: id, isGone: isGone) }
        }
        mustVerify = false
    }
}

/// A position among the scheduled rows, which are ordered by time.
struct ScheduledPosition: Equatable, Comparable {
    var dueAtMs: Int64
    var id: MessageID
    static let beginning = ScheduledPosition(dueAtMs: .min, id: MessageID(rawValue: 0))

    /// The position after which this one is the next.
    var before: Self { Self(dueAtMs: dueAtMs, id: MessageID(rawValue: id.rawValue - 1)) }

    static func < (left: Self, right: Self) -> Bool { (left.dueAtMs, left.id) < (right.dueAtMs, right.id) }
}
