import PosternCore
import PosternTestKit
import PosternThreads
import PosternUpstream
import Testing

@testable import PosternStore

@Suite(.eachEngine) struct SeparateLanesTests {
    private func plain() -> PlainUpstream { PlainUpstream(laneRule: .perLane) }

    @Test func batch_holdsOneLane_theOneReadyLongest() throws {
        let store = try TestStore()
        let queue = try store.register(plain())
        let first = try store.append(3, to: queue, lane: .named("a"))
        store.time.advance(by: .milliseconds(1))
        let second = try store.append(2, to: queue, lane: .named("b"))
        let more = try store.append(1, to: queue, lane: .named("a"))
        let claim = try store.claim(queue)
        #expect(claim.messages.map(\.id) == first + more)
        #expect(claim.messages[0].lane == .named("a"))
        #expect(try store.claim(queue).messages.map(\.id) == second)
        #expect(try store.claim(queue).messages.isEmpty)
        #expect(store.readiness(queue) == .nothing)
    }

    /// A worker that has no token yet does not scan, and still has to learn that a message needs one.
    @Test func arrival_wakesTheWorker_beforeItsFirstLook() throws {
        let store = try TestStore()
        let queue = try store.register(plain())
        let woken = Inbox<Void>()
        queue.onArrival(limits: BatchLimits(maxMessages: 10, maxBytes: 1000)) { woken.put(()) }
        try store.append(to: queue, lane: .named("a"))
        #expect(!woken.takeAll(waitingUntil: SystemTime().instant + longestWait).isEmpty)
        try store.append(to: queue, lane: .named("b"))
        #expect(!woken.takeAll(waitingUntil: SystemTime().instant + longestWait).isEmpty)
    }

    @Test func servedLane_goesBehindTheOthers() throws {
        let store = try TestStore()
        let queue = try store.register(plain())
        let busy = try store.append(4, to: queue, lane: .named("busy"))
        store.time.advance(by: .milliseconds(1))
        let other = try store.append(to: queue, lane: .named("other"))
        store.time.advance(by: .milliseconds(1))
        #expect(try store.drain(queue, most: 2) == Array(busy[..<2]) + [other] + Array(busy[2...]))
        #expect(try store.count("lanes") == 0)
        #expect(try store.isBalanced())
    }

    @Test(arguments: [Duration.zero, .seconds(2)])
    func lane_continuesAtOnce_afterTheClockWasSetBack(collecting wait: Duration) throws {
        let store = try TestStore()
        let queue = try store.register(plain())
        queue.onArrival(limits: BatchLimits(maxMessages: 10, maxBytes: 1000), wait: wait) {}
        let ids = try store.append(2, to: queue, lane: .named("a"))
        store.time.advance(by: wait)
        let claim = try store.claim(queue, most: 1)
        store.time.setWallClock(back: .seconds(3600))
        try store.deliver(claim.messages, of: queue)
        #expect(store.readiness(queue) == .now)
        #expect(try store.claim(queue).messages.map(\.id) == [ids[1]])
    }

    /// The second of two neighbours finds the lane as the first has left it.
    @Test func lane_isReadyForItsSoonestMessage_whicheverCameFirst() throws {
        let store = try TestStore()
        let queue = try store.register(plain())
        let later = store.message(to: queue, lane: .named("a"), notBefore: store.time.now + .seconds(60))
        let now = store.message(to: queue, lane: .named("a"))
        let ids = try store.append([later, now, later]).ids
        #expect(try store.claim(queue).messages.map(\.id) == [ids[1]])
        #expect(try store.count("lanes") == 1)
    }

    @Test func neighbours_areDeliveredTogether_andTheirLaneContinues() throws {
        let store = try TestStore()
        let queue = try store.register(plain())
        let ids = try store.append(9, to: queue, lane: .named("a"))
        let claim = try store.claim(queue, most: 6)
        try store.deliver(claim.messages, of: queue)
        #expect(try store.kept(.delivered) == 6)
        #expect(try store.claim(queue).messages.map(\.id) == Array(ids[6...]))
        #expect(try store.isBalanced())
    }

    @Test func lane_hasOneBatchInFlight() throws {
        let store = try TestStore()
        let queue = try store.register(plain())
        let ids = try store.append(2, to: queue, lane: .named("a"))
        let claim = try store.claim(queue, most: 1)
        #expect(try store.claim(queue).messages.isEmpty)
        #expect(queue.isHeldUp(ids[1], lane: try #require(try store.record(ids[1])).lane))
        #expect(!queue.isHeldUp(ids[0], lane: try #require(try store.record(ids[0])).lane))
        try store.deliver(claim.messages, of: queue)
        #expect(store.readiness(queue) == .now)
        #expect(try store.claim(queue).messages.map(\.id) == [ids[1]])
    }

    @Test func failedLane_waits_holdsUpNoOther_andSurvivesARestart() throws {
        let store = try TestStore()
        var queue = try store.register(plain())
        let stuck = try store.append(2, to: queue, lane: .named("stuck"))
        let due = store.time.now + .seconds(10)
        try store.sendLater(store.claim(queue).messages, of: queue, at: due)
        let behind = try store.append(to: queue, lane: .named("stuck"))
        for _ in 0..<2 {
            let other = try store.append(to: queue, lane: .named("other"))
            #expect(try store.drain(queue) == [other])
            #expect(store.readiness(queue) == .due(at: due))
            try store.reopen()
            queue = try store.register(plain())
        }
        store.time.advance(by: .seconds(10))
        let again = try store.claim(queue)
        // As it was, without those that came later.
        #expect(again.messages.map(\.id) == stuck)
        #expect(again.isGroup)
        #expect(again.history.failures == 1)
        try store.deliver(again.messages, of: queue)
        #expect(try store.drain(queue) == [behind])
        #expect(try store.isBalanced())
    }

    @Test func groups_areNeverSideBySide() throws {
        let store = try TestStore()
        let queue = try store.register(plain())
        let first = try store.append(to: queue, lane: .named("a1", group: "a"))
        // Lanes that are ready since the same time go in any order.
        store.time.advance(by: .milliseconds(1))
        let second = try store.append(to: queue, lane: .named("a2", group: "a"))
        let other = try store.append(to: queue, lane: .named("b1", group: "b"))
        let claim = try store.claim(queue)
        #expect(claim.messages.map(\.id) == [first])
        #expect(try store.claim(queue).messages.map(\.id) == [other])
        #expect(try store.claim(queue).messages.isEmpty)
        #expect(store.readiness(queue) == .nothing)
        try store.deliver(claim.messages, of: queue)
        #expect(try store.claim(queue).messages.map(\.id) == [second])
    }

    @Test func parkedGroup_waits_untilItIsReleased() throws {
        let store = try TestStore()
        var queue = try store.register(plain())
        let ids = [
            try store.append(to: queue, lane: .named("a1", group: "a")),
            try store.append(to: queue, lane: .named("a2", group: "a")),
        ]
        let claim = try store.claim(queue)
        var settlement = store.settlement(.parked)
        settlement.parked = claim.messages
        try store.settle(settlement, of: queue)
        queue.giveBack(claim, now: store.time.now)
        let late = try store.append(to: queue, lane: .named("a3", group: "a"))
        let other = try store.append(to: queue, lane: .named("b", group: "b"))
        #expect(try store.record(ids[1])?.facts.isParked == true)
        #expect(try store.record(late)?.facts.isParked == true)
        #expect(try store.record(other)?.facts.isParked == false)
        for _ in 0..<2 {
            #expect(try store.drain(queue).allSatisfy { $0 == other })
            #expect(store.readiness(queue) == .nothing)
            try store.reopen()
            queue = try store.register(plain())
        }
        let alarms = SharedValue(0)
        queue.onArrival(limits: BatchLimits(maxMessages: 1, maxBytes: 1)) {
            alarms.set(alarms.value + 1)
        }
        _ = try store.claim(queue)
        let current = queue
        try store.change([.release(group: "a")], of: current)
        #expect(alarms.value == 1)
        #expect(try store.drain(queue).sorted() == ids + [late])
        #expect(try store.isBalanced())
    }

    @Test func newLane_collects_andItsRestGoesOnAtOnce() throws {
        let store = try TestStore()
        let queue = try store.register(plain())
        let wait = Duration.milliseconds(50)
        queue.onArrival(limits: BatchLimits(maxMessages: 3, maxBytes: 1 << 20), wait: wait) {}
        let due = store.time.now + wait
        try store.append(7, to: queue, lane: .named("a"))
        _ = try store.claim(queue, most: 3)
        #expect(store.readiness(queue) == .due(at: due))
        #expect(try store.claim(queue, most: 3).messages.isEmpty)
        store.time.advance(by: wait)
        // The remaining messages that have been collected long enough.
        #expect(try store.drain(queue, most: 3).count == 7)
        try store.append(7, to: queue, lane: .named("a"))
        store.time.advance(by: wait)
        let claim = try store.claim(queue, most: 3)
        try store.append(1, to: queue, lane: .named("a"))
        try store.deliver(claim.messages, of: queue)
        #expect(try store.drain(queue, most: 3).count == 5)
    }

    @Test func scheduledMessage_holdsUpNothing_andMakesItsLaneReadyInTime() throws {
        let store = try TestStore()
        let queue = try store.register(plain())
        let due = store.time.now + .seconds(10)
        let late = try store.append(to: queue, lane: .named("a"), notBefore: due)
        #expect(try store.claim(queue).messages.isEmpty)
        #expect(store.readiness(queue) == .due(at: due))
        let now = try store.append(to: queue, lane: .named("a"))
        #expect(try store.drain(queue) == [now])
        #expect(store.readiness(queue) == .due(at: due))
        store.time.advance(by: .seconds(10))
        #expect(try store.drain(queue) == [late])
        #expect(try store.isBalanced())
    }

    @Test func halves_goOutAsTheyAre() throws {
        let store = try TestStore()
        let queue = try store.register(plain())
        let ids = try store.append(5, to: queue, lane: .named("a"))
        let claim = try store.claim(queue)
        try store.settle(store.settlement(.split), of: queue)
        let history = BatchHistory(failures: 0, suspectedAfter: 7)
        queue.sendAgain(Array(claim.messages[..<3]), from: store.time.now, history: history)
        queue.sendAgain(Array(claim.messages[3...]), from: store.time.now, history: history)
        let later = try store.append(to: queue, lane: .named("a"))
        let first = try store.claim(queue)
        #expect(first.messages.map(\.id) == Array(ids[..<3]))
        #expect(first.history == history)
        // Apart again, with the second half still to come.
        try store.settle(store.settlement(.split), of: queue)
        queue.sendAgain([first.messages[0], first.messages[1]], from: store.time.now, history: history)
        queue.sendAgain([first.messages[2]], from: store.time.now, history: history)
        var sizes: [Int] = []
        while true {
            let claim = try store.claim(queue)
            guard !claim.messages.isEmpty else { break }
            sizes.append(claim.messages.count)
            try store.deliver(claim.messages, of: queue)
        }
        #expect(sizes == [2, 1, 2, 1])
        #expect(try store.state(later) == .delivered)
    }

    @Test func postponedLane_waits_alsoForWhatArrives() throws {
        let store = try TestStore()
        var queue = try store.register(plain())
        let ids = try store.append(2, to: queue, lane: .named("a"))
        let due = store.time.now + .seconds(60)
        queue.postpone(try store.claim(queue), until: due)
        try store.settleDown()
        let later = try store.append(to: queue, lane: .named("a"))
        for _ in 0..<2 {
            #expect(try store.claim(queue).messages.isEmpty)
            #expect(store.readiness(queue) == .due(at: due))
            try store.reopen()
            queue = try store.register(plain())
        }
        queue.makeDue(at: store.time.now)
        try store.settleDown()
        #expect(try store.drain(queue) == ids + [later])
    }

    @Test func waitThatWasEnded_staysEnded_whenALaterMessageIsCancelled() throws {
        let store = try TestStore()
        let queue = try store.register(plain())
        let ids = try store.append(2, to: queue, lane: .named("a"))
        try store.sendLater(
            store.claim(queue, most: 1).messages, of: queue, at: store.time.now + .seconds(3600))
        #expect(try store.claim(queue).messages.isEmpty)
        queue.makeDue(at: store.time.now)
        try store.settleDown()
        #expect(try store.cancel(ids[1]))
        #expect(try store.claim(queue).messages.map(\.id) == [ids[0]])
    }

    /// Otherwise the next one waits by the clock before it was set back, once the front is delivered.
    @Test func waitThatWasEnded_staysEnded_forWhatHasFailedWithTheFront() throws {
        let store = try TestStore()
        let queue = try store.register(plain())
        let ids = try store.append(2, to: queue, lane: .named("a"))
        try store.sendLater(store.claim(queue).messages, of: queue, at: store.time.now + .seconds(3600))
        queue.makeDue(at: store.time.now)
        try store.settleDown()
        let front = try store.claim(queue, most: 1).messages
        #expect(front.map(\.id) == [ids[0]])
        try store.deliver(front, of: queue)
        #expect(try store.claim(queue).messages.map(\.id) == [ids[1]])
    }

    @Test func cancelledFront_freesItsLane() throws {
        let store = try TestStore()
        let queue = try store.register(plain())
        let front = try store.append(to: queue, lane: .named("a"))
        try store.sendLater(store.claim(queue).messages, of: queue, at: store.time.now + .seconds(300))
        let next = try store.append(to: queue, lane: .named("a"))
        #expect(try store.claim(queue).messages.isEmpty)
        #expect(try store.cancel(front))
        #expect(store.readiness(queue) == .now)
        #expect(try store.drain(queue) == [next])
        #expect(try store.count("lanes") == 0)
    }

    @Test func requeued_comesBackAtTheFrontOfItsLane() throws {
        let store = try TestStore()
        let queue = try store.register(plain())
        let ids = try store.append(2, to: queue, lane: .named("a", group: "g"))
        try store.fail(store.claim(queue, most: 1).messages, of: queue)
        #expect(try store.requeue([ids[0]]) == [ids[0]])
        #expect(try store.drain(queue) == ids)
        try store.append(to: queue, lane: .named("b", group: "g"))
        try store.fail(store.claim(queue).messages, of: queue)
        #expect(try store.count("lanes") == 0)
        let failed = try store.outbox.messages(MessageFilter(state: .failed), after: nil, limit: 1).messages[0].id
        #expect(try store.requeue([failed]) == [failed])
        #expect(try store.claim(queue).messages.map(\.lane) == [.named("b", group: "g")])
    }

    @Test func partlyCarriedClaim_leavesTheRestInItsPlace() throws {
        let store = try TestStore()
        let queue = try store.register(plain())
        let ids = try store.append(3, to: queue, lane: .named("a"))
        let claim = try store.claim(queue)
        queue.sendAgain(Array(claim.messages[1...]), from: store.time.now)
        #expect(try store.claim(queue).messages.isEmpty)
        try store.deliver([claim.messages[0]], of: queue)
        try store.append(1, to: queue, lane: .named("a"))
        #expect(try store.claim(queue).messages.map(\.id).starts(with: ids[1...]))
    }
}
