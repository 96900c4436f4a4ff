import Logging
import PosternCore
import PosternEvents
import PosternMetrics
import PosternTestKit
import PosternThreads
import PosternUpstream
import Testing

@testable import PosternStore

/// A queue that one worker after another sends from, while messages are stored, cancelled, and expire.
@Suite(.eachEngine) struct AdoptionTests {
    private static let rules: [LaneRule] = [.acrossLanes, .perLane]
    private static func lane(_ rule: LaneRule) -> Lane { rule == .acrossLanes ? .digest(7) : .named("a") }

    @Test(arguments: rules) func messages_areKeptInOrder_whileNoWorkerSends(rule: LaneRule) throws {
        let store = try TestStore()
        let queue = try store.register(PlainUpstream(laneRule: rule))
        let before = try store.append(2, to: queue, lane: Self.lane(rule))
        store.outbox.drop(queue)
        let meanwhile = try store.append(3, to: queue, lane: Self.lane(rule))
        #expect(try store.cancel(meanwhile[1]))
        let next = try store.outbox.adopt(queue.target)
        let after = try store.append(to: next, lane: Self.lane(rule))
        #expect(try store.drain(next) == before + [meanwhile[0], meanwhile[2], after])
        #expect(try store.isBalanced())
    }

    @Test(arguments: rules) func claims_endWithTheDrop(rule: LaneRule) throws {
        let store = try TestStore()
        let queue = try store.register(PlainUpstream(laneRule: rule))
        let ids = try store.append(3, to: queue, lane: Self.lane(rule))
        #expect(try store.claim(queue, most: 2).messages.map(\.id) == Array(ids[..<2]))
        #expect(store.outbox.isInFlight(ids[0]))
        store.outbox.drop(queue)
        #expect(!store.outbox.isInFlight(ids[0]))
        let next = try store.outbox.adopt(queue.target)
        #expect(try store.drain(next) == ids)
        #expect(try store.isBalanced())
    }

    @Test(arguments: rules) func attemptThatWasLeftOpen_isClosedByTheNextOwner(rule: LaneRule) throws {
        let store = try TestStore()
        let other = try store.register(PlainUpstream("other", laneRule: rule))
        let queue = try store.register(PlainUpstream(laneRule: rule))
        for queue in [queue, other] {
            try store.append(2, to: queue, lane: Self.lane(rule))
            try store.openAttempt(store.claim(queue).messages, of: queue)
        }
        store.outbox.drop(queue)
        let next = try store.outbox.adopt(queue.target)
        #expect(store.outbox.ledger(of: queue.number).ambiguousSends == 1)
        let claim = try store.claim(next)
        #expect(claim.messages.count == 2)
        #expect(claim.messages.allSatisfy { $0.mayHaveArrived })
        let attempts = try store.outbox.attempts(of: claim.messages[0].id)
        #expect(attempts.map(\.outcome) == [Settlement.Outcome.unknown.rawValue])
        // That of another queue is under way.
        #expect(store.outbox.ledger(of: other.number).ambiguousSends == 0)
    }

    @Test func waits_continue_withTheNextOwner() throws {
        let store = try TestStore()
        let queue = try store.register()
        let retried = try store.append(2, to: queue)
        let dueAt = store.time.now + .seconds(60)
        try store.sendLater(store.claim(queue).messages, of: queue, at: dueAt)
        store.outbox.drop(queue)
        let scheduled = try store.append(to: queue, notBefore: store.time.now + .seconds(30))
        let next = try store.outbox.adopt(queue.target)
        #expect(try store.drain(next).isEmpty)
        #expect(store.readiness(next) == .due(at: store.time.now + .seconds(30)))
        store.time.advance(by: .seconds(30))
        #expect(try store.drain(next) == [scheduled])
        #expect(store.readiness(next) == .due(at: dueAt))
        store.time.advance(by: .seconds(30))
        #expect(try store.drain(next) == retried)
    }

    @Test(arguments: rules) func messages_expire_whileNoWorkerSends(rule: LaneRule) throws {
        let store = try TestStore()
        let queue = try store.register(PlainUpstream(laneRule: rule))
        queue.onArrival(limits: BatchLimits(maxMessages: 1, maxBytes: 1), expireAfter: .seconds(10)) {}
        let claimed = try store.append(to: queue, lane: Self.lane(rule))
        #expect(try store.claim(queue).messages.count == 1)
        store.outbox.drop(queue)
        store.time.advance(by: .seconds(11))
        try store.runMaintenance()
        #expect(try store.state(claimed) == .expired)
        #expect(try store.drain(store.outbox.adopt(queue.target)).isEmpty)
        #expect(try store.isBalanced())
    }

    @Test func fullQueue_dropsItsOldest_whileNoWorkerSends() throws {
        let store = try TestStore()
        let queue = try store.register(cap: QueueCap.with { ($0.maxMessages, $0.whenFull) = (2, .dropOldest) })
        let ids = try store.append(2, to: queue)
        _ = try store.claim(queue, most: 1)
        store.outbox.drop(queue)
        let newest = try store.append(to: queue)
        #expect(try store.state(ids[0]) == .dropped)
        #expect(try store.drain(store.outbox.adopt(queue.target)) == [ids[1], newest])
        #expect(try store.isBalanced())
    }

    @Test func events_areStored_whileNoWorkerSendsThem() throws {
        let store = try TestStore()
        let work = try store.register(PlainUpstream("work"))
        let hooks = try store.register(PlainUpstream("hooks"))
        store.outbox.setCallbacks([
            Callback(to: hooks.target, as: "thing", of: [.delivered], in: nil, includesPayload: false) { messages in
                messages.map { _ in Callback.Event(Array("{}".utf8), lane: .none) }
            }
        ])
        store.outbox.drop(hooks)
        try store.append(2, to: work)
        try store.drain(work)
        #expect(try store.drain(store.outbox.adopt(hooks.target)).count == 2)
        #expect(try store.isBalanced())
    }

    /// The commit announces nothing to the next owner, and removes what its claims must not find.
    @Test(arguments: rules) func adoption_seesWhatTheSameCommitStoresAndRemoves(rule: LaneRule) throws {
        let folder = ScratchFolder()
        let threads = ManualThreads()
        let outbox = try Outbox(
            OutboxOptions(path: folder.file("store.sqlite")), time: threads.time, threads: threads,
            metrics: Metrics(), logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
        defer { outbox.close() }
        outbox.setCallbacks([])
        let target = try outbox.register(PlainUpstream(laneRule: rule), type: "plain", cap: QueueCap())
        func message() -> NewMessage {
            NewMessage(
                queue: target, kind: "thing", lane: Self.lane(rule), acceptedAt: threads.time.now,
                bytes: Array("{}".utf8))
        }
        let ids = try threads.result { outbox.append([message(), message()], completion: $0) }.ids
        let answers = Inbox<[MessageID]>()
        outbox.cancel([ids[0]]) { answers.put((try? $0.get()) ?? []) }
        outbox.append([message()]) { answers.put((try? $0.get().ids) ?? []) }
        // Waits for the writer, which commits all of it at once.
        let queue = try outbox.adopt(target)
        let done = answers.takeAll()
        #expect(done.map(\.count) == [1, 1])
        let claim = try queue.claim(
            BatchLimits(maxMessages: 10, maxBytes: 1000), now: threads.time.now, oldest: nil)
        #expect(claim.messages.map(\.id) == [ids[1]] + done[1])
    }
}
