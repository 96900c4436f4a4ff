import Logging
import PosternCore
import PosternFaultServer
import PosternHTTP
import PosternMetrics
import PosternStore
import PosternTestKit
import PosternThreads
import PosternTransport
import PosternUpstream
import Synchronization
import Testing

@testable import PosternDelivery

/// Delivery as a whole over real sockets, against a server that fails at random.
@Suite(.timeLimit(.minutes(10)), .serialized) struct FlowTests {
    @Test func tenThousandMessages_allArrive_throughFailuresOfEveryKind() throws {
        let flow = try Flow(seed: 6)
        try flow.start()
        let ids = try flow.accept(10_000)
        #expect(try flow.waitUntilSettled(ids))
        try flow.stop(grace: .seconds(5))

        try flow.expectAllArrived()
        #expect(flow.server.failures > 50)
        let audit = try flow.audit()
        #expect(audit.isBalanced, "\(audit.accounts.flatMap(\.findings))")
        #expect(audit.accounts.reduce(0) { $0 + $1.ledger.delivered } == 10_000)
        #expect(audit.accounts.reduce(0) { $0 + $1.ledger.ambiguousSends } == flow.server.resets)
    }

    @Test func stoppedInTheMiddle_theNextRunDeliversTheRest() throws {
        let flow = try Flow(seed: 2)
        try flow.start()
        let ids = try flow.accept(3000)
        #expect(try flow.waitUntilSettled(Array(ids.prefix(200))))
        try flow.stop(grace: .zero)
        #expect(try flow.audit().isBalanced)
        try flow.start()
        #expect(try flow.waitUntilSettled(ids))
        try flow.stop(grace: .seconds(5))
        try flow.expectAllArrived()
        #expect(try flow.audit().accounts.reduce(0) { $0 + $1.ledger.delivered } == 3000)
        #expect(try flow.audit().isBalanced)
    }
}

/// Three upstreams on one server, each with lanes of another rule, and what a gateway has between them.
private final class Flow {
    let server: FlakyServer
    private let http: FaultServer
    private let port: UInt16
    private let folder = ScratchFolder()
    private let time = SystemTime()
    private let logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
    private var run: Run?
    private var accepted: [String: Int] = [:]

    private struct Run {
        let outbox: Outbox
        let transport: CurlLoop
        let workerGroup: WorkerGroup
    }
    struct NotRunning: Error {}

    init(seed: UInt64) throws {
        server = FlakyServer(seed: seed)
        http = try FaultServer(
            HTTPServerSettings { ($0.port, $0.workerThreads) = (0, 1) }, handler: server, logger: logger)
        port = try http.start()
    }

    deinit { http.stop() }

    func start() throws {
        let metrics = Metrics()
        let outbox = try Outbox(
            OutboxOptions(path: folder.file("store.sqlite")), time: time, threads: DedicatedThreads(), metrics: metrics,
            logger: logger)
        let transport = try CurlLoop(.init(version: "test"))
        var settings = DeliverySettings.with { ($0.batchMaxMessages, $0.batchMaxWait) = (40, .milliseconds(5)) }
        settings.retry = RetryPolicy(base: .milliseconds(5), longest: .milliseconds(40))
        settings.transfer.requestTimeout = longestWait
        let url = "http://127.0.0.1:\(port)/"
        let workers = try LocalUpstream.all(at: url).map { upstream in
            try UpstreamWorker(
                queue: try outbox.adopt(outbox.register(upstream, type: "local", cap: QueueCap())), settings: settings,
                dependencies: .init(outbox: outbox, transport: transport, time: time, metrics: metrics, logger: logger))
        }
        let workerGroup = WorkerGroup(workers, outbox: outbox, time: time)
        run = Run(outbox: outbox, transport: transport, workerGroup: workerGroup)
        try workerGroup.start()
    }

    func stop(grace: Duration) throws {
        guard let run else { throw NotRunning() }
        run.workerGroup.stop(deadline: time.instant + grace) { run.transport.stop() }
        run.outbox.close()
        self.run = nil
    }

    /// Accepts messages for all upstreams and twenty lanes of each, in requests of a hundred.
    func accept(_ count: Int) throws -> [MessageID] {
        guard let run else { throw NotRunning() }
        let done = Inbox<[MessageID]>()
        for start in stride(from: 0, to: count, by: 100) {
            let messages = (start..<start + 100).map { number in
                let worker = run.workerGroup.workers[number % run.workerGroup.workers.count]
                let lane = "\(worker.name)-\(number / 3 % 20)"
                accepted[lane, default: 0] += 1
                return NewMessage(
                    queue: worker.queue.target, kind: "thing",
                    lane: LocalUpstream.lane(lane, by: worker.queue.upstream.traits.laneRule),
                    acceptedAt: time.now, bytes: Array("\(lane):\(accepted[lane, default: 0])".utf8))
            }
            run.outbox.append(messages) { done.put((try? $0.get())?.ids ?? []) }
        }
        var ids: [MessageID] = []
        let deadline = time.instant + longestWait
        while ids.count < count, time.instant < deadline {
            ids += done.takeAll(waitingUntil: deadline).flatMap { $0 }
        }
        return ids.sorted()
    }

    /// Whether none of `ids` is queued any more after a while.
    func waitUntilSettled(_ ids: [MessageID]) throws -> Bool {
        guard let run else { throw NotRunning() }
        var open = ids[...]
        return try eventually {
            open = try open.drop { try run.outbox.message($0)?.state != .queued }
            return open.isEmpty
        }
    }

    func audit() throws -> Audit { try StoreView(path: folder.file("store.sqlite")).audit() }

    /// Everything that was accepted, with each lane in order if repetitions are left out.
    func expectAllArrived() throws {
        for (lane, count) in accepted {
            let expected = Array(1...count)
            let arrived = server.arrivals(of: lane)
            if lane.hasPrefix("free") {
                #expect(Set(arrived) == Set(expected), "\(lane)")
            } else {
                var seen: Set<Int> = []
                #expect(arrived.filter { seen.insert($0).inserted } == expected, "\(lane)")
            }
        }
    }
}

/// Accepts `lane:number` texts. Every third request fails in some way.
private final class FlakyServer: FaultHandler {
    private struct State {
        var random: SplitMix64
        var arrivals: [String: [Int]] = [:]
        var failures = 0
        var resets = 0

        mutating func keep(_ body: [UInt8]) {
            for text in String(decoding: body, as: UTF8.self).split(separator: ",") {
                let parts = text.split(separator: ":")
                arrivals[String(parts[0]), default: []].append(Int(parts[1]) ?? 0)
            }
        }
    }
    private let state: Mutex<State>

    init(seed: UInt64) { state = Mutex(State(random: SplitMix64(state: seed))) }

    var failures: Int { state.withLock { $0.failures } }
    var resets: Int { state.withLock { $0.resets } }
    func arrivals(of lane: String) -> [Int] { state.withLock { $0.arrivals[lane] ?? [] } }

    func answer(_ request: IncomingRequest, _ responder: FaultResponder) {
        enum Way { case take, takeSlowly, refuse, limit, lose, drop }
        let way: Way = state.withLock { state in
            let way: Way =
                switch state.random.below(30) {
                case 0, 1, 2, 3: .refuse
                case 4: .limit
                case 5, 6: .lose
                case 7, 8: .drop
                case 9, 10: .takeSlowly
                default: .take
                }
            switch way {
            case .take, .takeSlowly, .lose: state.keep(request.body)
            case .refuse, .limit, .drop: break
            }
            if way != .take, way != .takeSlowly { state.failures += 1 }
            if way == .lose || way == .drop { state.resets += 1 }
            return way
        }
        switch way {
        case .take: responder.respond(HTTPResponse(status: 200))
        case .takeSlowly: responder.respond(HTTPResponse(status: 200), after: .milliseconds(20))
        case .refuse: responder.respond(HTTPResponse(status: 503))
        case .limit: responder.respond(HTTPResponse(status: 429, headers: [("Retry-After", "0")]))
        case .lose, .drop: responder.reset()
        }
    }
}

/// A plain upstream whose URL the test sets.
private struct LocalUpstream: PlainAtHeart {
    let name: UpstreamName
    let traits: Traits
    let url: String

    static func all(at url: String) throws -> [LocalUpstream] {
        try [("free", LaneRule.acrossLanes), ("mixed", .acrossLanes), ("separate", .perLane)].map { name, rule in
            LocalUpstream(
                name: try #require(UpstreamName(name)), traits: Traits { $0.laneRule = rule }, url: url)
        }
    }

    static func lane(_ name: String, by rule: LaneRule) -> Lane {
        guard !name.hasPrefix("free") else { return .none }
        switch rule {
        case .acrossLanes: return .digest(Int64(name.utf8.reduce(7) { $0 &* 31 &+ Int($1) }))
        case .perLane: return .named(name, group: nil)
        }
    }

    func plan(for messages: [Message], in context: PlanContext) -> Plan {
        .send(UpstreamRequest(url: url, body: messages.spliced(prefix: "", suffix: "")), count: messages.count)
    }
}
