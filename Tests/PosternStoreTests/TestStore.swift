import Foundation
import Logging
import PosternCore
import PosternMetrics
import PosternTestKit
import PosternThreads
import PosternUpstream
import Testing

@testable import PosternStore

/// A store in a folder of its own, with a clock that the test moves. It can be closed and reopened. It is kept in what
/// `EachEngine` says.
final class TestStore {
    let folder = ScratchFolder()
    let time = ManualTime()
    let threads = DedicatedThreads()
    let metrics = Metrics()
    var options: OutboxOptions
    private(set) var outbox: Outbox
    private let lease: StoreLease?

    /// - Parameter lease: Of a store that is shared; nil: it is waited for.
    init(lease: StoreLease? = nil, _ change: (inout OutboxOptions) -> Void = { _ in }) throws {
        self.lease = lease
        options = OutboxOptions(path: folder.file("store.sqlite"))
        options.engine = EachEngine.current
        if options.engine.isPostgres { options.engine = .postgres(try SharedStore().options()) }
        change(&options)
        outbox = try Self.open(options, lease: lease, time: time, metrics: metrics)
    }

    deinit { close() }

    func close() {
        outbox.close()
        lease?.leave()
    }

    static func open(
        _ options: OutboxOptions, startFresh: Bool = false, recover: Bool = false, lease: StoreLease? = nil,
        time: any TimeSource = ManualTime(), metrics: Metrics = Metrics()
    ) throws -> Outbox {
        let outbox = try Outbox(
            options, startFresh: startFresh, recover: recover, lease: lease, time: time, threads: DedicatedThreads(),
            metrics: metrics, logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
        outbox.setCallbacks([])
        return outbox
    }

    var path: String { options.path }

    func reopen() throws {
        outbox.close()
        outbox = try Self.open(options, time: time, metrics: metrics)
    }

    func register(_ upstream: any Upstream = PlainUpstream(), cap: QueueCap = QueueCap()) throws -> UpstreamQueue {
        let target = try outbox.register(upstream, type: "plain", cap: cap)
        if let former = outbox.queues.adopted(target.number) { outbox.drop(former) }
        // A block has not more messages than a request.
        if target.mayUseBlocks {
            target.collect(upTo: BatchLimits(maxMessages: 500, maxBytes: 1 << 20), for: .zero, expireAfter: .zero)
        }
        return try outbox.adopt(target)
    }

    // MARK: Writing

    func message(
        _ text: String = "{}", to queue: UpstreamQueue, lane: Lane = .none, key: String? = nil,
        notBefore: Timestamp? = nil, expiresAt: Timestamp? = nil, isFromSDK: Bool = false, failure: String? = nil,
        failsIfRejected: Bool = false
    ) -> NewMessage {
        NewMessage(
            queue: queue.target, kind: queue.upstream.kinds[0], lane: lane, key: key, acceptedAt: time.now,
            notBefore: notBefore, expiresAt: expiresAt, bytes: Array(text.utf8), isFromSDK: isFromSDK, failure: failure,
            failsIfRejected: failsIfRejected)
    }

    /// Where lanes are admitted by the owner of the queue, that is done when this returns.
    @discardableResult func append(_ messages: [NewMessage]) throws -> AppendReceipt {
        let receipt = try threads.result { outbox.append(messages, completion: $0) }
        try settleAdmission()
        return receipt
    }

    /// Stores one message with the payload `text`. Returns its id.
    @discardableResult func append(
        _ text: String = "{}", to queue: UpstreamQueue, lane: Lane = .none, key: String? = nil,
        notBefore: Timestamp? = nil, expiresAt: Timestamp? = nil
    ) throws -> MessageID {
        try append([
            message(text, to: queue, lane: lane, key: key, notBefore: notBefore, expiresAt: expiresAt)
        ]).ids[0]
    }

    @discardableResult func append(_ count: Int, to queue: UpstreamQueue, lane: Lane = .none) throws -> [MessageID] {
        try append((0..<count).map { message("{\"n\":\($0)}", to: queue, lane: lane) }).ids
    }

    func change(_ changes: [StateChange], of queue: UpstreamQueue) throws {
        try threads.result { outbox.change(of: queue.target, { _ in (changes, ()) }, completion: $0) }
    }

    /// Returns whether the message was cancelled.
    func cancel(_ id: MessageID) throws -> Bool {
        try threads.result { outbox.cancel([id], completion: $0) } == [id]
    }

    func requeue(_ ids: [MessageID]) throws -> [MessageID] {
        let done = try threads.result { outbox.requeue(ids, completion: $0) }
        try settleAdmission()
        return done
    }

    private func settleAdmission() throws {
        if options.engine.laneAdmission != .inAppend { try settleDown() }
    }

    // MARK: Delivering

    func claim(
        _ queue: UpstreamQueue, most: Int = 500, bytes: Int = 1 << 20, oldest: Timestamp? = nil,
        preferring preference: ClaimPreference = .inTurn
    ) throws -> Claim {
        try queue.claim(
            BatchLimits(maxMessages: most, maxBytes: bytes), now: time.now, oldest: oldest, preferring: preference)
    }

    func settlement(_ outcome: Settlement.Outcome = .cancelled) -> Settlement {
        Settlement(batch: outbox.nextBatch(), outcome: outcome, endedAt: time.now)
    }

    func settle(_ settlement: Settlement, of queue: UpstreamQueue, changes: [StateChange] = []) throws {
        _ = try threads.result { outbox.settle(settlement, of: queue, changes: { _ in changes }, completion: $0) }
    }

    /// As a worker does: the result is stored first, then the claim is released.
    private func end(
        _ messages: [Message], of queue: UpstreamQueue, _ outcome: Settlement.Outcome,
        _ change: (inout Settlement) -> Void
    ) throws {
        var settlement = settlement(outcome)
        change(&settlement)
        try settle(settlement, of: queue)
        queue.release(messages)
    }

    func deliver(_ messages: [Message], of queue: UpstreamQueue) throws {
        try end(messages, of: queue, .delivered) { $0.delivered = messages }
    }

    func fail(_ messages: [Message], of queue: UpstreamQueue) throws {
        try end(messages, of: queue, .rejected) {
            $0.ended = messages.map { .init($0, as: .failed, error: error(.refused)) }
        }
    }

    func expire(_ messages: [Message], of queue: UpstreamQueue) throws {
        try end(messages, of: queue, .expired) { $0.ended = messages.map { .init($0, as: .expired, error: nil) } }
    }

    func openAttempt(_ messages: [Message], of queue: UpstreamQueue) throws {
        try openAttempt(outbox.nextBatch(), carrying: messages.map(\.id), of: queue)
    }

    func openAttempt(
        _ batch: BatchID, carrying ids: [MessageID], step: String? = nil, progress: [UInt8]? = nil,
        of queue: UpstreamQueue
    ) throws {
        try threads.result {
            outbox.openAttempt(
                batch, carrying: ids, step: step, progress: progress, at: time.now, of: queue, completion: $0)
        }
    }

    func sendLater(_ messages: [Message], of queue: UpstreamQueue, at moment: Timestamp, counts: Bool = true) throws {
        var settlement = settlement(.retry)
        settlement.waiting = .init(messages, nextAttemptAt: moment, counts: counts, error: error(.failing))
        try settle(settlement, of: queue)
        queue.sendAgain(messages, from: moment)
    }

    func error(_ errorClass: AttemptError.Class) -> AttemptError {
        AttemptError(errorClass, status: 500, detail: "as the test wants it", at: time.now)
    }

    /// Delivers until nothing can be claimed now. Returns what was sent, in order.
    @discardableResult func drain(_ queue: UpstreamQueue, most: Int = 500) throws -> [MessageID] {
        var sent: [MessageID] = []
        while true {
            let claim = try claim(queue, most: most)
            guard !claim.messages.isEmpty else { return sent }
            sent += claim.messages.map(\.id)
            try deliver(claim.messages, of: queue)
        }
    }

    // MARK: Queries

    func record(_ id: MessageID) throws -> MessageRecord? { try outbox.message(id, payload: true) }

    func state(_ id: MessageID) throws -> MessageState? { try record(id)?.state }

    func readiness(_ queue: UpstreamQueue, most: Int = 500, wait: Duration = .zero) -> Readiness {
        queue.readiness(
            limits: BatchLimits(maxMessages: most, maxBytes: 1 << 20), wait: wait, now: time.now, instant: time.instant)
    }

    func isBalanced(_ location: SourceLocation = #_sourceLocation) throws -> Bool {
        let audit = try outbox.audit()
        #expect(audit.accounts.flatMap(\.findings) == [], sourceLocation: location)
        return audit.isBalanced
    }

    /// Messages in `state` that the store still holds, of all upstreams.
    func kept(_ state: MessageState) throws -> Int {
        try outbox.audit().accounts.reduce(0) { $0 + ($1.rows[state] ?? 0) }
    }
}

/// Runs each test of a suite for each engine: what the suite says about the store is true of all of them.
struct EachEngine: SuiteTrait, TestTrait, TestScoping {
    @TaskLocal static var current = StoreEngineKind.sqlite
    private static let all = [StoreEngineKind.sqlite, .sqliteAdmittingLate(), .postgres(PostgresOptions())]

    let isRecursive = true

    func provideScope(
        for test: Test, testCase: Test.Case?, performing function: @Sendable () async throws -> Void
    ) async throws {
        for engine in Self.all {
            try await Self.$current.withValue(engine) { try await function() }
        }
    }
}

extension StoreEngineKind {
    var isPostgres: Bool { if case .postgres = self { true } else { false } }
}

extension Trait where Self == EachEngine {
    static var eachEngine: Self { Self() }
}
