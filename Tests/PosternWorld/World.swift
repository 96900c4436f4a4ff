import Foundation
import Logging
import PosternCore
import PosternDelivery
import PosternSimulatedDisk
import PosternStore
import PosternScenarios
import PosternTestKit
import PosternUpstream

@testable import PosternGateway

/// A whole gateway and all around it, on one thread, in virtual time. The gateway is the production code; what it runs
/// on is not: clock, threads, chance, upstreams, callers and the operator are drawn from one seed, so a run can be
/// repeated.
public final class World {
    /// How long everything may take to become quiet once the faults have ended.
    static let longestEnd = Duration.seconds(24 * 3600)

    let plan: Plan
    let time = ManualTime(instant: MonotonicInstant(nanoseconds: 1_000_000_000_000_000))
    let upstreamTime: UpstreamTime
    let history: History
    let expectations = Expectations()
    let promises: Promises
    let services: [Service]
    /// Nil while the gateway is down.
    var run: Run?
    var runs = 0
    /// The number of runs that ended in order; they are not among `runs`.
    var stops = 0
    /// The threads of this run, or of the time between two.
    var threads: ManualThreads
    private(set) var callers: Callers?
    /// Nil if the plan has none.
    private(set) var devices: Devices?
    var scenarios: [any Scenario] { callers?.scenarios ?? [] }
    /// For the configuration.
    let directory: String
    /// For the store.
    let disk: SimulatedDisk
    private(set) lazy var weather = DiskFaultPlan(self)
    private(set) lazy var rateCheck = RateCheck(self)
    private(set) lazy var massRejections = MassRejections(self)
    private(set) lazy var erasures = ErasureWatch(self)
    private(set) lazy var callbacks = CallbackWatch(self)
    private(set) lazy var alerts = AlertPromises(self)
    private(set) lazy var credentials = CredentialsWatch(self)
    private(set) lazy var endpoints = EndpointWatch(self)
    private(set) lazy var holds = HoldWatch(self)
    private(set) lazy var turns = TurnWatch(self)
    private(set) lazy var moves = QueueMoves(self)
    private(set) lazy var replays = ReplayWatch(self)
    private let chance: SeededRandom
    /// Hand-overs until the process ends; nil: it is not going to.
    var deathAfter: Int?
    /// Whether it ends as soon as a request has left for what is sent once.
    var diesWhileUncertain = false
    /// How it ends then, or when the disk stops it.
    var death = Death.kill
    /// Names of types that are left out of the configuration.
    var removed: Set<String> = []
    /// Whether the gateway's clock was set, or it stood still for long between two steps.
    private(set) var wasClockSet = false
    /// When the clock was set, or the gateway started with a clock that had been set.
    private(set) var clockSetAt: MonotonicInstant?
    /// Within that time an idle gateway looks at its clock.
    private static let clockLook = Duration.seconds(900)
    /// How often the configuration was changed.
    var reloads = 0
    /// How often the encryption key was changed, and the first key that a credential in the store may need.
    var keyChanges = 0
    var oldestKey = 0
    /// Names of types of which settled messages were removed.
    var purged: Set<String> = []
    /// When the operator sets aside a store in which a bit has flipped.
    var damagedUntil: MonotonicInstant?
    /// The latest copy of the store, and how often such a copy has taken its place.
    var backup: Backup?
    var restores = 0
    /// Whether the next start is the first one with it.
    var isRestored = false
    /// What the disk has lost after syncs that it did not do, and whether the store was not examined since.
    var knownLosses = 0
    var hasLost = false
    /// How the operator repairs the store at the next start.
    var repair = App.Options(configFile: ConfigurationFile(""))

    enum Death: String, Sendable {
        case kill
        case powerCut = "power cut"
    }

    /// One life of the gateway's process.
    final class Run {
        let gateway: Services
        let ingress: IngressStub
        let network: Network
        /// Those that send.
        private(set) var workers: [(type: any TypeScenarios, worker: UpstreamWorker, loop: String)] = []
        private let types: [any TypeScenarios]
        init(_ gateway: Services, _ ingress: IngressStub, _ network: Network, _ types: [any TypeScenarios]) {
            (self.gateway, self.ingress, self.network, self.types) = (gateway, ingress, network, types)
            findWorkers()
        }

        /// Call it when there are others.
        func findWorkers() {
            workers = gateway.workerGroup.workers.compactMap { worker in
                types.first { $0.name == worker.name.description }.map { ($0, worker, "to-\($0.name)") }
            }
        }

        /// It hears of nothing that is still under way.
        func abandon() {
            ingress.abandon()
            network.abandon()
        }
    }

    /// Runs that were killed in the middle of a turn, until that turn is over.
    var dead: [Run] = []

    public init(_ plan: Plan) {
        self.plan = plan
        history = History(time)
        upstreamTime = UpstreamTime(time)
        threads = ManualThreads(time: time)
        promises = Promises()
        chance = SeededRandom(seed: plan.seed, for: "threads")
        services = plan.types.map { [upstreamTime] in Service($0, plan, upstreamTime) }
        disk = SimulatedDisk(seed: plan.seed)
        // What is left here by a process that is killed, the next one deletes.
        directory = disk.processFolder + "/world-\(UUID().uuidString)"
        promises.world = self
        callers = Callers(self)
        if !plan.devices.isEmpty { devices = Devices(self) }
        beginThreads()
    }

    deinit { try? FileManager.default.removeItem(atPath: directory) }

    func service(of url: String) -> Service? {
        services.first { url.hasPrefix("http://\($0.name).world") }
    }

    func service(_ name: String) -> Service? { services.first { $0.name == name } }

    var path: String { disk.path("postern.sqlite") }

    // MARK: Threads

    /// What waits for the disk is tried often, so the gateway has to notice soon that the disk works.
    func idleFactor(store condition: String) -> Int {
        switch condition {
        case "sound": plan.settings.idleFactor
        case "full": min(15, plan.settings.idleFactor)
        default: 1
        }
    }

    func beginThreads() {
        threads = ManualThreads(time: time)
        threads.idleFactor = plan.settings.idleFactor
        threads.choose = { [unowned self] due in
            // Other work keeps the processor busy for a moment, now and then for longer.
            if chance.chance(0.02) { return .pass(chance.span(0.0001...(chance.chance(0.05) ? 5 : 0.05))) }
            let index = chance.below(due)
            history.mix(index)
            return .turn(index)
        }
        if let callers { _ = threads.start(callers) }
        if let devices { _ = threads.start(devices) }
    }

    /// One loop turns, or time goes on, until `deadline` at most.
    func step(until deadline: MonotonicInstant) {
        threads.goOn(until: deadline)
        noticeStop()
        noticeLoss()
        promises.afterTurn()
        promises.quiescence.turned(at: time.instant)
    }

    /// Something passes from one part to another: a moment at which the process may end.
    func handOver(_ what: String) {
        guard let left = deathAfter, run != nil else { return }
        deathAfter = left - 1
        guard left <= 0 else { return }
        deathAfter = nil
        history.record("\(death.rawValue) at a \(what)")
        promises.coverage.visit("store: open after a \(death.rawValue) inside a turn")
        die(death)
    }

    /// Once the disk has stopped the process in the middle of a call, nothing that it does counts.
    func noticeStop() {
        guard run != nil, disk.hasStopped else { return }
        recordStop()
        die(death)
    }

    func recordStop() {
        history.record("\(death.rawValue) inside a call of the disk")
        promises.coverage.visit("store: open after a \(death.rawValue) inside a call of the disk")
    }

    /// Whether the gateway has something to do at once.
    var isBusy: Bool { !threads.dueNames.isEmpty }

    /// Has every step shown.
    public func watch(_ show: @escaping (String) -> Void) { history.watch = show }

    /// Whether a worker began with what another one had left.
    var wasTakenOver: Bool { runs > 0 || moves.count > 0 }

    // MARK: The clock

    func clockWillBeSet() {
        wasClockSet = true
        clockSetAt = time.instant
    }

    /// No part of the gateway has had a turn meanwhile.
    func stoodStill() {
        clockSetAt = time.instant
        credentials.stoodStill()
    }

    /// After a start the gateway compares its clock with what the process before has recorded.
    func processStarts() { if clockSetAt != nil { clockSetAt = time.instant } }

    /// Whether the gateway has had the time to see where its clock stands.
    var hasSeenClock: Bool { clockSetAt.map { time.instant - $0 >= Self.clockLook } ?? true }

    // MARK: From the beginning to the end

    /// Returns the promise that was broken, if one was.
    public func simulate() -> Report {
        let began = time.instant
        let end = began + .milliseconds(Int(plan.hours * 3_600_000))
        let operators = Operator(self)
        let waits = Waits(self)
        start()
        while time.instant < end, promises.broken == nil {
            if let damagedUntil, time.instant >= damagedUntil { endDamage() }
            let change = weather.change(at: time.instant, since: began)
            let action = operators.act(at: time.instant, since: began)
            let moved = moves.look()
            let deadline = min(change, action, damagedUntil ?? .distantFuture, endpoints.look(), moved)
            guard time.instant < end, promises.broken == nil else { break }
            if time.instant >= waits.nextAt { waits.look() }
            if run == nil { restart() } else { step(until: min(deadline, end, waits.nextAt)) }
        }
        if promises.broken == nil { Ending(self).play() }
        if run != nil, promises.broken == nil { stop() }
        // What goes with it may still look for it.
        let last = run
        run = nil
        last?.abandon()
        if last != nil || !dead.isEmpty { endThreads() }
        threads.abandon()
        return Report(
            plan: plan, broken: promises.broken, digest: history.digest, steps: history.steps,
            hours: (time.instant - began) / .seconds(3600), lastSteps: history.lastSteps + promises.lastErrors,
            coverage: promises.coverage, messages: expectations.entries.count,
            requests: services.reduce(0) { $0 + $1.requests }, runs: runs + 1,
            storeBytes: promises.largestBytes)
    }

    /// After a time in which there is no gateway.
    func restart() {
        endThreads()
        let pause = chance.span(0.2...(chance.chance(0.2) ? 3600 : 60))
        let end = time.instant + pause
        while time.instant < end { threads.goOn(until: end) }
        if chance.chance(0.7) { removed = [] }
        start()
        if run != nil { promises.restarted() }
    }
}
