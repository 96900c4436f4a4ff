import GRDB
import InMemoryLogging
import Logging
import PosternCore
import PosternJSON
import PosternMetrics
@testable import PosternStore
import PosternTestKit
import Synchronization
import Testing

@testable import PosternDelivery

/// A worker on a bench: a real store, a scripted transport, and time that the test moves. The worker's loop and the
/// writer's turn on the thread of the test.
final class DeliveryHarness {
    static let tokenURL = "http://plain.test/token"
    private static func isTokenRequest(_ request: UpstreamRequest) -> Bool {
        request.url == tokenURL || request.url.contains("/oauth/access_token")
    }
    struct Stuck: Error {}

    let threads = ManualThreads()
    var time: ManualTime { threads.time }
    let metrics = Metrics()
    let transport = ScriptedTransport()
    let log = InMemoryLogHandler()
    private let folder = ScratchFolder()
    private let dice = Dice()
    private var run: Run?

    var outbox: Outbox { run!.outbox }
    var queue: UpstreamQueue { run!.queue }
    var worker: UpstreamWorker { run!.worker }

    /// What the worker draws for its jitter, 0 ... 1.
    private final class Dice: Sendable {
        let value = Mutex(1.0)
    }

    /// What a restart replaces.
    private struct Run {
        let outbox: Outbox
        let queue: UpstreamQueue
        let worker: UpstreamWorker
    }

    private let encryptionKeys: EncryptionKeys

    init(
        _ upstream: some Upstream = PlainUpstream(), settings: DeliverySettings = DeliverySettings(),
        encryptionKeys: EncryptionKeys = EncryptionKeys()
    ) throws {
        self.encryptionKeys = encryptionKeys
        try start(upstream, settings)
        // The first look at a store is for what a former run left; let it be over.
        try turn()
    }

    deinit { run?.outbox.close() }

    private func start(_ upstream: some Upstream, _ settings: DeliverySettings) throws {
        var logger = Logger(label: "test") { [log] _ in log }
        logger.logLevel = .trace
        let outbox = try Outbox(
            OutboxOptions.with { ($0.path, $0.encryptionKeys) = (folder.file("store.sqlite"), encryptionKeys) },
            time: time, threads: threads, metrics: metrics, logger: logger)
        let queue = try outbox.register(upstream, type: "plain", cap: QueueCap())
        outbox.adopt([])
        let worker = try UpstreamWorker(
            queue: queue, settings: settings,
            dependencies: .init(
                outbox: outbox, transport: transport, time: time, metrics: metrics, logger: logger,
                random: { [dice] in dice.value.withLock { $0 } }))
        run = Run(outbox: outbox, queue: queue, worker: worker)
    }

    /// Ends this run without stopping the worker, and begins the next one on the same store.
    func restart(_ upstream: some Upstream = PlainUpstream(), settings: DeliverySettings) throws {
        run?.outbox.close()
        run = nil
        try start(upstream, settings)
    }

    /// Begins the next run on the same store as after a kill: what this one had still to do is not done.
    func kill(_ upstream: some Upstream = PlainUpstream(), settings: DeliverySettings) throws {
        commit()
        threads.abandon()
        run = nil
        try start(upstream, settings)
    }

    func execute(_ sql: String) throws {
        try threads.result { outbox.writer.change({ try $0.db.execute(sql: sql) }, completion: $0) }
    }

    /// Returns whether the message was cancelled.
    func cancel(_ id: MessageID) throws -> Bool {
        try threads.result { outbox.cancel([id], completion: $0) } == [id]
    }

    /// What the next draws give.
    func draw(_ random: Double) { dice.value.withLock { $0 = random } }

    // MARK: Messages

    /// Has the upstream look at payloads and accepts them as it says.
    @discardableResult func post(
        _ payloads: [String], as kind: Kind, isAwaited: Bool = false
    ) throws -> [MessageID] {
        let context = AdmissionContext(acceptedAt: time.now, isAwaited: isAwaited)
        let messages = try payloads.map { text in
            let admission = try JSONParser().parse(Array(text.utf8)) { payload throws(InvalidPayload) in
                try queue.upstream.admit(payload, of: kind, in: context)
            }.get()
            return NewMessage(
                queue: queue, kind: kind, lane: admission.lane, acceptedAt: time.now,
                bytes: admission.rewritten ?? Array(text.utf8), waitsFor: admission.waitsFor,
                credential: admission.credential)
        }
        return try append(messages)
    }

    /// Changes the upstream's state, as a resource would.
    func change(_ changes: [StateChange]) throws {
        try threads.result { outbox.change(of: queue, { _ in (changes, ()) }, completion: $0) }
    }

    /// The store, and the files next to it, that contain `text`.
    func files(with text: String) throws -> [String] { try folder.files(with: text) }

    /// Takes a failed message up again, as an operator does.
    func requeue(_ id: MessageID) throws {
        #expect(try threads.result { outbox.requeue([id], completion: $0) } == [id])
    }

    @discardableResult func accept(
        _ payloads: [String], lane: Lane = .none, notBefore: Timestamp? = nil, traceParent: String? = nil
    ) throws -> [MessageID] {
        let messages = payloads.map {
            NewMessage(
                queue: queue, kind: "thing", lane: lane, acceptedAt: time.now, notBefore: notBefore,
                bytes: Array($0.utf8), traceParent: traceParent)
        }
        return try append(messages)
    }

    private func append(_ messages: [NewMessage]) throws -> [MessageID] {
        try threads.result { outbox.append(messages, completion: $0) }.ids
    }

    /// Accepts messages `{"n":1}`, `{"n":2}` …
    @discardableResult func accept(_ count: Int, lane: Lane = .none) throws -> [MessageID] {
        try accept((1...count).map { "{\"n\":\($0)}" }, lane: lane)
    }

    /// How many lines were logged with that message.
    func logged(_ message: String) -> Int { log.entries.count { $0.message.description == message } }

    func record(_ id: MessageID) throws -> MessageRecord { try #require(try outbox.message(id)) }
    func state(_ id: MessageID) throws -> MessageState { try record(id).state }
    var ledger: Ledger { outbox.ledger(of: queue.number) }

    // MARK: Turning

    /// Turns until nothing changes any more without an answer or time; answers how long the worker wants to sleep.
    @discardableResult func turn() throws -> Duration {
        for _ in 0..<10_000 {
            let before = trace
            _ = worker.turn()
            commit()
            let next = worker.turn()
            if trace == before, threads.dueNames.isEmpty { return next - time.instant }
        }
        throw Stuck()
    }

    private struct Trace: Equatable {
        let requests: Int
        let open: Int
        let unsettled: Int
        let snapshot: UpstreamSnapshot
    }
    private var trace: Trace {
        Trace(
            requests: transport.requests.count, open: transport.openRequests.count,
            unsettled: worker.unsettledBatches, snapshot: worker.snapshot)
    }

    /// Lets time pass as the worker's own thread would live it, and answers how often it turned.
    @discardableResult func run(for span: Duration) throws -> Int {
        let end = time.instant + span
        var turns = 0
        while true {
            let next = try turn()
            turns += 1
            guard turns < 20_000 else { throw Stuck() }
            guard time.instant + next < end else { break }
            time.advance(by: max(next, .microseconds(10)))
        }
        time.advance(by: end - time.instant)
        try turn()
        return turns
    }

    /// Answers the oldest open batch and lets the worker deal with it.
    @discardableResult func answer(_ result: TransferResult) throws -> Duration {
        #expect(transport.answer(result) { !Self.isTokenRequest($0) })
        return try turn()
    }

    /// Flushes, and returns the result once time has passed; nil if the flush has not ended by then.
    func flush(for span: Duration = .seconds(1)) throws -> FlushReport? {
        let reports = Inbox<FlushReport>()
        worker.flush { reports.put($0) }
        try turn()
        try run(for: span)
        return reports.takeAll().first
    }

    /// Has the writer take what was handed to it.
    func commit() { threads.turnAll() }

    // MARK: What was sent

    /// What was sent besides token requests.
    var reports: [UpstreamRequest] { transport.requests.filter { !Self.isTokenRequest($0) } }
    var tokenRequests: [UpstreamRequest] { transport.requests.filter(Self.isTokenRequest) }
    /// Bodies of the batches sent.
    var sent: [String] { reports.map(\.text) }
    /// How many messages each batch held.
    var sizes: [Int] { sent.map { $0.split(separator: ",").count } }
    var open: [String] { transport.openRequests.filter { !Self.isTokenRequest($0) }.map(\.text) }
}
