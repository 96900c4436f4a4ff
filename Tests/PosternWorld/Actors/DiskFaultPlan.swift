import PosternCore
import PosternSimulatedDisk
import PosternScenarios
import PosternTestKit

/// What the disk does wrong, from one hour to another.
public struct DiskPlan: Sendable, CustomStringConvertible {
    enum Kind: String, CaseIterable, Sendable {
        /// There is no room, or hardly any.
        case full
        /// Some writes fail, and at times a read.
        case errors
        /// Some syncs fail.
        case failedSyncs
        /// Reads and writes do a part only, which is not an error.
        case short
        /// Syncs report success and do nothing. A power cut may then lose something.
        case lies
        /// The same without a mark, so that the loss has to be found. Not part of any drawn plan.
        case secretLies
        /// The sync of the commit that stores a request fails, and the process ends as soon as it has noticed.
        case failedCommit

        var longestHours: Double {
            switch self {
            case .full, .errors: 0.3
            case .failedSyncs, .failedCommit: 1
            case .short, .lies, .secretLies: 3
            }
        }
    }
    let kind: Kind
    let fromHour: Double
    let toHour: Double
    let draw: UInt64

    init(_ hours: Double, _ random: SeededRandom) {
        kind = random.chance(0.1) ? .lies : random.pick([.full, .errors, .failedSyncs, .failedSyncs, .short])
        fromHour = hours * random.fraction()
        toHour = min(hours, fromHour + 0.01 + kind.longestHours * random.fraction())
        draw = random.next()
    }

    init(_ kind: Kind, fromHour: Double, toHour: Double, draw: UInt64) {
        (self.kind, self.fromHour, self.toHour, self.draw) = (kind, fromHour, toHour, draw)
    }

    /// No sync is done, in all hours.
    init(withoutSyncsFor hours: Double) {
        (kind, fromHour, toHour, draw) = (.secretLies, 0, hours, 0)
    }

    public var description: String {
        "the disk: \(kind.rawValue) from hour \(oneDigit(fromHour)) to \(oneDigit(toHour))"
    }

    /// What strikes by chance.
    var faults: DiskFaults {
        let share = 0.2 * SeededRandom(seed: draw, for: "share").fraction()
        var faults = DiskFaults()
        switch kind {
        case .full, .failedSyncs, .failedCommit: break
        case .errors: (faults.failedReads, faults.failedOpens) = (share / 100, share / 10)
        case .short: (faults.shortReads, faults.shortWrites) = (share, share)
        case .lies: faults.lyingSyncs = share
        case .secretLies: faults.secretlyLyingSyncs = 1
        }
        return faults
    }

    /// What strikes the next calls of a sort, however long they take to come.
    func plan(on disk: SimulatedDisk) {
        let random = SeededRandom(seed: draw, for: "strikes")
        switch kind {
        case .short, .lies, .secretLies, .failedCommit: break
        // A file system that copies what it writes may have no room for that, either.
        case .full where room == nil:
            disk.strike(.noSpace, on: .write, after: random.below(40), times: random.from(1...6))
        case .full: break
        case .errors:
            for _ in 0..<random.from(1...3) {
                disk.strike(.ioError, on: .write, after: random.below(40), times: random.from(1...3))
            }
        case .failedSyncs:
            disk.strike(
                .ioError, on: .sync, of: random.pick(["", "", "-wal", ".sqlite"]), after: random.below(12),
                times: random.from(1...3))
        }
    }

    /// Bytes that are left; nil if there is room.
    var room: Int? { kind == .full && draw % 2 == 0 ? SeededRandom(seed: draw, for: "room").from(0...1 << 20) : nil }
}

/// Lets the faults of the disk begin and end.
final class DiskFaultPlan {
    /// How long the gateway may take to notice that the disk works again, on its idle loops.
    private static let recovery = Duration.seconds(900)
    private static let capacityBytes = 256 << 20
    private unowned let world: World
    private var active: [DiskPlan] = []
    private var endedAt: MonotonicInstant?
    /// When something begins or ends next.
    private var nextChange: MonotonicInstant?
    /// Of `failedCommit`, by their draws: those that struck, and those that ended the process.
    private var struck: Set<UInt64> = []
    private var ended: Set<UInt64> = []

    init(_ world: World) { self.world = world }

    /// Returns when this has to be called again.
    func change(at now: MonotonicInstant, since start: MonotonicInstant) -> MonotonicInstant {
        if let nextChange, now < nextChange { return nextChange }
        func instant(_ hour: Double) -> MonotonicInstant { start + .milliseconds(Int(hour * 3_600_000)) }
        let plans = world.plan.diskFaults
        let due = plans.filter { instant($0.fromHour) <= now && now < instant($0.toHour) }
        if due.map(\.draw) != active.map(\.draw) { set(due) }
        let moments = plans.flatMap { [instant($0.fromHour), instant($0.toHour)] }
        let next = moments.filter { $0 > now }.min() ?? .distantFuture
        nextChange = next
        return next
    }

    private func set(_ plans: [DiskPlan]) {
        if plans.isEmpty { endedAt = world.time.instant }
        // What was planned and has not struck yet ends with its plan. The others begin again.
        let hasEnded = active.contains { former in !plans.contains { $0.draw == former.draw } }
        if hasEnded || plans.isEmpty { world.disk.endStrikes() }
        for plan in plans where hasEnded || !active.contains(where: { $0.draw == plan.draw }) {
            plan.plan(on: world.disk)
        }
        active = plans
        world.history.record(plans.isEmpty ? "the disk works" : plans.map(\.description).joined(separator: ", "))
        world.disk.faults = plans.last?.faults ?? DiskFaults()
        let room = plans.compactMap(\.room).min()
        world.disk.capacityBytes = room.map { world.disk.usedBytes + $0 } ?? Self.capacityBytes
    }

    /// A caller posts something.
    func requestArrives() {
        for plan in active where plan.kind == .failedCommit && struck.insert(plan.draw).inserted {
            world.disk.strike(.ioError, on: .sync, of: "-wal")
        }
    }

    /// The gateway has seen that the disk fails. Not every machine survives that.
    func storeHasFailed() {
        guard let plan = active.first(where: { $0.kind == .failedCommit && struck.contains($0.draw) }),
            ended.insert(plan.draw).inserted
        else { return }
        let death = plan.draw % 3 == 0 ? World.Death.powerCut : .kill
        world.history.record("\(death.rawValue) after an error of the disk")
        world.die(death)
    }

    /// The end of a world, when everything works.
    func heal() { set([]) }

    /// Whether the gateway may say that its store does not work.
    var isExcuse: Bool {
        !active.isEmpty || world.isDamaged || endedAt.map { world.time.instant < $0 + Self.recovery } ?? false
    }

    /// Whether a start may fail: one needs no room beyond its reserve, but a disk that can be read, written and synced.
    /// The sync that was to fail for a request may be one of the next start, if the process has ended before it.
    var mayPreventStart: Bool {
        active.contains { plan in
            switch plan.kind {
            case .errors, .failedSyncs: true
            case .full: plan.room == nil
            case .failedCommit: struck.contains(plan.draw)
            case .short, .lies, .secretLies: false
            }
        }
    }

    /// An operator sees to it that the disk works, and has room, during `body`.
    func interrupted(_ body: () -> Void) {
        let capacity = world.disk.capacityBytes
        world.disk.endStrikes()
        world.disk.capacityBytes = Self.capacityBytes
        quietly(body)
        world.disk.endStrikes()
        world.disk.capacityBytes = capacity
    }

    /// The disk works while the world itself looks at what is stored.
    func quietly<Value>(_ body: () throws -> Value) rethrows -> Value {
        let faults = world.disk.faults
        guard faults != DiskFaults() else { return try body() }
        world.disk.faults = DiskFaults()
        defer { world.disk.faults = faults }
        return try body()
    }
}
