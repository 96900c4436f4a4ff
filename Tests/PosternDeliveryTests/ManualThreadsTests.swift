import Glibc
import Logging
import PosternCore
import PosternMetrics
import PosternStore
import PosternTestKit
import PosternThreads
import Testing

@testable import PosternDelivery

/// A store, its writer and workers on one thread, in time that the test moves. One test at a time, since a marked
/// thread counts as one that was started.
@Suite(.timeLimit(.minutes(10)), .serialized) struct ManualThreadsTests {
    private let folder = ScratchFolder()
    private let threads = ManualThreads()
    private let transport = ScriptedTransport()
    private let logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }

    private func open(_ change: (inout OutboxOptions) -> Void = { _ in }) throws -> Outbox {
        var options = OutboxOptions(path: folder.file("store.sqlite"))
        change(&options)
        return try Outbox(options, time: threads.time, threads: threads, metrics: Metrics(), logger: logger)
    }

    private func start(
        _ upstream: PlainUpstream, of outbox: Outbox, collecting wait: Duration = .zero
    ) throws -> UpstreamWorker {
        let worker = try UpstreamWorker(
            queue: try outbox.adopt(outbox.register(upstream, type: "plain", cap: QueueCap())),
            settings: .with { $0.batchMaxWait = wait },
            dependencies: .init(
                outbox: outbox, transport: transport, time: threads.time, metrics: Metrics(), logger: logger,
                random: { 1 }))
        try worker.start()
        return worker
    }

    /// A loop that has not ended is kept by what drives it, and keeps that.
    private func stop(_ workers: [UpstreamWorker], of outbox: Outbox) {
        let workerGroup = WorkerGroup(workers, outbox: outbox, time: threads.time)
        workerGroup.stop(deadline: threads.instant + .seconds(10)) {}
        outbox.close()
    }

    private func message(_ number: Int, for worker: UpstreamWorker) -> NewMessage {
        NewMessage(
            queue: worker.queue.target, kind: "thing", acceptedAt: threads.time.now,
            bytes: Array("{\"n\":\(number)}".utf8))
    }

    /// Each line is a hand-over from one thread of the gateway to another.
    @Test func message_isAcceptedAndDelivered_withoutAnyThread() throws {
        let started = StartedThreads()
        let outbox = try open()
        let worker = try start(PlainUpstream(), of: outbox, collecting: .seconds(3))
        threads.turnAll()
        #expect(threads.names == ["postern-writer", "to-plain"])
        let receipts = Inbox<Result<AppendReceipt, AppendError>>()
        outbox.append([message(1, for: worker)]) { receipts.put($0) }
        #expect(receipts.isEmpty)

        threads.turn("postern-writer")
        let id = try #require(receipts.takeAll().first).get().ids[0]
        threads.turnAll()
        threads.time.advance(by: .milliseconds(2999))
        #expect(threads.dueNames == ["postern-writer"])
        threads.turnAll()
        threads.time.advance(by: .milliseconds(1))
        #expect(threads.dueNames == ["to-plain"])

        // Claimed; the row that records the request comes first.
        threads.turn("to-plain")
        threads.turn("to-plain")
        #expect(transport.requests.isEmpty)
        threads.turn("postern-writer")
        #expect(transport.requests.isEmpty)
        threads.turn("to-plain")
        #expect(transport.openRequests.count == 1)

        transport.answer(.status(200))
        #expect(threads.dueNames == ["to-plain"])
        threads.turn("to-plain")
        #expect(try outbox.message(id)?.state == .queued)
        threads.turn("postern-writer")
        #expect(try outbox.message(id)?.state == .delivered)
        threads.turn("to-plain")
        #expect(worker.snapshot.inFlight == 0)

        stop([worker], of: outbox)
        #expect(threads.names.isEmpty)
        #expect(try started.end() == 0)
    }

    @Test func startedThreads_areCounted() throws {
        let started = StartedThreads()
        let gate = Inbox<Void>()
        let thread = try DedicatedThread(name: "test-counted") { _ = gate.takeAll(waitingUntil: nil) }
        #expect(try started.end() == 1)
        gate.put(())
        thread.join()
    }

    @Test func receipts_goWithVirtualTime() throws {
        let outbox = try open { $0.deliveredRetention = .seconds(3600) }
        let worker = try start(PlainUpstream(), of: outbox)
        transport.answerAll { _ in .status(200) }
        let id = try threads.result { outbox.append([message(1, for: worker)], completion: $0) }.ids[0]
        threads.advance(by: .seconds(3590))
        #expect(try outbox.message(id)?.state == .delivered)
        threads.advance(by: .seconds(20))
        #expect(try outbox.message(id) == nil)
        stop([worker], of: outbox)
    }

    /// Loops turn in any order, due or not, and requests end at any time.
    @Test(arguments: 1...20) func everything_isDeliveredOnce_inAnyOrderOfTurns(seed: UInt64) throws {
        var random = SplitMix64(state: seed)
        let outbox = try open()
        let workers = try ["a", "b", "c"].map { try start(PlainUpstream($0), of: outbox, collecting: .milliseconds(5)) }
        let receipts = Inbox<Int>()
        var posted = 0
        var steps = 0
        while outbox.ledgers.values.reduce(0, { $0 + $1.delivered }) < 60 {
            steps += 1
            try #require(steps < 100_000, "seed \(seed) does not end")
            switch random.below(5) {
            case 0 where posted < 60:
                posted += 1
                let worker = workers[random.below(workers.count)]
                outbox.append([message(posted, for: worker)]) { result in
                    if case .success(let receipt) = result { receipts.put(receipt.ids.count) }
                }
            case 1: transport.answer(.status(200))
            case 2: threads.time.advance(by: .milliseconds(random.below(10)))
            default: threads.turn(threads.names[random.below(threads.names.count)])
            }
        }
        #expect(receipts.takeAll().reduce(0, +) == 60)
        let numbers = transport.requests.flatMap { $0.text.split(separator: ",") }
        #expect(numbers.count == 60)
        #expect(Set(numbers).count == 60)
        #expect(try outbox.audit().isBalanced)
        stop(workers, of: outbox)
        #expect(threads.names.isEmpty)
    }
}

/// Marks the calling thread, and finds the threads that it, or one of those, has started since: Linux has threads
/// inherit the personality of the one that starts them. The mark only concerns what `uname` says.
private struct StartedThreads {
    private static let mark: UInt = 0x0020000
    private let before: Int32

    init() {
        before = Self.personality(0xFFFF_FFFF)
        _ = Self.personality(UInt(before) | Self.mark)
    }

    /// Declared in `sys/personality.h`, which is not part of the module `Glibc`.
    private static let personality = unsafeBitCast(
        dlsym(dlopen(nil, RTLD_NOW), "personality"), to: (@convention(c) (UInt) -> Int32).self)

    /// How many of them are alive. Ends the marking.
    func end() throws -> Int {
        _ = Self.personality(UInt(before))
        guard let tasks = opendir("/proc/self/task") else { throw Unreadable() }
        defer { closedir(tasks) }
        var count = 0
        while let entry = readdir(tasks) {
            let name = withUnsafeBytes(of: entry.pointee.d_name) {
                String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self)
            }
            guard let file = fopen("/proc/self/task/\(name)/personality", "re") else { continue }
            defer { fclose(file) }
            var text = [CChar](repeating: 0, count: 16)
            fgets(&text, 16, file)
            if strtoul(text, nil, 16) & Self.mark != 0 { count += 1 }
        }
        return count
    }

    private struct Unreadable: Error {}
}
