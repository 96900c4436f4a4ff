import PosternCore
import PosternUpstream
import Testing

@testable import PosternStore

/// Every order in which a worker's scans of a mixed queue can interleave with the writer's commits and announcements.
@Suite(.eachEngine) struct WakeModelTests {
    @Test(arguments: [(1, [1, 1, 1]), (2, [2, 1, 1]), (10, [1, 1, 1]), (10, [1, 3])])
    func committedMessage_isNeverForgotten_whateverTheOrder(most: Int, commits: [Int]) {
        var model = WakeModel<QueueMailbox>(maxPerClaim: most, commits: commits)
        model.explore()
        #expect(model.violations == [], "after \(model.states) states")
        #expect(model.states > 1000)
    }

    /// Several writers: ids are assigned before the commit, so they are not committed in their order.
    @Test(arguments: [
        (1, [[2], [1]]), (2, [[2], [1], [3]]), (10, [[3], [1], [2]]), (1, [[3], [2], [1]]), (2, [[2, 3], [1]]),
        (10, [[1, 3], [2]]),
    ])
    func committedMessage_isNeverForgotten_ifALaterOneWasCommittedBefore(most: Int, commits: [[Int64]]) {
        var model = WakeModel<QueueMailbox>(maxPerClaim: most, commits: commits, announcements: .beforeEachLook)
        model.explore()
        #expect(model.violations == [], "after \(model.states) states")
        #expect(model.states > 100)
    }

    /// A look can have seen a later one before its announcement.
    @Test(arguments: [
        (1, [[2], [1]]), (2, [[2, 3], [1]]), (10, [[1], [3], [2]]),
    ])
    func committedMessage_isNeverForgotten_ifALookHasSeenALaterOneBefore(most: Int, commits: [[Int64]]) {
        var model = WakeModel<MailboxOfOneWriter>(maxPerClaim: most, commits: commits, announcements: .atAnyTime)
        model.explore()
        #expect(model.violations == [], "after \(model.states) states")
        #expect(model.states > 100)
    }

    @Test func model_findsTheLateMessage_ofAValueThatDropsWhatIsBelowTheCursor() {
        var model = WakeModel<DropsWhatComesLate>(
            maxPerClaim: 10, commits: [[2], [1]], announcements: .beforeEachLook)
        model.explore()
        #expect(model.violations.contains(.forgotten))
    }

    /// A late message could not be distinguished from one that the look has seen.
    @Test func model_findsTheLateMessage_ofALookThatDoesNotReadTheAnnouncementsFirst() {
        var model = WakeModel<QueueMailbox>(maxPerClaim: 10, commits: [[1], [3], [2]], announcements: .atAnyTime)
        model.explore()
        #expect(model.violations.contains(.forgotten))
    }

    /// The model can fail: this is how arrivals were counted when messages lay for seconds.
    @Test func model_findsTheLostWakeUp_ofAFirstArrivalThatAClaimHasSeen() {
        var model = WakeModel<FlagOfFirstArrival>(maxPerClaim: 10, commits: [1, 1, 1])
        model.explore()
        #expect(model.violations.contains(.forgotten))
    }

    @Test func model_findsTheVainLooks_ofAValueThatForgetsToDropWhatWasSeen() {
        var model = WakeModel<KeepsWhatWasSeen>(maxPerClaim: 10, commits: [1, 1, 1])
        model.explore()
        #expect(model.violations.contains(.looksInVain))
    }

    @Test func model_findsTheMessage_thatAnAnnouncementIsNotKeptFor() {
        var model = WakeModel<DropsAllAtTheEndOfALook>(maxPerClaim: 10, commits: [1, 1, 1])
        model.explore()
        #expect(model.violations.contains(.forgotten))
    }

    /// Removals against one claim: what is removed is never sent, and what could not be removed is.
    @Test(arguments: [true, false]) func removal_andClaim_neverGetTheSameMessage(isCommitted: Bool) {
        let message = Message(id: MessageID(rawValue: 1), kind: "thing", acceptedAt: .never, payload: [])
        let worker = ["begin", "end"]
        let writer = ["try", "done"]
        for order in interleavings(worker, writer) {
            var leases = Leases()
            var isRemoving = false
            var refused: [MessageID] = []
            for step in order {
                switch step {
                case "begin": leases.beginScan()
                case "end": refused = leases.endScan(taking: [message]) { _ in 0 } ?? []
                case "try": isRemoving = leases.tryRemoving(message.id)
                default: if isRemoving { leases.doneRemoving([message.id], areGone: isCommitted) }
                }
            }
            // The row is read at the beginning: a look that began after the removal finds nothing.
            let wasGone = isRemoving && isCommitted && order.firstIndex(of: "done")! < order.firstIndex(of: "begin")!
            guard !wasGone else { continue }
            #expect(!(isRemoving && isCommitted && leases.contains(message.id)), "\(order)")
            let mustBeSent = !isRemoving || (!isCommitted && order.last == "end")
            #expect(!mustBeSent || leases.contains(message.id), "\(order)")
            // Refused as long as the removal can be undone; the worker hears of its end.
            #expect(refused.isEmpty == !(isRemoving && order.last == "done"), "\(order)")
        }
    }
}

func interleavings<Step>(_ left: [Step], _ right: [Step]) -> [[Step]] {
    guard let first = left.first else { return [right] }
    guard let second = right.first else { return [left] }
    return interleavings(Array(left.dropFirst()), right).map { [first] + $0 }
        + interleavings(left, Array(right.dropFirst())).map { [second] + $0 }
}

/// What the model needs of the value that the writer and the worker share.
protocol WakeValue {
    init()
    /// Announces the messages of a commit, by their ascending ids. Returns whether the worker has to be woken.
    mutating func announce(_ ids: [Int64], at instant: MonotonicInstant, limits: BatchLimits) -> Bool
    /// The id to which claims have to go back; nil if none was announced since the last call.
    mutating func takeRewind() -> Int64?
    /// Returns the newest id that was announced.
    mutating func lookBegins() -> Int64
    /// The look has seen `count` rows, up to `id`; `reachedEnd`: all of its snapshot.
    mutating func lookEnds(through id: Int64, count: Int, reachedEnd: Bool, at instant: MonotonicInstant)
    func readiness(limits: BatchLimits, wait: Duration, at instant: MonotonicInstant) -> Readiness
}

extension WakeValue {
    mutating func takeRewind() -> Int64? { nil }
}

extension QueueMailbox: WakeValue {
    init() {
        self.init(announcements: Announcements())
        due = NextDue(.never)
    }

    mutating func announce(_ ids: [Int64], at instant: MonotonicInstant, limits: BatchLimits) -> Bool {
        var notice = AppendNotice(first: MessageID(rawValue: ids[0]))
        (notice.messages, notice.bytes) = (ids.count, ids.count)
        notice.newest = MessageID(rawValue: ids[ids.count - 1])
        return add(notice, at: instant, limits: limits)
    }

    mutating func takeRewind() -> Int64? { takeUpdates().rewindsTo?.rawValue }
    mutating func lookBegins() -> Int64 { beginScan().newest.rawValue }

    mutating func lookEnds(through id: Int64, count: Int, reachedEnd: Bool, at instant: MonotonicInstant) {
        var scan = ClaimScan(ClaimRequest(limits: BatchLimits(maxMessages: 1, maxBytes: 1), now: .never))
        for _ in 0..<count { scan.countExamined(bytes: 1) }
        _ = endScan(&scan, through: MessageID(rawValue: id), frontier: MessageID(rawValue: id))
    }

    func readiness(limits: BatchLimits, wait: Duration, at instant: MonotonicInstant) -> Readiness {
        readiness(limits: limits, wait: wait, now: Timestamp(milliseconds: 1), instant: instant)
    }
}

/// The mailbox of a process that is one of several writers.
struct MailboxOfOneWriter: WakeValue {
    private var real = QueueMailbox(announcements: Announcements(hasOtherWriters: true))

    init() { real.due = NextDue(.never) }

    mutating func announce(_ ids: [Int64], at instant: MonotonicInstant, limits: BatchLimits) -> Bool {
        real.announce(ids, at: instant, limits: limits)
    }
    mutating func takeRewind() -> Int64? { real.takeRewind() }
    mutating func lookBegins() -> Int64 { real.lookBegins() }
    mutating func lookEnds(through id: Int64, count: Int, reachedEnd: Bool, at instant: MonotonicInstant) {
        real.lookEnds(through: id, count: count, reachedEnd: reachedEnd, at: instant)
    }
    func readiness(limits: BatchLimits, wait: Duration, at instant: MonotonicInstant) -> Readiness {
        real.readiness(limits: limits, wait: wait, at: instant)
    }
}

/// A worker and writers around the value, one step at a time.
struct WakeModel<Value: WakeValue> {
    enum Violation: Hashable {
        /// A message can be claimed, but nothing will make the worker scan in time.
        case forgotten
        /// The worker scans repeatedly although there is nothing to claim.
        case looksInVain
    }

    /// How commits are announced.
    enum Announcements {
        /// By the only writer, each before its next commit.
        case afterEachCommit
        /// Some time after the commit, in the order of the ids. A look first announces what its snapshot contains.
        case beforeEachLook
        /// The same, but a look does not.
        case atAnyTime
    }

    private enum Worker: Equatable {
        case awake
        case reading(newest: Int64)
        case ending(through: Int64, count: Int, reachedEnd: Bool)
        case asleep(until: MonotonicInstant?)
    }

    private struct World {
        var value = Value()
        var worker = Worker.asleep(until: nil)
        var isWoken = false
        var instant = MonotonicInstant(nanoseconds: 1_000_000_000)
        var ticks = 0
        /// Commits that were made.
        var written = 0
        /// Those of them that were not announced.
        var unannounced: [[Int64]] = []
        /// When each message was announced.
        var announced: [Int64: MonotonicInstant] = [:]
        /// The ids that were committed.
        var rows: Set<Int64> = []
        var claimed: Set<Int64> = []
        var cursor: Int64 = 0
        /// Whether there may be rows after the cursor that were not announced.
        var isBehind = false
        var vainLooks = 0

        mutating func goBack() {
            guard let id = value.takeRewind() else { return }
            cursor = min(cursor, id - 1)
            isBehind = true
        }
    }

    let maxPerClaim: Int
    /// The ids of each commit.
    let commits: [[Int64]]
    let announcements: Announcements
    private(set) var violations: Set<Violation> = []
    private(set) var states = 0

    private let wait = Duration.milliseconds(50)
    /// What a look has seen before its announcement is looked for again, once more if it is announced during a look.
    private var maxVainLooks: Int { if case .atAnyTime = announcements { 2 } else { 1 } }
    /// There are many more orders if a look announces nothing.
    private var maxTicks: Int { if case .atAnyTime = announcements { 1 } else { 3 } }
    private var limits: BatchLimits { BatchLimits(maxMessages: maxPerClaim, maxBytes: 1000) }

    init(maxPerClaim: Int, commits: [[Int64]], announcements: Announcements) {
        self.maxPerClaim = maxPerClaim
        self.commits = commits
        self.announcements = announcements
    }

    /// Commits of so many messages, in the order of their ids.
    init(maxPerClaim: Int, commits: [Int]) {
        var last: Int64 = 0
        let ids = commits.map { count in
            defer { last += Int64(count) }
            return Array(last + 1...last + Int64(count))
        }
        self.init(maxPerClaim: maxPerClaim, commits: ids, announcements: .afterEachCommit)
    }

    mutating func explore() { explore(World()) }

    private mutating func explore(_ world: World) {
        states += 1
        check(world)
        // One that is broken has been found out; its paths may have no end.
        guard violations.isEmpty else { return }
        for next in writerSteps(world) { explore(next) }
        if let next = workerSteps(world) { explore(next) }
        if world.ticks < maxTicks {
            var next = world
            next.ticks += 1
            next.instant = next.instant + wait
            explore(next)
        }
    }

    private mutating func check(_ world: World) {
        if world.vainLooks > maxVainLooks { violations.insert(.looksInVain) }
        guard case .asleep(let until) = world.worker, !world.isWoken else { return }
        let waiting = world.announced.filter { !world.claimed.contains($0.key) }
        guard let oldest = waiting.values.min() else { return }
        if until.map({ $0 > oldest + wait }) ?? true { violations.insert(.forgotten) }
    }

    private func writerSteps(_ world: World) -> [World] {
        var steps: [World] = []
        if !world.unannounced.isEmpty {
            var next = world
            announce(&next)
            steps.append(next)
        }
        var isNext = world.written < commits.count
        if case .afterEachCommit = announcements { isNext = isNext && world.unannounced.isEmpty }
        guard isNext else { return steps }
        var next = world
        next.rows.formUnion(commits[world.written])
        next.unannounced.append(commits[world.written])
        next.written += 1
        return steps + [next]
    }

    private func announce(_ world: inout World) {
        for ids in world.unannounced.sorted(by: { $0[0] < $1[0] }) {
            for id in ids { world.announced[id] = world.instant }
            let wakes = world.value.announce(ids, at: world.instant, limits: limits)
            world.isWoken = world.isWoken || wakes
        }
        world.unannounced = []
        world.vainLooks = 0
    }

    private func workerSteps(_ world: World) -> World? {
        var world = world
        switch world.worker {
        case .asleep(let until):
            guard world.isWoken || until.map({ $0 <= world.instant }) ?? false else { return nil }
            world.isWoken = false
            world.worker = .awake
        case .awake:
            world.goBack()
            switch world.isBehind ? .now : world.value.readiness(limits: limits, wait: wait, at: world.instant) {
            case .now:
                guard case .beforeEachLook = announcements else {
                    world.worker = .reading(newest: world.value.lookBegins())
                    break
                }
                if !world.unannounced.isEmpty { announce(&world) }
                world.goBack()
                // What it announces and what it reads are one snapshot.
                read(&world, newest: world.value.lookBegins())
            case .collecting(let until): world.worker = .asleep(until: until)
            case .due, .nothing: world.worker = .asleep(until: nil)
            }
        case .reading(let newest): read(&world, newest: newest)
        case .ending(let last, let count, let reachedEnd):
            world.value.lookEnds(through: last, count: count, reachedEnd: reachedEnd, at: world.instant)
            world.worker = .awake
        }
        return world
    }

    private func read(_ world: inout World, newest: Int64) {
        let found = world.rows.subtracting(world.claimed).filter { $0 > world.cursor }.sorted().prefix(maxPerClaim)
        let reachedEnd = found.count < maxPerClaim
        world.cursor = max(found.last ?? world.cursor, reachedEnd ? newest : 0)
        if reachedEnd { world.isBehind = false }
        world.claimed.formUnion(found)
        world.vainLooks = found.isEmpty ? world.vainLooks + 1 : 0
        world.worker = .ending(through: world.cursor, count: found.count, reachedEnd: reachedEnd)
    }
}

// MARK: - Values with a fault, so that the model is known to find it

/// Keeps a flag for the first arrival, which a claim clears unless it was set meanwhile.
struct FlagOfFirstArrival: WakeValue {
    private var newest: Int64 = 0
    private var cursor: Int64 = 0
    private var arrived = 0
    private var looked = 0
    private var first: MonotonicInstant?
    private var atBegin: (first: MonotonicInstant?, arrived: Int) = (nil, 0)

    mutating func announce(_ ids: [Int64], at instant: MonotonicInstant, limits: BatchLimits) -> Bool {
        let messages = ids.count
        newest = ids[messages - 1]
        arrived += messages
        let isFirst = first == nil
        first = first ?? instant
        let waiting = arrived - looked
        return isFirst || (waiting >= limits.maxMessages && waiting - messages < limits.maxMessages)
    }

    mutating func lookBegins() -> Int64 {
        atBegin = (first, arrived)
        return newest
    }

    mutating func lookEnds(through id: Int64, count: Int, reachedEnd: Bool, at instant: MonotonicInstant) {
        cursor = max(cursor, id)
        looked = reachedEnd ? atBegin.arrived : min(looked + count, atBegin.arrived)
        if first == atBegin.first { first = reachedEnd ? nil : instant }
    }

    func readiness(limits: BatchLimits, wait: Duration, at instant: MonotonicInstant) -> Readiness {
        guard newest > cursor else { return .nothing }
        guard let first, arrived - looked < limits.maxMessages, first + wait > instant else { return .now }
        return .collecting(until: first + wait)
    }
}

/// A claim does not reduce the count.
struct KeepsWhatWasSeen: WakeValue {
    private var real = QueueMailbox()

    mutating func announce(_ ids: [Int64], at instant: MonotonicInstant, limits: BatchLimits) -> Bool {
        real.announce(ids, at: instant, limits: limits)
    }
    mutating func lookBegins() -> Int64 { real.lookBegins() }
    mutating func lookEnds(through id: Int64, count: Int, reachedEnd: Bool, at instant: MonotonicInstant) {
        real.lookEnds(through: 0, count: 0, reachedEnd: reachedEnd, at: instant)
    }
    func readiness(limits: BatchLimits, wait: Duration, at instant: MonotonicInstant) -> Readiness {
        real.readiness(limits: limits, wait: wait, at: instant)
    }
}

/// A claim also subtracts what was announced while it read.
struct DropsAllAtTheEndOfALook: WakeValue {
    private var real = QueueMailbox()

    mutating func announce(_ ids: [Int64], at instant: MonotonicInstant, limits: BatchLimits) -> Bool {
        real.announce(ids, at: instant, limits: limits)
    }
    mutating func lookBegins() -> Int64 { real.lookBegins() }
    mutating func lookEnds(through id: Int64, count: Int, reachedEnd: Bool, at instant: MonotonicInstant) {
        real.lookEnds(through: real.announcements!.newest.rawValue, count: count, reachedEnd: reachedEnd, at: instant)
    }
    func readiness(limits: BatchLimits, wait: Duration, at instant: MonotonicInstant) -> Readiness {
        real.readiness(limits: limits, wait: wait, at: instant)
    }
}

/// Takes a late message for one that a claim has seen.
struct DropsWhatComesLate: WakeValue {
    private var real = QueueMailbox()

    mutating func announce(_ ids: [Int64], at instant: MonotonicInstant, limits: BatchLimits) -> Bool {
        _ = real.takeUpdates()
        return real.announce(ids, at: instant, limits: limits)
    }
    mutating func lookBegins() -> Int64 { real.lookBegins() }
    mutating func lookEnds(through id: Int64, count: Int, reachedEnd: Bool, at instant: MonotonicInstant) {
        real.lookEnds(through: id, count: count, reachedEnd: reachedEnd, at: instant)
    }
    func readiness(limits: BatchLimits, wait: Duration, at instant: MonotonicInstant) -> Readiness {
        real.readiness(limits: limits, wait: wait, at: instant)
    }
}
