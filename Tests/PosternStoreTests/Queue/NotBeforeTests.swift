import PosternCore
import PosternTestKit
import Testing

@testable import PosternStore

/// A message takes the place that its acceptance gives it among those that are due.
@Suite(.eachEngine) struct NotBeforeTests {
    private func lane(_ laneRule: LaneRule) -> Lane { laneRule == .acrossLanes ? .digest(1) : .named("lane") }

    @Test(arguments: [LaneRule.acrossLanes, .perLane])
    func dueMessage_isSentBeforeLaterOnesOfItsLane(laneRule: LaneRule) throws {
        let store = try TestStore()
        let queue = try store.register(PlainUpstream(laneRule: laneRule))
        let lane = lane(laneRule)
        let slow = try store.append(to: queue, lane: lane, notBefore: store.time.now + .seconds(3))
        let quick = try store.append(to: queue, lane: lane, notBefore: store.time.now + .seconds(2))
        let first = try store.append(to: queue, lane: lane)
        // They are not due, and do not delay others.
        #expect(try store.drain(queue) == [first])
        let later = try store.append(to: queue, lane: lane)
        store.time.advance(by: .seconds(5))
        let last = try store.append(to: queue, lane: lane)
        // Not in the order in which they became due, nor behind those that never waited.
        #expect(try store.drain(queue) == [slow, quick, later, last])
    }

    @Test(arguments: [LaneRule.acrossLanes, .perLane])
    func dueMessage_isSentBeforeALaterOne_thatIsToBeSentAgain(laneRule: LaneRule) throws {
        let store = try TestStore()
        let queue = try store.register(PlainUpstream(laneRule: laneRule))
        let lane = lane(laneRule)
        let scheduled = try store.append(to: queue, lane: lane, notBefore: store.time.now + .seconds(2))
        let failed = try store.append(to: queue, lane: lane)
        try store.sendLater(store.claim(queue).messages, of: queue, at: store.time.now + .seconds(60))
        #expect(try store.claim(queue).messages.isEmpty)
        #expect(store.readiness(queue) == .due(at: store.time.now + .seconds(2)))
        store.time.advance(by: .seconds(2))
        #expect(try store.drain(queue) == [scheduled])
        store.time.advance(by: .seconds(58))
        #expect(try store.drain(queue) == [failed])
    }

    @Test(arguments: [LaneRule.acrossLanes, .perLane])
    func dueMessage_waitsForAnEarlierOne_thatIsToBeSentAgain(laneRule: LaneRule) throws {
        let store = try TestStore()
        let queue = try store.register(PlainUpstream(laneRule: laneRule))
        let lane = lane(laneRule)
        let failed = try store.append(to: queue, lane: lane)
        try store.sendLater(store.claim(queue).messages, of: queue, at: store.time.now + .seconds(60))
        let scheduled = try store.append(to: queue, lane: lane, notBefore: store.time.now + .seconds(2))
        store.time.advance(by: .seconds(2))
        #expect(try store.claim(queue).messages.isEmpty)
        #expect(queue.isHeldUp(scheduled, lane: try #require(try store.record(scheduled)).lane))
        store.time.advance(by: .seconds(58))
        #expect(try store.drain(queue) == [failed, scheduled])
    }

    /// Any year of RFC 3339 may be asked for; a monotonic clock ends after 292.
    @Test(arguments: [LaneRule.acrossLanes, .perLane])
    func farFuture_isWaitedFor_nextToOthers(laneRule: LaneRule) throws {
        let store = try TestStore()
        let queue = try store.register(PlainUpstream(laneRule: laneRule))
        let latest = try #require(Timestamp(rfc3339: "9999-12-31T23:59:59Z"))
        try store.append(to: queue, lane: lane(laneRule), notBefore: latest)
        #expect(try store.claim(queue).messages.isEmpty)
        #expect(store.readiness(queue) == .due(at: latest))
        let other = try store.append(to: queue, lane: lane(laneRule))
        let wait = Duration.milliseconds(50)
        #expect([.now, .collecting(until: store.time.instant + wait)].contains(store.readiness(queue, wait: wait)))
        #expect(try store.drain(queue) == [other])
    }

    @Test func dueMessage_isNotSentBetweenTheRequestsOfALaterOne() throws {
        let store = try TestStore()
        let queue = try store.register(PlainUpstream(laneRule: .perLane))
        let lane = lane(.perLane)
        let due = store.time.now + .seconds(2)
        let scheduled = try store.append(to: queue, lane: lane, notBefore: due)
        let begun = try store.append(to: queue, lane: lane)
        let claim = try store.claim(queue)
        try store.openAttempt(store.outbox.nextBatch(), carrying: [begun], progress: Array("first".utf8), of: queue)
        try store.sendLater(claim.messages, of: queue, at: store.time.now + .seconds(60))
        store.time.advance(by: .seconds(2))
        #expect(try store.claim(queue).messages.isEmpty)
        #expect(store.readiness(queue) == .due(at: due + .seconds(58)))
        #expect(queue.isHeldUp(scheduled, lane: try #require(try store.record(scheduled)).lane))
        #expect(!queue.isHeldUp(begun, lane: try #require(try store.record(begun)).lane))
        store.time.advance(by: .seconds(58))
        #expect(try store.drain(queue) == [begun, scheduled])
    }

    /// It has waited for its own time before it began, and stays the only one of its lane until it ends. Requests that are
    /// named when they are sent (`isNamed`) begin it earlier than the result of the first one does.
    @Test(arguments: [false, true])
    func dueMessage_isNotSentBetweenTheRequestsOfALaterOne_thatWasScheduledItself(isNamed: Bool) throws {
        let store = try TestStore()
        let queue = try store.register(PlainUpstream(laneRule: .perLane))
        let lane = lane(.perLane)
        let start = store.time.now
        let earlier = try store.append(to: queue, lane: lane, notBefore: start + .seconds(4))
        let begun = try store.append(to: queue, lane: lane, notBefore: start + .seconds(2))
        store.time.advance(by: .seconds(2))
        let claim = try store.claim(queue)
        #expect(claim.messages.map(\.id) == [begun])
        let step = Array("first".utf8)
        try store.openAttempt(
            store.outbox.nextBatch(), carrying: [begun], progress: isNamed ? step : nil, of: queue)
        var settlement = store.settlement()
        settlement.progressed = isNamed ? [] : [(claim.messages[0], step)]
        try store.settle(settlement, of: queue)
        queue.release(claim.messages)
        store.time.advance(by: .seconds(2))
        #expect(queue.isHeldUp(earlier, lane: try #require(try store.record(earlier)).lane))
        #expect(try store.drain(queue) == [begun, earlier])
        #expect(try store.isBalanced())
    }

    /// The result of its first request, which would have named it as begun, is lost with the process.
    @Test func dueMessage_isNotSentBeforeALaterOne_ofWhichARequestMayHaveArrived() throws {
        let store = try TestStore()
        var queue = try store.register(PlainUpstream(laneRule: .perLane))
        let lane = lane(.perLane)
        let start = store.time.now
        let earlier = try store.append(to: queue, lane: lane, notBefore: start + .seconds(4))
        let begun = try store.append(to: queue, lane: lane, notBefore: start + .seconds(2))
        store.time.advance(by: .seconds(2))
        let claim = try store.claim(queue)
        #expect(claim.messages.map(\.id) == [begun])
        try store.openAttempt(claim.messages, of: queue)
        store.time.advance(by: .seconds(2))
        try store.reopen()
        queue = try store.register(PlainUpstream(laneRule: .perLane))
        #expect(try store.drain(queue) == [begun, earlier])
        #expect(try store.isBalanced())
    }

    /// A message that is queued again has its old position, but not before one that has begun.
    @Test func messageThatIsQueuedAgain_isNotSentBetweenTheRequestsOfALaterOne() throws {
        let store = try TestStore()
        let queue = try store.register(PlainUpstream(laneRule: .perLane))
        let lane = lane(.perLane)
        let failed = try store.append(to: queue, lane: lane)
        try store.fail(try store.claim(queue).messages, of: queue)
        let begun = try store.append(to: queue, lane: lane)
        let claim = try store.claim(queue)
        var settlement = store.settlement()
        settlement.progressed = [(claim.messages[0], Array("first".utf8))]
        try store.settle(settlement, of: queue)
        queue.release(claim.messages)
        let later = try store.append(to: queue, lane: lane)
        #expect(try store.requeue([failed]) == [failed])
        #expect(try store.drain(queue, most: 1) == [begun, failed, later])
        #expect(try store.isBalanced())
    }

    /// More messages of one lane than one scan reads.
    @Test func manyDueMessages_goInAcceptedOrder() throws {
        let store = try TestStore()
        let queue = try store.register()
        let due = store.time.now + .seconds(10)
        let ids = try store.append(
            (0..<3000).map { store.message(to: queue, lane: .digest(1), notBefore: due - .milliseconds($0)) }
        ).ids
        store.time.advance(by: .seconds(10))
        let fresh = try store.append(to: queue, lane: .digest(1))
        #expect(try store.drain(queue, most: 7) == ids + [fresh])
    }

    /// More than are found at once, with some that become due, are cancelled, and arrive meanwhile.
    @Test func manyDueMessages_ofASeparateLane_goInAcceptedOrder() throws {
        let store = try TestStore()
        let queue = try store.register(PlainUpstream(laneRule: .perLane))
        let lane = lane(.perLane)
        let start = store.time.now
        func append(_ count: Int, dueAfter seconds: Int) throws -> [MessageID] {
            let due = start + .seconds(seconds)
            return try store.append(
                (0..<count).map { store.message(to: queue, lane: lane, notBefore: due - .milliseconds($0)) }
            ).ids
        }
        let late = try append(1200, dueAfter: 20)
        var expected = try append(2500, dueAfter: 10)
        store.time.advance(by: .seconds(10))
        for _ in 0..<3 {
            let claim = try store.claim(queue, most: 100)
            #expect(claim.messages.map(\.id) == Array(expected.prefix(100)))
            try store.deliver(claim.messages, of: queue)
            expected.removeFirst(100)
        }
        for index in [400, 0] {
            let id = expected.remove(at: index)
            #expect(try store.cancel(id))
        }
        store.time.advance(by: .seconds(10))
        let fresh = try store.append(to: queue, lane: lane)
        #expect(try store.drain(queue, most: 100) == late + expected + [fresh])
        #expect(try store.isBalanced())
    }
}
