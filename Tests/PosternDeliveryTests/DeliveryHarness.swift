import InMemoryLogging
import Logging
import PosternCore
import PosternMetrics
import PosternTestKit
import PosternThreads
import PosternUpstream
import Testing
@testable import PosternStore

@testable import PosternDelivery

/// A worker with a real store, a scripted transport, and time that the test moves. The loops of the worker and the
/// writer run on the thread of the test.
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
    let folder = ScratchFolder()
    /// The random number that the worker uses for its jitter, 0 ... 1.
    let random = SharedValue(1.0)
    /// If it is there, such numbers are drawn with it.
    let numbers = SharedValue<SplitMix64?>(nil)
    private var run: Run?

    var outbox: Outbox { run!.outbox }
    var queue: UpstreamQueue { run!.queue }
    var worker: UpstreamWorker { run!.worker }

    /// The parts that a restart replaces.
    private struct Run {
        let outbox: Outbox
        let queue: UpstreamQueue
        let worker: UpstreamWorker
    }

    private let encryptionKeys: EncryptionKeys
    private let engine: StoreEngineKind

    init(
        _ upstream: some Upstream = PlainUpstream(), settings: DeliverySettings = DeliverySettings(),
        encryptionKeys: EncryptionKeys = EncryptionKeys(), engine: StoreEngineKind = .sqlite
    ) throws {
        self.encryptionKeys = encryptionKeys
        self.engine = engine
        try start(upstream, settings)
        // The first look at a store is for what a former run left; let it be over.
        try turn()
    }

    deinit { run?.outbox.close() }

    private func start(_ upstream: some Upstream, _ settings: DeliverySettings) throws {
        var logger = Logger(label: "test") { [log] _ in log }
        logger.logLevel = .trace
        let outbox = try Outbox(
            OutboxOptions.with {
                ($0.path, $0.encryptionKeys, $0.engine) = (folder.file("store.sqlite"), encryptionKeys, engine)
            },
            time: time, threads: threads, metrics: metrics, logger: logger)
        let queue = try outbox.adopt(outbox.register(upstream, type: "plain", cap: QueueCap()))
        outbox.setCallbacks([])
        let worker = try UpstreamWorker(
            queue: queue, settings: settings,
            dependencies: .init(
                outbox: outbox, transport: transport, time: time, metrics: metrics, logger: logger,
                random: { [random, numbers] in
                    guard var drawn = numbers.value else { return random.value }
                    defer { numbers.set(drawn) }
                    return Double(drawn.below(1 << 20)) / Double(1 << 20)
                }))
        run = Run(outbox: outbox, queue: queue, worker: worker)
    }

    /// Ends this run without stopping the worker, and starts the next run on the same store.
    func restart(_ upstream: some Upstream = PlainUpstream(), settings: DeliverySettings) throws {
        run?.outbox.close()
        run = nil
        try start(upstream, settings)
    }

    /// Begins the next run on the same store as after a kill: unfinished work of this run is abandoned.
    func kill(_ upstream: some Upstream = PlainUpstream(), settings: DeliverySettings) throws {
        commit()
        threads.abandon()
        run = nil
        try start(upstream, settings)
    }

    func execute(_ sql: String) throws {
        try threads.result { outbox.writer.change({ try $0.sql.connection.execute(sql) }, completion: $0) }
    }

    /// Returns whether the message was cancelled.
    func cancel(_ id: MessageID) throws -> Bool {
        try threads.result { outbox.cancel([id], completion: $0) } == [id]
    }

    // MARK: Messages

    /// Lets the upstream validate payloads, and stores the admitted messages.
    @discardableResult func post(
        _ payloads: [String], as kind: Kind, isAwaited: Bool = false, notBefore: Timestamp? = nil
    ) throws -> [MessageID] {
        let context = ValidationContext(acceptedAt: time.now, isAwaited: isAwaited)
        let messages = try payloads.map { text in
            let valid = try JSONParser().parse(Array(text.utf8)) { payload throws(InvalidPayload) in
                try queue.upstream.validate(payload, of: kind, in: context)
            }.get()
            return NewMessage(
                queue: queue.target, kind: kind, lane: valid.lane, acceptedAt: time.now, notBefore: notBefore,
                bytes: valid.rewritten ?? Array(text.utf8), waitsFor: valid.waitsFor,
                credential: valid.credential)
        }
        return try append(messages)
    }

    /// Changes the upstream's state, as a route does.
    func change(_ changes: [StateChange]) throws {
        try threads.result { outbox.change(of: queue.target, { _ in (changes, ()) }, completion: $0) }
    }

    /// Retries a failed message, as an operator does.
    func requeue(_ id: MessageID) throws {
        #expect(try threads.result { outbox.requeue([id], completion: $0) } == [id])
    }

    @discardableResult func accept(
        _ payloads: [String], lane: Lane = .none, notBefore: Timestamp? = nil, traceParent: String? = nil
    ) throws -> [MessageID] {
        let messages = payloads.map {
            NewMessage(
                queue: queue.target, kind: "thing", lane: lane, acceptedAt: time.now, notBefore: notBefore,
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

    /// The number of log lines with this message.
    func logged(_ message: String) -> Int { log.entries.count { $0.message.description == message } }

    func record(_ id: MessageID) throws -> MessageRecord { try #require(try outbox.message(id)) }
    func state(_ id: MessageID) throws -> MessageState { try record(id).state }
    var ledger: Ledger { outbox.ledger(of: queue.number) }

    // MARK: Running the worker

    /// Runs until only a response or time can change something. Returns how long the worker would sleep.
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

    private var trace: (requests: Int, open: Int, unsettled: Int, snapshot: UpstreamSnapshot) {
        let counts = transport.counts
        return (counts.sent, counts.open, worker.unsettledBatches, worker.snapshot)
    }

    /// Advances time as the worker's own thread would see it. Returns how many iterations the worker made.
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

    /// Responds to the oldest open batch, and runs the worker.
    @discardableResult func answer(_ result: TransferResult) throws -> Duration {
        #expect(transport.answer(result) { !Self.isTokenRequest($0) })
        return try turn()
    }

    /// Flushes. Returns the result after time has passed, or nil if the flush has not ended by then.
    func flush(for span: Duration = .seconds(1)) throws -> FlushReport? {
        let reports = Inbox<FlushReport>()
        worker.flush { if let report = $0 { reports.put(report) } }
        try turn()
        try run(for: span)
        return reports.takeAll().first
    }

    /// Runs the writer until it has processed its inbox.
    func commit() { threads.turnAll() }

    // MARK: Sent requests

    /// The requests that were sent, without token requests.
    var reports: [UpstreamRequest] { transport.requests.filter { !Self.isTokenRequest($0) } }
    var tokenRequests: [UpstreamRequest] { transport.requests.filter(Self.isTokenRequest) }
    /// Bodies of the batches sent.
    var sent: [String] { reports.map(\.text) }
    /// How many messages each batch held.
    var sizes: [Int] { sent.map { $0.split(separator: ",").count } }
    var open: [String] { transport.openRequests.filter { !Self.isTokenRequest($0) }.map(\.text) }
}
