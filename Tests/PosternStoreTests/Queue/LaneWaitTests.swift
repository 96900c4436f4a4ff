import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternStore

/// Lanes that wait because a plan said so, and what else upstreams are told of their lanes and keep in their state.
@Suite(.eachEngine) struct LaneWaitTests {
    private func plain() -> PlainUpstream { PlainUpstream(laneRule: .perLane) }

    // MARK: Waits that a plan asks for

    @Test func postponedLane_saysWhatItWaitsFor_andIsWokenEarly() throws {
        let store = try TestStore()
        let queue = try store.register(plain())
        let ids = try store.append(2, to: queue, lane: .named("a"))
        let until = store.time.now + .seconds(300)
        queue.postpone(try store.claim(queue), until: until, for: .schedule)
        try store.settleDown()
        #expect(try store.claim(queue).messages.isEmpty)
        #expect(store.readiness(queue) == .due(at: until))
        let record = try #require(try store.record(ids[1]))
        #expect(record.facts.laneWaitsFor == .schedule)
        #expect(record.facts.laneWaitsUntil == until)
        // Announcements do not end it.
        try store.append(to: queue, lane: .named("a"))
        #expect(try store.claim(queue).messages.isEmpty)
        #expect(store.readiness(queue) == .due(at: until))
        try store.change([.wake(lane: "a")], of: queue)
        #expect(try store.claim(queue).messages.count == 3)
        #expect(try #require(try store.record(ids[1])).facts.laneWaitsFor == nil)
    }

    /// What caused the hold is gone: the next one is tried at once.
    @Test func cancelledFront_endsTheWait_ofItsLane() throws {
        let store = try TestStore()
        let queue = try store.register(plain())
        let ids = try store.append(2, to: queue, lane: .named("a"))
        queue.postpone(try store.claim(queue), until: store.time.now + .seconds(300), for: .circuit)
        try store.settleDown()
        #expect(try store.claim(queue).messages.isEmpty)
        #expect(try store.cancel(ids[0]))
        #expect(store.readiness(queue) == .now)
        #expect(try store.claim(queue).messages.map(\.id) == [ids[1]])
    }

    @Test func wake_endsAWait_thatWasPlannedBeforeIt() throws {
        let store = try TestStore()
        let queue = try store.register(plain())
        try store.append(to: queue, lane: .named("a"))
        let claim = try store.claim(queue)
        try store.change([.wake(lane: "a")], of: queue)
        queue.postpone(claim, until: store.time.now + .seconds(300), for: .schedule)
        try store.settleDown()
        #expect(try store.claim(queue).messages.count == 1)
    }

    @Test func wake_doesNotHurryWhatIsToBeSentAgain() throws {
        let store = try TestStore()
        let queue = try store.register(plain())
        try store.append(to: queue, lane: .named("a"))
        let due = store.time.now + .seconds(10)
        try store.sendLater(store.claim(queue).messages, of: queue, at: due)
        try store.change([.wake(lane: "a")], of: queue)
        #expect(try store.claim(queue).messages.isEmpty)
        #expect(store.readiness(queue) == .due(at: due))
    }

    @Test func hurry_endsWaits() throws {
        let store = try TestStore()
        let queue = try store.register(plain())
        try store.append(to: queue, lane: .named("a"))
        queue.postpone(try store.claim(queue), until: .never, for: .schedule)
        queue.makeDue(at: store.time.now)
        try store.settleDown()
        #expect(try store.claim(queue).messages.count == 1)
    }

    /// A flush makes lanes due whose messages are not. That they wait is written back, which may fail.
    @Test func laneWithNothingDue_isExaminedAgain_ifTheStoreRefusesItsTime() throws {
        let store = try TestStore()
        let queue = try store.register(plain())
        let due = store.time.now + .seconds(300)
        let id = try store.append(to: queue, lane: .named("a"), notBefore: due)
        queue.makeDue(at: store.time.now)
        try store.settleDown()
        let isPostgres = store.options.engine.isPostgres
        try store.execute(
            isPostgres
                ? "ALTER TABLE lanes ADD CONSTRAINT trouble CHECK (number < 0) NOT VALID"
                : "CREATE TRIGGER trouble BEFORE UPDATE ON lanes BEGIN SELECT RAISE(ABORT, 'trouble'); END")
        #expect(try store.claim(queue).messages.isEmpty)
        try store.settleDown()
        #expect(store.readiness(queue) == .due(at: store.time.now + .seconds(1)))
        try store.execute(isPostgres ? "ALTER TABLE lanes DROP CONSTRAINT trouble" : "DROP TRIGGER trouble")
        store.time.advance(by: .seconds(1))
        #expect(try store.claim(queue).messages.isEmpty)
        try store.settleDown()
        #expect(store.readiness(queue) == .due(at: due))
        store.time.advance(by: .seconds(299))
        #expect(try store.drain(queue) == [id])
    }

    /// Where lanes are admitted later, that is left to the plan of the first message.
    @Test func firstMessage_canOpenItsLaneWaiting() throws {
        let store = try TestStore()
        let queue = try store.register(plain())
        let ids = try store.append(
            [
                NewMessage(
                    queue: queue.target, kind: "thing", lane: .named("a"), acceptedAt: store.time.now,
                    bytes: Array("{}".utf8),
                    waitsFor: .schedule)
            ]).ids
        let claim = try store.claim(queue)
        guard EachEngine.current.laneAdmission == .inAppend else {
            #expect(claim.messages.map(\.id) == ids)
            return
        }
        #expect(claim.messages.isEmpty)
        #expect(store.readiness(queue) == .nothing)
        let record = try #require(try store.record(ids[0]))
        #expect(record.facts.laneWaitsFor == .schedule)
        #expect(record.facts.laneWaitsUntil == .never)
    }

    @Test func lane_isLimitedByItself() throws {
        let store = try TestStore()
        let queue = try store.register(plain())
        try store.append(3, to: queue, lane: .named("one"))
        let claim = try queue.claim(
            BatchLimits(maxMessages: 10, maxBytes: 1000), now: store.time.now, oldest: nil,
            limitsOfLane: {
                $0 == "one" ? BatchLimits(maxMessages: 1, maxBytes: 1000) : BatchLimits(maxMessages: 9, maxBytes: 9)
            })
        #expect(claim.messages.count == 1)
    }

    /// Fifty thousand visitors, each with something to send.
    @Test func manyLanes_takeNoMemory() throws {
        let store = try TestStore()
        let queue = try store.register(plain())
        for part in 0..<5 {
            try store.append(
                (0..<10_000).map { store.message(to: queue, lane: .named("visitor-\(part * 10_000 + $0)")) })
        }
        #expect(queue.countInMemory == 0)
        let claims = try (0..<4).map { _ in try store.claim(queue) }
        #expect(claims.map(\.messages.count) == [1, 1, 1, 1])
        #expect(queue.countInMemory == 4)
    }

    // MARK: What is known of a message, and of a state

    @Test func message_remembersThatItWasTried_alsoByARunThatDied() throws {
        let store = try TestStore()
        var queue = try store.register(plain())
        try store.append(to: queue, lane: .named("a"))
        let claim = try store.claim(queue)
        #expect(!claim.messages[0].mayHaveArrived)
        try store.openAttempt(claim.messages, of: queue)
        try store.reopen()
        queue = try store.register(plain())
        #expect(try store.claim(queue).messages[0].mayHaveArrived)
    }

    /// Curio sends messages that an operator retries differently from new ones.
    @Test func message_remembersThatItWasRetried_alsoByARunThatDied() throws {
        let store = try TestStore()
        var queue = try store.register(plain())
        let id = try store.append(1, to: queue, lane: .named("a"))[0]
        let first = try store.claim(queue).messages
        #expect(!first[0].wasRetried)
        try store.fail(first, of: queue)
        #expect(try store.requeue([id]) == [id])
        let retried = try store.claim(queue).messages
        #expect(retried[0].wasRetried && !retried[0].mayHaveArrived)
        try store.openAttempt(retried, of: queue)
        try store.reopen()
        queue = try store.register(plain())
        let again = try store.claim(queue).messages[0]
        #expect(again.wasRetried && again.mayHaveArrived)
    }

    @Test func state_countsTheQueuedOfALane_andFindsWhatIsBelowAKey() throws {
        let store = try TestStore()
        let queue = try store.register(plain())
        try store.append(3, to: queue, lane: .named("a"))
        try store.append(1, to: queue, lane: .named("b"))
        try store.change(
            ["s", "s/1", "s/2/x", "s0", "s-1", "t/1"].map { .set(key: $0, value: [1]) }, of: queue)
        let queued = try store.outbox.withState(of: queue.number) { state in
            [("a", 10), ("a", 2), ("none", 2)].map { state.queued(inLane: $0.0, atMost: $0.1) }
        }
        #expect(queued == [3, 2, 0])
        let below = try store.outbox.withState(of: queue.number) { state in
            [10, 1].map { state.values(below: "s", atMost: $0).map(\.key) }
        }
        #expect(below == [["s/1", "s/2/x"], ["s/1"]])
    }

    @Test func cachedValues_areRemovedBelowAKey_orWhenTheirTimeIsOver() throws {
        let store = try TestStore()
        let queue = try store.register(plain())
        let other = try store.register(PlainUpstream("other", laneRule: .perLane))
        let until = store.time.now + .seconds(10)
        let keys = ["cache/a/1", "cache/a/2/x", "cache/a", "cache/ab/1", "cache/b/1"]
        for queue in [queue, other] {
            try store.change(keys.map { .cache(key: $0, value: [1], until: until) }, of: queue)
        }
        try store.change([.removeAll(below: "cache/a"), .set(key: "t", value: [3])], of: queue)
        let left = try store.outbox.withState(of: queue.number) { $0.values(below: "cache", atMost: 10).map(\.key) }
        #expect(left == ["cache/a", "cache/ab/1", "cache/b/1"])
        #expect(try store.count("state") == 4 + keys.count)
        store.time.advance(by: .seconds(11))
        try store.runMaintenance()
        #expect(try store.count("state") == 1)
    }

    @Test func expiredState_goesWithWhatIsBelowIt_onceItsLaneIsEmpty() throws {
        let store = try TestStore()
        let queue = try store.register(plain())
        let id = try store.append(to: queue, lane: .named("a"))
        let expiry = StateChange.Expiry(at: store.time.now + .seconds(10), lane: "a")
        try store.change(
            [.set(key: "s", value: [1], expiry: expiry), .set(key: "s/1", value: [2]), .set(key: "t", value: [3])],
            of: queue)
        try store.runMaintenance()
        #expect(try store.count("state") == 3)
        store.time.advance(by: .seconds(11))
        try store.runMaintenance()
        #expect(try store.count("state") == 3)
        try store.deliver(store.claim(queue).messages, of: queue)
        #expect(try store.state(id) == .delivered)
        store.time.advance(by: .seconds(61))
        try store.runMaintenance()
        #expect(try store.count("state") == 1)
    }
}
