import Foundation
import Logging
import PosternCore
import PosternTestKit

@testable import PosternGateway

/// A whole gateway and all around it, on one thread, in virtual time. The gateway is the production code; what it runs on
/// is not: clock, threads, chance, upstreams, callers and the operator are drawn from one seed, so a run can be repeated.
public final class World {
    static let tokenPrefix = "PiTok-"
    /// How long everything may take to become quiet once the faults have ended.
    static let longestEnd = Duration.seconds(24 * 3600)

    let plan: Plan
    let time = ManualTime(instant: MonotonicInstant(nanoseconds: 1_000_000_000_000_000))
    let upstreamTime: UpstreamTime
    let history: History
    let book = Book()
    let promises: Promises
    let services: [Service]
    var users: [AppServicesStory] = []
    /// Nil while the gateway is down.
    private(set) var run: Run?
    private(set) var runs = 0
    /// The threads of this run, or of the time between two.
    private(set) var threads: ManualThreads
    private(set) var callers: Callers?
    private let directory: String
    private let chance: Dice
    /// Hand-overs until the process is killed; nil: it is not going to be.
    var killAfter: Int?
    /// Left out of the configuration.
    var removed: Set<UpstreamKind> = []
    /// Whether the gateway's clock was set, or it stood still for long between two steps.
    var wasClockSet = false
    /// How often the configuration was changed.
    var reloads = 0

    /// One life of the gateway's process.
    final class Run {
        let parts: Parts
        let door: Door
        let network: Network
        init(_ parts: Parts, _ door: Door, _ network: Network) {
            (self.parts, self.door, self.network) = (parts, door, network)
        }
    }

    public init(_ plan: Plan) {
        self.plan = plan
        history = History(time)
        upstreamTime = UpstreamTime(time)
        threads = ManualThreads(time: time)
        promises = Promises()
        chance = Dice(seed: plan.seed, for: "threads")
        services = [UpstreamKind.samsara, .seer, .curio, .appservices, .streamone].map { [upstreamTime] in
            Service($0, plan, upstreamTime)
        }
        let memory = "/dev/shm"
        let place = access(memory, W_OK) == 0 ? memory : NSTemporaryDirectory()
        directory = "\(place)/postern-world-\(getpid())-\(UUID().uuidString)"
        promises.world = self
        callers = Callers(self)
        beginThreads()
    }

    deinit { try? FileManager.default.removeItem(atPath: directory) }

    func service(of url: String) -> Service? {
        services.first { url.hasPrefix("http://\($0.kind.rawValue).world") }
    }

    func service(_ kind: UpstreamKind) -> Service? { services.first { $0.kind == kind } }

    var path: String { "\(directory)/run-\(runs)/postern.sqlite" }

    // MARK: Threads

    private func beginThreads() {
        threads = ManualThreads(time: time)
        threads.idleFactor = plan.settings.idleFactor
        threads.choose = { [unowned self] due in
            // Other work keeps the processor busy for a moment, now and then for longer.
            if chance.chance(0.02) { return .pass(chance.span(0.0001...(chance.chance(0.05) ? 5 : 0.05))) }
            let index = chance.below(due.count)
            history.mix(index)
            return .turn(index)
        }
        if let callers { _ = threads.start(callers) }
    }

    /// One loop turns, or time goes on, until `deadline` at most.
    func step(until deadline: MonotonicInstant) {
        threads.goOn(until: deadline)
        promises.afterTurn()
    }

    /// Something passes from one part to another: a moment at which the process may be killed.
    func handOver(_ what: String) {
        guard let left = killAfter, run != nil else { return }
        killAfter = left - 1
        guard left <= 0 else { return }
        killAfter = nil
        history.note("killed at a \(what)")
        promises.coverage.visit("store: open after a kill inside a turn")
        die()
    }

    // MARK: The process

    func start() {
        precondition(run == nil, "it runs already")
        history.note("starts")
        var door: Door?
        let network = Network(self, run: runs)
        let randomDice = Dice(seed: plan.seed, for: "random \(runs)")
        nonisolated(unsafe) let random = randomDice
        let made = Handed<Door>()
        let surroundings = Surroundings(
            time: time, threads: threads, random: { random.next() }, makeTransport: { network },
            makeListeners: { _, _, handler, _ in
                let door = Door(handler)
                made.value = door
                return door
            })
        do {
            let loaded = try configuration()
            let parts = try Parts(
                loaded, App.Options(configFile: ""), in: surroundings,
                logger: Logger(label: "postern") { [promises, plan] _ in
                    WorldLog(promises, plan.settings.logsAll ? .trace : .info)
                })
            door = made.value
            _ = threads.start(network)
            _ = try parts.start()
            guard let door else { preconditionFailure("there is a door") }
            run = Run(parts, door, network)
            promises.started()
        } catch {
            promises.fail("the gateway starts", "\(error)")
        }
    }

    func configuration() throws -> ConfigurationLoader.Loaded {
        try FileManager.default.createDirectory(
            atPath: "\(directory)/run-\(runs)", withIntermediateDirectories: true)
        let file = "\(directory)/config.json"
        let settings = plan.settings
        let upstreams = UpstreamKind.allCases.filter { !removed.contains($0) }.map { kind in
            let own = kind == .samsara ? #""compression":"\#(settings.sendsGzip ? "gzip" : "none")""# : ""
            return #""\#(kind.rawValue)":{\#(own)}"#
        }
        let retryMax = reloads.isMultiple(of: 2) ? 300 : 60
        let text = #"""
            {"outbox":{"path":"\#(path)","deliveredRetentionSeconds":315360000,"failedRetentionSeconds":315360000,
            "encryptionKey":"\#(settings.hasEncryptionKey ? String(repeating: "5a", count: 32) : "")"},
            "delivery":{"maxInFlight":\#(settings.maxInFlight),"batchMaxMessages":\#(settings.batchMaxMessages),
            "batchMaxWaitSeconds":\#(settings.batchMaxWait),"retryMaxSeconds":\#(retryMax)},
            "log":{"level":"trace"},"upstreams":{\#(upstreams.joined(separator: ","))}}
            """#
        try Data(text.utf8).write(to: URL(filePath: file))
        var loader = ConfigurationLoader(
            types: UpstreamRegistry.all, environment: [:], file: file, secretsDirectory: nil)
        loader.simulators = Dictionary(
            uniqueKeysWithValues: UpstreamKind.allCases.map { ($0.rawValue, "http://\($0.rawValue).world") })
        return try loader.load()
    }

    /// Stops as after SIGTERM.
    func stop() {
        guard let run else { return }
        history.note("stops")
        run.parts.stop { false }
        guard self.run != nil else { return }
        self.run = nil
        run.network.cutOff()
        endThreads()
    }

    /// The process ends here and now: what it has written stays, and nothing it still does is seen.
    func die() {
        guard let run else { return }
        self.run = nil
        let former = "\(directory)/run-\(runs)"
        runs += 1
        let next = "\(directory)/run-\(runs)"
        do {
            try FileManager.default.createDirectory(atPath: next, withIntermediateDirectories: true)
            for name in ["postern.sqlite", "postern.sqlite-wal", "postern.sqlite-shm"]
            where access("\(former)/\(name)", F_OK) == 0 {
                try FileManager.default.copyItem(atPath: "\(former)/\(name)", toPath: "\(next)/\(name)")
            }
        } catch {
            preconditionFailure("cannot copy the store: \(error)")
        }
        run.network.cutOff()
        run.door.cutOff()
        dead.append(run)
    }

    /// Runs that were killed in the middle of a turn, until that turn is over.
    private var dead: [Run] = []

    /// Forgets what was killed.
    func endThreads() {
        threads.abandon()
        dead = []
        beginThreads()
    }

    /// Has every step shown.
    public func watch(_ show: @escaping (String) -> Void) { history.watch = show }

    // MARK: From the beginning to the end

    /// Returns the promise that was broken, if one was.
    public func simulate() -> Report {
        let began = time.instant
        let end = began + .milliseconds(Int(plan.hours * 3_600_000))
        let operators = Operator(self)
        let waits = Waits(self)
        start()
        while time.instant < end, promises.broken == nil {
            let deadline = operators.act(at: time.instant, since: began)
            guard time.instant < end, promises.broken == nil else { break }
            if time.instant >= waits.nextAt { waits.look() }
            if run == nil { restart() } else { step(until: min(deadline, end, waits.nextAt)) }
        }
        if promises.broken == nil { Ending(self).play() }
        let worked = run != nil
        if worked, promises.broken == nil { stop() }
        if run != nil || !dead.isEmpty {
            run = nil
            endThreads()
        }
        threads.abandon()
        return Report(
            plan: plan, broken: promises.broken, digest: history.digest, steps: history.steps,
            hours: (time.instant - began) / .seconds(3600), lastSteps: history.lastSteps + promises.lastErrors,
            coverage: promises.coverage, messages: book.entries.count,
            requests: services.reduce(0) { $0 + $1.requests }, runs: runs + 1)
    }

    /// After a time in which there is no gateway.
    func restart() {
        endThreads()
        let pause = chance.span(0.2...(chance.chance(0.2) ? 3600 : 60))
        let end = time.instant + pause
        while time.instant < end { threads.goOn(until: end) }
        if chance.chance(0.7) { removed = [] }
        start()
        promises.restarted()
    }
}

/// What became of one world.
public struct Report: Sendable {
    public let plan: Plan
    /// The promise, and how it was broken.
    public let broken: String?
    public let digest: UInt64
    public let steps: Int
    public let hours: Double
    public let lastSteps: [String]
    public let coverage: Coverage
    public let messages: Int
    public let requests: Int
    public let runs: Int
}

/// Something that a closure hands out.
private final class Handed<Value>: @unchecked Sendable {
    // @unchecked: for the thread of the world only.
    var value: Value?
}
