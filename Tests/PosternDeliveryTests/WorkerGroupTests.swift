import Logging
import PosternCore
import PosternMetrics
import PosternTestKit
import PosternThreads
import PosternUpstream
import Testing
@testable import PosternStore

@testable import PosternDelivery

/// Workers on threads of their own, with the system clocks.
@Suite(.timeLimit(.minutes(10))) struct WorkerGroupTests {
    private let folder = ScratchFolder()
    private let transport = ScriptedTransport()
    private let time = SystemTime()
    private let outbox: Outbox
    private let workerGroup: WorkerGroup

    init() throws {
        let logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
        let outbox = try Outbox(
            OutboxOptions(path: folder.file("store.sqlite")), time: time, threads: DedicatedThreads(),
            metrics: Metrics(), logger: logger)
        let dependencies = UpstreamWorker.Dependencies(
            outbox: outbox, transport: transport, time: time, metrics: Metrics(), logger: logger)
        let workers = try ["a", "b"].map { name in
            try UpstreamWorker(
                queue: try outbox.adopt(outbox.register(PlainUpstream(name), type: "plain", cap: QueueCap())),
                settings: DeliverySettings.with { ($0.maxInFlight, $0.batchMaxWait) = (1, .zero) },
                dependencies: dependencies)
        }
        self.outbox = outbox
        workerGroup = WorkerGroup(workers, outbox: outbox, time: time)
    }

    private func accept(_ worker: UpstreamWorker) throws -> MessageID {
        let message = NewMessage(
            queue: worker.queue.target, kind: "thing", acceptedAt: time.now, bytes: Array(#"{"n":1}"#.utf8))
        return try DedicatedThreads().result { outbox.append([message], completion: $0) }.ids[0]
    }

    private func execute(_ sql: String) throws {
        try DedicatedThreads().result { outbox.writer.change({ try $0.sql.connection.execute(sql) }, completion: $0) }
    }

    @Test func workers_areFoundByName_andShown() throws {
        let (b, c) = (try #require(UpstreamName("b")), try #require(UpstreamName("c")))
        #expect(workerGroup.worker(named: b)?.name == b)
        #expect(workerGroup.worker(named: c) == nil)
        outbox.close()
    }

    @Test func stop_letsRequestsEnd_andGivesBackWhatTheTransportCancels() throws {
        transport.answerAll { _ in nil }
        try workerGroup.start()
        let first = try accept(workerGroup.workers[0])
        let second = try accept(workerGroup.workers[1])
        #expect(eventually { transport.openRequests.count == 2 })
        transport.answer(.status(200))
        var wasStopped = false
        workerGroup.stop(deadline: time.instant + .milliseconds(50)) {
            wasStopped = true
            while transport.answer(.failure(TransferFailure(.cancelled, mayHaveArrived: true, detail: "stopped"))) {}
        }
        #expect(wasStopped)
        #expect(workerGroup.workers.allSatisfy { $0.unsettledBatches == 0 })
        outbox.close()
        let view = try StoreView(path: outbox.path)
        let states = try [first, second].map { try view.message($0, payload: false)?.state }
        #expect(states.filter { $0 == .delivered }.count == 1)
        #expect(states.filter { $0 == .queued }.count == 1)
        #expect(try view.audit().isBalanced)
    }

    @Test func stop_doesNotWait_whenNothingIsInFlight() throws {
        transport.answerAll { _ in .status(200) }
        try workerGroup.start()
        let id = try accept(workerGroup.workers[0])
        #expect(try eventually { try outbox.message(id)?.state == .delivered })
        workerGroup.stop(deadline: time.instant + .seconds(3600)) {}
        outbox.close()
    }

    @Test func removal_isTriedAgain_ifTheStoreFails_andTheOthersEnd() throws {
        defer { outbox.close() }
        let workers = workerGroup.workers
        let (a, b) = (workers[0], workers[1])
        try workerGroup.start()
        for worker in workers { workerGroup.retire(worker.name) }
        #expect(eventually { workers.allSatisfy(\.isIdle) })
        try execute(
            """
            CREATE TRIGGER refusal BEFORE UPDATE OF type ON upstreams WHEN OLD.name = 'a'
            BEGIN SELECT RAISE(ABORT, 'refused'); END
            """)
        for _ in 0..<2 { #expect(throws: StoreError.self) { try workerGroup.endRetired() } }
        #expect(workerGroup.isRetiring(a.name) && !workerGroup.isRetiring(b.name))
        #expect(outbox.target(b.queue.number)?.isDisabled == true)
        try execute("DROP TRIGGER refusal")
        try workerGroup.endRetired()
        #expect(!workerGroup.isRetiring(a.name))
        #expect(outbox.target(a.queue.number)?.isDisabled == true)
    }

    @Test func fleetThatNeverStarted_stops() {
        workerGroup.stop(deadline: time.instant + .seconds(3600)) {}
        outbox.close()
    }

    @Test func threads_areWatchedByName() {
        #expect(workerGroup.stalledWorkers(at: time.instant).isEmpty)
        #expect(workerGroup.stalledWorkers(at: time.instant + .seconds(60)) == ["a", "b", "writer"])
        outbox.close()
    }

    @Test func workerThatTurnsNoMore_isStalled_after15Seconds() throws {
        defer { outbox.close() }
        let harness = try DeliveryHarness()
        let workerGroup = WorkerGroup([harness.worker], outbox: harness.outbox, time: harness.time)
        let lastTurn = harness.time.instant
        #expect(!workerGroup.stalledWorkers(at: lastTurn + .seconds(15)).contains("plain"))
        #expect(workerGroup.stalledWorkers(at: lastTurn + .milliseconds(15_001)).contains("plain"))
        harness.time.advance(by: .seconds(20))
        try harness.turn()
        #expect(!workerGroup.stalledWorkers(at: harness.time.instant).contains("plain"))
    }
}
