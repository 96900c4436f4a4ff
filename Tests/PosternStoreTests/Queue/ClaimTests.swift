import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternStore

@Suite(.eachEngine) struct ClaimTests {
    private let soon = Duration.seconds(10)

    @Test func ids_sortByAcceptance_acrossUpstreams_andSurviveAReopening() throws {
        let store = try TestStore()
        var ids: [MessageID] = []
        for _ in 0..<2 {
            let first = try store.register(PlainUpstream("first"))
            let second = try store.register(PlainUpstream("second"))
            for _ in 0..<5 { ids += [try store.append(to: first), try store.append(to: second)] }
            try store.reopen()
        }
        #expect(ids == ids.sorted())
        #expect(Set(ids).count == 20)
        #expect(ids.map(\.description) == ids.map(\.description).sorted())
    }

    @Test func freshStore_neverRepeatsIds_ofAnOlderOne() throws {
        let old = try TestStore()
        let ids = try old.append(1000, to: old.register())
        let new = try TestStore()
        new.time.advance(by: .seconds(1))
        new.outbox.close()
        let fresh = try TestStore.open(
            OutboxOptions(path: new.folder.file("another.sqlite")), time: new.time)
        defer { fresh.close() }
        let queue = try fresh.adopt(fresh.register(PlainUpstream(), type: "plain", cap: QueueCap()))
        let receipt = try new.threads.result { fresh.append([new.message(to: queue)], completion: $0) }
        #expect(receipt.ids[0].sequence > ids.last!.sequence)
    }

    @Test func claim_takesTheOldest_withinTheLimits() throws {
        let store = try TestStore()
        let queue = try store.register()
        let ids = try store.append((0..<6).map { _ in store.message("1234567890", to: queue) }).ids
        #expect(try store.claim(queue, most: 2).messages.map(\.id) == Array(ids[..<2]))
        // Two payloads, a comma and nothing more.
        #expect(try store.claim(queue, bytes: 21).messages.map(\.id) == Array(ids[2..<4]))
        #expect(try store.claim(queue, bytes: 20).messages.map(\.id) == [ids[4]])
        #expect(try store.claim(queue, bytes: 5).messages.map(\.id) == [ids[5]])
        #expect(try store.claim(queue).messages.isEmpty)
        #expect(store.readiness(queue) == .nothing)
    }

    @Test func delivered_keepsAReceipt_andEmptiesTheQueue() throws {
        let store = try TestStore()
        let queue = try store.register()
        let ids = try store.append(20, to: queue)
        store.time.advance(by: .seconds(3))
        try store.drain(queue)
        let record = try #require(try store.record(ids[7]))
        #expect(record.state == .delivered)
        #expect(record.settledAt == store.time.now)
        #expect(record.attempts == 1)
        #expect(store.outbox.ledger(of: queue.number).queued == 0)
        #expect(store.outbox.ledger(of: queue.number).queuedBytes == 0)
        #expect(try store.isBalanced())
    }

    @Test func run_isMovedWhole_onlyWhenNothingLiesBetween() throws {
        let store = try TestStore()
        let queue = try store.register()
        let ids = try store.append(10, to: queue)
        let claim = try store.claim(queue)
        // The fourth is refused, the others delivered.
        var settlement = store.settlement()
        settlement.delivered = claim.messages.filter { $0.id != ids[3] }
        settlement.ended = [.init(claim.messages[3], as: .failed, error: store.error(.refused))]
        try store.settle(settlement, of: queue)
        queue.release(claim.messages)
        #expect(try store.state(ids[3]) == .failed)
        #expect(try ids.filter { $0 != ids[3] }.allSatisfy { try store.state($0) == .delivered })
        #expect(try store.isBalanced())
    }

    @Test func settlingTwice_countsOnce() throws {
        let store = try TestStore()
        let queue = try store.register()
        try store.append(10, to: queue)
        let claim = try store.claim(queue)
        try store.deliver(claim.messages, of: queue)
        try store.deliver(claim.messages, of: queue)
        try store.fail(claim.messages, of: queue)
        try store.sendLater(claim.messages, of: queue, at: store.time.now)
        #expect(store.outbox.ledger(of: queue.number).delivered == 10)
        #expect(try store.claim(queue).messages.isEmpty)
        #expect(try store.isBalanced())
    }

    @Test func retry_keepsAttemptsAndTime_overAReopening() throws {
        let store = try TestStore()
        var queue = try store.register()
        let id = try store.append(to: queue)
        let due = store.time.now + soon
        try store.sendLater(store.claim(queue).messages, of: queue, at: due)
        for _ in 0..<2 {
            let record = try #require(try store.record(id))
            #expect(record.attempts == 1)
            #expect(record.facts.nextAttemptAt == due)
            #expect(record.facts.isRetry)
            #expect(record.lastError?.errorClass == .failing)
            #expect(try store.claim(queue).messages.isEmpty)
            #expect(store.readiness(queue) == .due(at: due))
            try store.reopen()
            queue = try store.register()
            // The first look sees that nothing is there.
            #expect(try store.claim(queue).messages.isEmpty)
        }
        store.time.advance(by: soon)
        let claim = try store.claim(queue)
        #expect(claim.messages.map(\.id) == [id])
        #expect(claim.messages[0].attempts == 1)
        #expect(claim.isGroup)
    }

    @Test func retry_holdsUpItsLane_andNoOther() throws {
        let store = try TestStore()
        let queue = try store.register()
        try store.append(to: queue, lane: .digest(1))
        let first = try store.claim(queue).messages
        let due = store.time.now + soon
        try store.sendLater(first, of: queue, at: due)
        let held = try store.append(to: queue, lane: .digest(1))
        let other = try store.append(to: queue, lane: .digest(2))
        let none = try store.append(to: queue)
        #expect(try store.drain(queue) == [other, none])
        #expect(queue.isHeldUp(held, lane: 1))
        #expect(store.readiness(queue) == .due(at: due))
        store.time.advance(by: soon)
        #expect(try store.drain(queue) == [first[0].id, held])
        #expect(try store.isBalanced())
    }

    @Test func laneInFlight_isPassedOver_untilItIsSettled() throws {
        let store = try TestStore()
        let queue = try store.register()
        try store.append(to: queue, lane: .digest(1))
        let claim = try store.claim(queue)
        let later = try store.append(3, to: queue, lane: .digest(1))
        #expect(try store.claim(queue).messages.isEmpty)
        #expect(store.readiness(queue) == .nothing)
        try store.deliver(claim.messages, of: queue)
        #expect(store.readiness(queue) == .now)
        #expect(try store.claim(queue).messages.map(\.id) == later)
    }

    @Test func chattyStuckLane_holdsUpNoOther() throws {
        let store = try TestStore()
        let queue = try store.register()
        try store.append(to: queue, lane: .digest(1))
        try store.sendLater(store.claim(queue, most: 10).messages, of: queue, at: store.time.now + soon)
        try store.append(5000, to: queue, lane: .digest(1))
        let other = try store.append(to: queue, lane: .digest(2))
        #expect(try store.drain(queue, most: 10) == [other])
        store.time.advance(by: soon)
        #expect(try store.drain(queue, most: 10).count == 5001)
    }

    @Test func halves_goOutAsTheyAre_theOlderFirst() throws {
        let store = try TestStore()
        let queue = try store.register()
        let ids = try store.append(4, to: queue, lane: .digest(1))
        let claim = try store.claim(queue)
        queue.sendAgain(Array(claim.messages[..<2]), from: store.time.now)
        queue.sendAgain(Array(claim.messages[2...]), from: store.time.now)
        try store.append(to: queue, lane: .digest(1))
        let older = try store.claim(queue)
        #expect(older.messages.map(\.id) == Array(ids[..<2]))
        #expect(try store.claim(queue).messages.isEmpty)
        // Held by the older one, so there is no point in scanning repeatedly.
        #expect(store.readiness(queue) == .nothing)
        try store.deliver(older.messages, of: queue)
        #expect(try store.claim(queue).messages.map(\.id) == Array(ids[2...]))
    }

    @Test func group_isCut_whenTheLimitsHaveShrunk() throws {
        let store = try TestStore()
        let queue = try store.register()
        let ids = try store.append(5, to: queue)
        queue.sendAgain(try store.claim(queue).messages, from: store.time.now)
        #expect(try store.claim(queue, most: 3).messages.map(\.id) == Array(ids[..<3]))
        #expect(try store.claim(queue, most: 3).messages.map(\.id) == Array(ids[3...]))
    }

    @Test func returnedMessages_keepTheirPlaceInTheQueue() throws {
        let store = try TestStore()
        let queue = try store.register()
        let ids = try store.append(6, to: queue, lane: .digest(1))
        let claim = try store.claim(queue, most: 3)
        #expect(try store.claim(queue).messages.isEmpty)
        queue.giveBack(claim, now: store.time.now)
        #expect(store.readiness(queue) == .now)
        #expect(try store.claim(queue).messages.map(\.id) == ids)
        #expect(try store.claim(queue).messages.isEmpty)
    }

    @Test func scheduledMessage_comesDue_inTheOrderOfTime_andHoldsUpNothing() throws {
        let store = try TestStore()
        var queue = try store.register()
        let late = try store.append(to: queue, lane: .digest(1), notBefore: store.time.now + .seconds(20))
        let early = try store.append(to: queue, notBefore: store.time.now + .seconds(10))
        let plain = try store.append(to: queue, lane: .digest(1))
        #expect(try store.drain(queue) == [plain])
        for _ in 0..<2 {
            #expect(store.readiness(queue) == .due(at: store.time.now + .seconds(10)))
            #expect(try store.claim(queue).messages.isEmpty)
            try store.reopen()
            queue = try store.register()
            #expect(try store.claim(queue).messages.isEmpty)
        }
        store.time.advance(by: .seconds(10))
        #expect(try store.drain(queue) == [early])
        #expect(store.readiness(queue) == .due(at: store.time.now + .seconds(10)))
        store.time.advance(by: .seconds(10))
        #expect(try store.drain(queue) == [late])
        #expect(store.readiness(queue) == .nothing)
    }

    @Test func manyScheduledOnes_ofOneMoment_areAllSentOnce() throws {
        let store = try TestStore()
        let queue = try store.register()
        let due = store.time.now + .seconds(10)
        let ids = try store.append((0..<500).map { _ in store.message(to: queue, notBefore: due) }).ids
        store.time.advance(by: .seconds(10))
        // Accepted late for its time.
        let belated = try store.append([store.message(to: queue)])
        #expect(try store.drain(queue, most: 7).sorted() == ids + belated.ids)
        let past = NewMessage(
            queue: queue.target, kind: "thing", acceptedAt: due - .seconds(1), notBefore: due, bytes: Array("{}".utf8))
        let late = try store.append([past]).ids
        #expect(store.readiness(queue) == .now)
        #expect(try store.drain(queue) == late)
        #expect(store.readiness(queue) == .nothing)
    }

    @Test func scheduledClaim_givenBack_isClaimedAgain() throws {
        let store = try TestStore()
        let queue = try store.register()
        let id = try store.append(to: queue, notBefore: store.time.now + .seconds(1))
        store.time.advance(by: .seconds(1))
        let claim = try store.claim(queue)
        #expect(claim.messages.map(\.id) == [id])
        queue.giveBack(claim, now: store.time.now)
        #expect(try store.drain(queue) == [id])
    }

    @Test func claims_areVoid_afterACrash() throws {
        let store = try TestStore()
        var queue = try store.register()
        let ids = try store.append(5, to: queue)
        let claim = try store.claim(queue)
        let batch = store.outbox.nextBatch()
        try store.openAttempt(batch, carrying: claim.messages.map(\.id), of: queue)
        try store.reopen()
        queue = try store.register()
        #expect(try store.claim(queue).messages.map(\.id) == ids)
        let attempts = try store.outbox.attempts(of: ids[0])
        #expect(attempts.map(\.outcome) == ["unknown"])
        #expect(attempts.map(\.batch) == [batch])
        #expect(store.outbox.nextBatch().rawValue > batch.rawValue)
        #expect(store.outbox.ledger(of: queue.number).ambiguousSends == 1)
        // The counters on disk agree, also after the next commit.
        try store.append(1, to: queue)
        #expect(try store.outbox.audit().accounts[0].ledger.ambiguousSends == 1)
        // Registering again is not a restart: what is in flight stays in flight.
        try store.openAttempt(store.outbox.nextBatch(), carrying: ids, of: queue)
        _ = try store.outbox.register(PlainUpstream(), type: "plain", cap: QueueCap())
        #expect(try store.outbox.attempts(of: ids[0]).last?.outcome == nil)
    }

    @Test func stepThatBegan_isKept_andWhatMayHaveArrivedIsOfThatStep() throws {
        let store = try TestStore()
        var queue = try store.register()
        let id = try store.append(to: queue)
        func open(_ step: String?) throws {
            try store.openAttempt(
                store.outbox.nextBatch(), carrying: [id], progress: step.map { Array($0.utf8) }, of: queue)
        }
        func message() throws -> Message {
            let claim = try store.claim(queue)
            queue.giveBack(claim, now: store.time.now)
            return try #require(claim.messages.first)
        }
        try open("first")
        #expect(try message().progress == Array("first".utf8))
        #expect(try !message().mayHaveArrived)
        try store.reopen()
        queue = try store.register()
        #expect(try message().mayHaveArrived)
        // The same step again, and one that keeps nothing, leave the doubt.
        try open("first")
        try open(nil)
        #expect(try message().mayHaveArrived)
        try open("second")
        #expect(try message().progress == Array("second".utf8))
        #expect(try !message().mayHaveArrived)
    }

    @Test func attempt_namesTheStepOfItsRequest() throws {
        let store = try TestStore()
        let queue = try store.register()
        let id = try store.append(to: queue)
        try store.openAttempt(store.outbox.nextBatch(), carrying: [id], step: "first", of: queue)
        try store.openAttempt(store.outbox.nextBatch(), carrying: [id], of: queue)
        #expect(try store.outbox.attempts(of: id).map(\.step) == ["first", nil])
    }

    @Test func requeued_comesBackAtItsOldPlace() throws {
        let store = try TestStore()
        let queue = try store.register()
        let ids = try store.append(4, to: queue, lane: .digest(3))
        let claim = try store.claim(queue, most: 2)
        try store.fail(claim.messages, of: queue)
        #expect(try store.requeue([ids[1], ids[0], ids[2]]) == [ids[0], ids[1]])
        #expect(store.readiness(queue) == .now)
        let record = try #require(try store.record(ids[0]))
        #expect(record.attempts == 0)
        #expect(record.state == .queued)
        #expect(try store.drain(queue) == ids)
        #expect(try store.isBalanced())
    }

    @Test func dropped_canBeRequeued_whileOthersAreInFlight() throws {
        let store = try TestStore()
        let queue = try store.register(cap: QueueCap.with { ($0.maxMessages, $0.whenFull) = (2, .dropOldest) })
        let ids = try store.append(2, to: queue)
        let evicted = try store.append([store.message(to: queue)]).evicted
        #expect(evicted == [ids[0]])
        let claim = try store.claim(queue)
        #expect(try store.requeue(evicted) == evicted)
        let back = try store.claim(queue).messages
        #expect(back.map(\.id) == evicted)
        #expect(!back[0].wasRetried)
        #expect(try store.claim(queue).messages.isEmpty)
        try store.deliver(claim.messages, of: queue)
        #expect(try store.isBalanced())
    }
}

@Suite(.eachEngine) struct ExpiryTests {
    @Test func ownEnd_expiresAQueuedMessage_soonAfter() throws {
        let store = try TestStore()
        let queue = try store.register()
        let end = store.time.now + .seconds(5)
        let id = try store.append(to: queue, lane: .digest(1), expiresAt: end)
        try store.sendLater(store.claim(queue).messages, of: queue, at: store.time.now + .seconds(300))
        let next = try store.append(to: queue, lane: .digest(1))
        try store.runMaintenance()
        #expect(try store.state(id) == .queued)
        store.time.advance(by: .seconds(5))
        try store.runMaintenance()
        #expect(try store.state(id) == .expired)
        // What it held up goes on.
        #expect(try store.drain(queue) == [next])
        #expect(try store.isBalanced())
    }

    @Test func ageAndOwnEnd_areExamined_whenClaiming() throws {
        let store = try TestStore()
        let queue = try store.register()
        let old = try store.append(10, to: queue)
        store.time.advance(by: .seconds(60))
        let ended = try store.append(to: queue, expiresAt: store.time.now)
        let young = try store.append(to: queue)
        let claim = try store.claim(queue, oldest: store.time.now - .seconds(60))
        #expect(claim.expired.map(\.id) == old + [ended])
        #expect(claim.messages.map(\.id) == [young])
        try store.expire(claim.expired, of: queue)
        #expect(try store.state(old[0]) == .expired)
        #expect(!queue.isInFlight(old[0]))
        try store.deliver(claim.messages, of: queue)
        #expect(try store.isBalanced())
    }

    /// Regardless of what they wait for, because they do not have to be claimed.
    @Test(arguments: [LaneRule.acrossLanes, .perLane])
    func age_expiresWhatIsQueued_withoutAClaim(laneRule: LaneRule) throws {
        let store = try TestStore()
        let queue = try store.register(PlainUpstream(laneRule: laneRule))
        queue.onArrival(
            limits: BatchLimits(maxMessages: 2, maxBytes: 1000), expireAfter: .seconds(3)
        ) {}
        let lane: (Int64) -> Lane = { laneRule == .acrossLanes ? .digest($0) : .named("lane-\($0)") }
        let failed = try store.append(to: queue, lane: lane(1))
        try store.sendLater(store.claim(queue).messages, of: queue, at: store.time.now + .seconds(300))
        let sent = try store.append(to: queue, lane: lane(2))
        let claim = try store.claim(queue)
        #expect(claim.messages.map(\.id) == [sent])
        let old = try store.append(500, to: queue, lane: lane(1))
        store.time.advance(by: .seconds(2))
        let young = try store.append(to: queue, lane: lane(1))
        try store.runMaintenance()
        #expect(try store.state(old[0]) == .queued)
        store.time.advance(by: .seconds(1))
        try store.runMaintenance()
        #expect(try ([failed] + old).allSatisfy { try store.state($0) == .expired })
        #expect(try [sent, young].allSatisfy { try store.state($0) == .queued })
        // What it held up goes on.
        #expect(try store.drain(queue) == [young])
        try store.deliver(claim.messages, of: queue)
        #expect(try store.isBalanced())
    }

    @Test func longOutage_expiresInPortions() throws {
        let store = try TestStore()
        let queue = try store.register()
        try store.append(100, to: queue)
        store.time.advance(by: .seconds(60))
        let claim = try store.claim(queue, most: 30, oldest: store.time.now)
        #expect(claim.expired.count == 30)
        #expect(claim.messages.isEmpty)
        #expect(store.readiness(queue) == .now)
    }
}

@Suite(.eachEngine) struct ReadinessTests {
    private let wait = Duration.milliseconds(50)

    @Test func firstMessage_collects_andAFullBatchIsSentAtOnce() throws {
        let store = try TestStore()
        let queue = try store.register()
        try store.drain(queue)
        let begin = store.time.instant
        try store.append(1, to: queue)
        #expect(store.readiness(queue, most: 10, wait: wait) == .collecting(until: begin + wait))
        store.time.advance(by: .milliseconds(20))
        try store.append(8, to: queue)
        #expect(store.readiness(queue, most: 10, wait: wait) == .collecting(until: begin + wait))
        try store.append(1, to: queue)
        #expect(store.readiness(queue, most: 10, wait: wait) == .now)
        store.time.advance(by: wait)
        #expect(store.readiness(queue, most: 100, wait: wait) == .now)
    }

    @Test func busyQueue_staysRipe_asLongAsFullBatchesAreThere() throws {
        let store = try TestStore()
        let queue = try store.register()
        try store.drain(queue)
        try store.append(100, to: queue)
        for _ in 0..<10 {
            #expect(store.readiness(queue, most: 10, wait: wait) == .now)
            let claim = try store.claim(queue, most: 10)
            #expect(claim.messages.count == 10)
            try store.append(10, to: queue)
            try store.deliver(claim.messages, of: queue)
        }
    }

    @Test func rest_waitsNoLonger_thanItsOldestMay() throws {
        let store = try TestStore()
        let queue = try store.register()
        try store.drain(queue)
        let begin = store.time.instant
        try store.append(15, to: queue)
        store.time.advance(by: .milliseconds(20))
        try store.append(1, to: queue)
        _ = try store.claim(queue, most: 10)
        #expect(store.readiness(queue, most: 10, wait: wait) == .collecting(until: begin + wait))
    }

    @Test func cancelledMessages_leaveTheQueueIdle() throws {
        let store = try TestStore()
        let queue = try store.register()
        try store.drain(queue)
        let ids = try store.append(3, to: queue)
        for id in ids { #expect(try store.cancel(id)) }
        store.time.advance(by: wait)
        #expect(try store.claim(queue).messages.isEmpty)
        #expect(store.readiness(queue, wait: wait) == .nothing)
    }

    @Test func worker_isWoken_byTheFirstArrival_andByAFullBatch() throws {
        let store = try TestStore()
        let queue = try store.register()
        try store.drain(queue)
        let wakes = SharedValue(0)
        queue.onArrival(limits: BatchLimits(maxMessages: 10, maxBytes: 1 << 20)) {
            wakes.set(wakes.value + 1)
        }
        try store.append(1, to: queue)
        #expect(wakes.value == 1)
        try store.append(8, to: queue)
        #expect(wakes.value == 1)
        try store.append(1, to: queue)
        #expect(wakes.value == 2)
        try store.append(1, to: queue)
        #expect(wakes.value == 2)
        try store.drain(queue)
        try store.append(1, to: queue)
        #expect(wakes.value == 3)
        try store.append(to: queue, notBefore: store.time.now + .seconds(5))
        #expect(wakes.value == 4)
    }
}
