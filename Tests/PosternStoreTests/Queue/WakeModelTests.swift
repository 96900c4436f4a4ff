import PosternCore
import Testing

@testable import PosternStore

/// Every order in which a worker's scans of a mixed queue can interleave with the writer's commits and announcements.
@Suite struct WakeModelTests {
    @Test(arguments: [(1, [1, 1, 1]), (2, [2, 1, 1]), (10, [1, 1, 1]), (10, [1, 3])])
    func committedMessage_isNeverForgotten_whateverTheOrder(most: Int, commits: [Int]) {
        var model = WakeModel<QueueMailbox>(maxPerClaim: most, commits: commits)
        model.explore()
        #expect(model.violations == [], "after \(model.states) states")
        #expect(model.states > 1000)
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
    /// Returns whether the worker has to be woken.
    mutating func announce(through id: Int64, messages: Int, at instant: MonotonicInstant, limits: BatchLimits) -> Bool
    mutating func lookBegins()
    /// The look has seen `count` rows, up to `id`; `reachedEnd`: all of its snapshot.
    mutating func lookEnds(through id: Int64, count: Int, reachedEnd: Bool, at instant: MonotonicInstant)
    func readiness(limits: BatchLimits, wait: Duration, at instant: MonotonicInstant) -> Readiness
}

extension QueueMailbox: WakeValue {
    init() {
        self.init(arrivals: Arrivals())
        due = NextDue(.never)
    }

    mutating func announce(
        through id: Int64, messages: Int, at instant: MonotonicInstant, limits: BatchLimits
    ) -> Bool {
        arrivals!.add(
            through: MessageID(rawValue: id), messages: messages, bytes: messages, at: instant, limits: limits)
    }

    mutating func lookBegins() { _ = beginScan() }

    mutating func lookEnds(through id: Int64, count: Int, reachedEnd: Bool, at instant: MonotonicInstant) {
        var scan = ClaimScan(ClaimRequest(limits: BatchLimits(maxMessages: 1, maxBytes: 1), now: .never))
        for _ in 0..<count { scan.countExamined(bytes: 1) }
        _ = endScan(&scan, through: MessageID(rawValue: id))
    }

    func readiness(limits: BatchLimits, wait: Duration, at instant: MonotonicInstant) -> Readiness {
        readiness(limits: limits, wait: wait, now: Timestamp(milliseconds: 1), instant: instant)
    }
}

/// A worker and a writer around the value, one step at a time.
struct WakeModel<Value: WakeValue> {
    enum Violation: Hashable {
        /// A message can be claimed, but nothing will make the worker scan in time.
        case forgotten
        /// The worker scans repeatedly although there is nothing to claim.
        case looksInVain
    }

    private enum Worker: Equatable {
        case awake
        case reading
        case ending(through: Int64, count: Int, reachedEnd: Bool)
        case asleep(until: MonotonicInstant?)
    }

    private struct World {
        var value = Value()
        var worker = Worker.asleep(until: nil)
        var isWoken = false
        var instant = MonotonicInstant(nanoseconds: 1_000_000_000)
        var ticks = 0
        /// Steps of the writer done: commit, announce, commit …
        var written = 0
        var committed: Int64 = 0
        /// When each message was announced.
        var announced: [Int64: MonotonicInstant] = [:]
        var claimed: Int64 = 0
        var vainLooks = 0
    }

    let maxPerClaim: Int
    /// Messages of each commit.
    let commits: [Int]
    private(set) var violations: Set<Violation> = []
    private(set) var states = 0

    private let wait = Duration.milliseconds(50)
    private var limits: BatchLimits { BatchLimits(maxMessages: maxPerClaim, maxBytes: 1000) }

    init(maxPerClaim: Int, commits: [Int]) {
        self.maxPerClaim = maxPerClaim
        self.commits = commits
    }

    mutating func explore() { explore(World()) }

    private mutating func explore(_ world: World) {
        states += 1
        check(world)
        // One that is broken has been found out; its paths may have no end.
        guard violations.isEmpty else { return }
        if let next = writerSteps(world) { explore(next) }
        if let next = workerSteps(world) { explore(next) }
        if world.ticks < 3 {
            var next = world
            next.ticks += 1
            next.instant = next.instant + wait
            explore(next)
        }
    }

    private mutating func check(_ world: World) {
        if world.vainLooks > 1 { violations.insert(.looksInVain) }
        guard case .asleep(let until) = world.worker, !world.isWoken else { return }
        let waiting = world.announced.filter { $0.key > world.claimed }
        guard let oldest = waiting.values.min() else { return }
        if until.map({ $0 > oldest + wait }) ?? true { violations.insert(.forgotten) }
    }

    /// The writer commits, then announces, then commits the next.
    private func writerSteps(_ world: World) -> World? {
        guard world.written < commits.count * 2 else { return nil }
        var world = world
        let count = commits[world.written / 2]
        if world.written.isMultiple(of: 2) {
            world.committed += Int64(count)
        } else {
            for id in world.committed - Int64(count) + 1...world.committed { world.announced[id] = world.instant }
            let wakes = world.value.announce(
                through: world.committed, messages: count, at: world.instant, limits: limits)
            world.isWoken = world.isWoken || wakes
            world.vainLooks = 0
        }
        world.written += 1
        return world
    }

    private func workerSteps(_ world: World) -> World? {
        var world = world
        switch world.worker {
        case .asleep(let until):
            guard world.isWoken || until.map({ $0 <= world.instant }) ?? false else { return nil }
            world.isWoken = false
            world.worker = .awake
        case .awake:
            switch world.value.readiness(limits: limits, wait: wait, at: world.instant) {
            case .now:
                world.value.lookBegins()
                world.worker = .reading
            case .collecting(let until): world.worker = .asleep(until: until)
            case .due, .nothing: world.worker = .asleep(until: nil)
            }
        case .reading:
            let last = min(world.committed, world.claimed + Int64(maxPerClaim))
            world.worker = .ending(
                through: last, count: Int(last - world.claimed), reachedEnd: last - world.claimed < maxPerClaim)
        case .ending(let last, let count, let reachedEnd):
            world.value.lookEnds(through: last, count: count, reachedEnd: reachedEnd, at: world.instant)
            world.vainLooks = last > world.claimed ? 0 : world.vainLooks + 1
            world.claimed = last
            world.worker = .awake
        }
        return world
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

    mutating func announce(
        through id: Int64, messages: Int, at instant: MonotonicInstant, limits: BatchLimits
    ) -> Bool {
        newest = id
        arrived += messages
        let isFirst = first == nil
        first = first ?? instant
        let waiting = arrived - looked
        return isFirst || (waiting >= limits.maxMessages && waiting - messages < limits.maxMessages)
    }

    mutating func lookBegins() { atBegin = (first, arrived) }

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

    mutating func announce(
        through id: Int64, messages: Int, at instant: MonotonicInstant, limits: BatchLimits
    ) -> Bool { real.announce(through: id, messages: messages, at: instant, limits: limits) }
    mutating func lookBegins() { real.lookBegins() }
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

    mutating func announce(
        through id: Int64, messages: Int, at instant: MonotonicInstant, limits: BatchLimits
    ) -> Bool { real.announce(through: id, messages: messages, at: instant, limits: limits) }
    mutating func lookBegins() { real.lookBegins() }
    mutating func lookEnds(through id: Int64, count: Int, reachedEnd: Bool, at instant: MonotonicInstant) {
        real.lookEnds(through: real.arrivals!.newest.rawValue, count: count, reachedEnd: reachedEnd, at: instant)
    }
    func readiness(limits: BatchLimits, wait: Duration, at instant: MonotonicInstant) -> Readiness {
        real.readiness(limits: limits, wait: wait, at: instant)
    }
}
