import PosternCore
import PosternTestKit
import PosternThreads
import PosternUpstream
import Testing

@testable import PosternStore

/// Batches of a mixed queue that are sent again, and what waits for them.
@Suite(.eachEngine) struct GroupTests {
    private let backoff = Duration.seconds(10)

    /// One message of a split waits alone; the others of its half go on, lane by lane.
    @Test func group_sendsWhoseLanesAreFree_andKeepsTheRest() throws {
        let store = try TestStore()
        let queue = try store.register()
        let ids = try store.append((1...4).map { store.message(to: queue, lane: .digest(Int64($0 % 3 + 1))) }).ids
        let claim = try store.claim(queue)
        #expect(claim.messages.map(\.id) == ids)
        // Lanes 2, 3, 1, 2: the first of lane 2 backs off alone, the others are a group that is due.
        let history = BatchHistory(failures: 1, suspectedAfter: 7)
        queue.sendAgain([claim.messages[0]], from: store.time.now + backoff, history: history)
        queue.sendAgain(Array(claim.messages[1...]), from: store.time.now, history: history)
        let behind = try store.append(to: queue, lane: .digest(2))
        let free = try store.claim(queue)
        #expect(free.messages.map(\.id) == [ids[1], ids[2]])
        #expect(free.history == history)
        #expect(free.isGroup)
        #expect(try store.claim(queue).messages.isEmpty)
        try store.deliver(free.messages, of: queue)
        #expect(try store.claim(queue).messages.isEmpty)
        #expect(store.readiness(queue) == .due(at: store.time.now + backoff))
        store.time.advance(by: backoff)
        let suspect = try store.claim(queue)
        #expect(suspect.messages.map(\.id) == [ids[0]])
        #expect(suspect.history == history)
        try store.deliver(suspect.messages, of: queue)
        let rest = try store.claim(queue)
        #expect(rest.messages.map(\.id) == [ids[3]])
        #expect(rest.history == history)
        try store.deliver(rest.messages, of: queue)
        #expect(try store.drain(queue) == [behind])
        #expect(try store.isBalanced())
    }

    @Test func loneMessage_thatBacksOff_holdsUpItsLaneOnly() throws {
        let store = try TestStore()
        let queue = try store.register()
        let ids = try store.append((0..<32).map { store.message(to: queue, lane: .digest(Int64($0 / 4 + 1))) }).ids
        let claim = try store.claim(queue)
        queue.sendAgain([claim.messages[5]], from: store.time.now + backoff)
        queue.sendAgain(claim.messages.filter { $0.id != ids[5] }, from: store.time.now)
        // All but those behind it in its lane.
        #expect(try store.drain(queue) == ids.filter { !ids[5...7].contains($0) })
        store.time.advance(by: backoff)
        #expect(try store.drain(queue) == Array(ids[5...7]))
    }

    @Test func newMessages_andDueGroups_goInTurn() throws {
        let store = try TestStore()
        let queue = try store.register()
        let failed = try (0..<3).map { _ in
            try store.append(to: queue)
            let claim = try store.claim(queue, preferring: .fresh)
            queue.sendAgain(claim.messages, from: store.time.now)
            return claim.messages[0].id
        }
        let fresh = try store.append(3, to: queue)
        var order: [MessageID] = []
        for _ in 0..<6 { order += try store.claim(queue, most: 1).messages.map(\.id) }
        // The last claim was of a new one.
        #expect(order == [failed[0], fresh[0], failed[1], fresh[1], failed[2], fresh[2]])
    }

    @Test(arguments: [LaneRule.acrossLanes, .perLane])
    func probe_takesWhatHasNotFailed_asLongAsThereIsSuch(laneRule: LaneRule) throws {
        let store = try TestStore()
        let queue = try store.register(PlainUpstream(laneRule: laneRule))
        let lane: (Int64) -> Lane = { laneRule == .acrossLanes ? .digest($0) : .named("lane-\($0)") }
        let failed = try store.append(to: queue, lane: lane(1))
        try store.sendLater(store.claim(queue).messages, of: queue, at: store.time.now)
        store.time.advance(by: .milliseconds(1))
        let fresh = try store.append(to: queue, lane: lane(2))
        #expect(try store.claim(queue, preferring: .fresh).messages.map(\.id) == [fresh])
        #expect(store.readiness(queue) == .now)
        #expect(try store.claim(queue, preferring: .fresh).messages.map(\.id) == [failed])
    }

    /// A row of suspects, one in each lane, would otherwise fail one probe after the other.
    @Test func probe_takesWhatIsNotSuspected_howeverLongOthersAreDue() throws {
        let store = try TestStore()
        let queue = try store.register()
        let ids = try store.append(2, to: queue)
        let suspect = try store.claim(queue, most: 1).messages
        queue.sendAgain(suspect, from: store.time.now, history: BatchHistory(suspectedAfter: 7))
        store.time.advance(by: .milliseconds(1))
        // It was claimed, and not sent, because its endpoint waits.
        queue.sendAgain(try store.claim(queue, most: 1, preferring: .fresh).messages, from: store.time.now)
        #expect(try store.claim(queue, preferring: .fresh).messages.map(\.id) == [ids[1]])
        #expect(try store.claim(queue, preferring: .fresh).messages.map(\.id) == [ids[0]])
    }

    @Test(arguments: [LaneRule.acrossLanes, .perLane])
    func suspect_isLeftWhereItIs_asLongAsItMayNotBeRepeated(laneRule: LaneRule) throws {
        let store = try TestStore()
        let queue = try store.register(PlainUpstream(laneRule: laneRule))
        let lane: (Int64) -> Lane = { laneRule == .acrossLanes ? .digest($0) : .named("lane-\($0)") }
        let suspect = try store.append(to: queue, lane: lane(1))
        let claim = try store.claim(queue)
        queue.sendAgain(claim.messages, from: store.time.now, history: BatchHistory(suspectedAfter: 7))
        let fresh = try store.append(to: queue, lane: lane(2))
        let limits = BatchLimits(maxMessages: 10, maxBytes: 1000)
        let notNow: (BatchHistory, Int) -> Bool = { history, count in history.suspectedAfter == nil || count > 1 }
        let first = try queue.claim(limits, now: store.time.now, oldest: nil, mayRepeat: notNow)
        #expect(first.messages.map(\.id) == [fresh])
        #expect(try queue.claim(limits, now: store.time.now, oldest: nil, mayRepeat: notNow).messages.isEmpty)
        #expect(store.readiness(queue) == .now)
        let second = try queue.claim(limits, now: store.time.now, oldest: nil)
        #expect(second.messages.map(\.id) == [suspect])
        #expect(second.history.suspectedAfter == 7)
    }

    @Test func cancelledMember_freesItsLane_andTheGroupStays() throws {
        let store = try TestStore()
        let queue = try store.register()
        let ids = try store.append((0..<3).map { store.message(to: queue, lane: .digest(Int64($0 + 1))) }).ids
        queue.sendAgain(try store.claim(queue).messages, from: store.time.now + backoff)
        let behind = try store.append(to: queue, lane: .digest(2))
        #expect(try store.claim(queue).messages.isEmpty)
        #expect(try store.cancel(ids[1]))
        #expect(store.readiness(queue) == .now)
        #expect(try store.drain(queue) == [behind])
        store.time.advance(by: backoff)
        #expect(try store.claim(queue).messages.map(\.id) == [ids[0], ids[2]])
    }

    /// More removals than the worker is notified of individually, so it determines itself which lanes are free.
    @Test func manyRemovals_unheard_freeTheirLanes() throws {
        let store = try TestStore()
        let queue = try store.register()
        let ids = try store.append(
            (0..<5000).map { store.message(to: queue, lane: .digest(Int64($0 + 1))) }
        ).ids
        queue.sendAgain(try store.claim(queue, most: 5000).messages, from: store.time.now + backoff)
        let behind = try store.append((0..<5000).map { store.message(to: queue, lane: .digest(Int64($0 + 1))) }).ids
        #expect(try store.claim(queue, most: 5000).messages.isEmpty)
        let answers = Inbox<[MessageID]?>()
        for id in ids { store.outbox.cancel([id]) { answers.put(try? $0.get()) } }
        #expect(try store.threads.receive(5000, from: answers).allSatisfy { $0?.count == 1 })
        #expect(store.readiness(queue) == .now)
        #expect(try store.drain(queue, most: 5000) == behind)
    }

    /// What is passed over takes up memory, so there is an end to it: one lane that is stuck in front of a long queue.
    @Test func scan_endsAtItsLimit_andGoesOnWhenTheLaneDoes() throws {
        let store = try TestStore()
        let queue = try store.register()
        try store.append(to: queue, lane: .digest(1))
        try store.sendLater(store.claim(queue).messages, of: queue, at: store.time.now + backoff)
        for _ in 0..<9 { try store.append(8000, to: queue, lane: .digest(1)) }
        let far = try store.append(to: queue, lane: .digest(2))
        #expect(try store.claim(queue).messages.isEmpty)
        #expect(queue.countInMemory == ExaminedRows.limit)
        // There is nothing to do until the lane continues, so the worker does not scan.
        #expect(store.readiness(queue) == .due(at: store.time.now + backoff))
        #expect(try store.claim(queue).messages.isEmpty)
        #expect(queue.countInMemory == ExaminedRows.limit)
        store.time.advance(by: backoff)
        let sent = try store.drain(queue, most: 10_000)
        #expect(sent.count == 72_002)
        #expect(sent.last == far)
        #expect(queue.countInMemory == 0)
    }

    private struct KindsApart: PlainAtHeart {
        let plain = PlainUpstream(kinds: ["dead", "alive"])
        let traits = Traits { traits in
            traits.laneRule = .acrossLanes
            traits.sendsKindsApart = true
        }
    }

    /// The same for messages that were scheduled and are all due at once.
    @Test func scheduledMessagesOfAPostponedKind_leaveRoomForOthers_howeverMany() throws {
        let store = try TestStore()
        let queue = try store.register(KindsApart())
        let due = store.time.now + .seconds(60)
        let append = { (count: Int, kind: Kind, notBefore: Timestamp?) throws -> [MessageID] in
            let message = NewMessage(
                queue: queue.target, kind: kind, acceptedAt: store.time.now, notBefore: notBefore,
                bytes: Array("{}".utf8))
            return try store.append(Array(repeating: message, count: count)).ids
        }
        var dead: [MessageID] = []
        for _ in 0..<9 { dead += try append(8000, "dead", due) }
        var alive = try append(3, "alive", due + .milliseconds(1)) + append(3, "alive", nil)
        store.time.advance(by: .seconds(61))
        func work(isRepaired: Bool = false) throws -> [MessageID] {
            var sent: [MessageID] = []
            while store.readiness(queue) == .now, case let claim = try store.claim(queue, most: 100),
                !claim.messages.isEmpty
            {
                let living = claim.messages.filter { isRepaired || $0.kind == "alive" }
                let others = claim.messages.filter { !isRepaired && $0.kind == "dead" }
                queue.postpone(claim.narrowed(to: others), until: store.time.now + backoff, for: .circuit)
                try store.deliver(living, of: queue)
                sent += living.map(\.id)
                #expect(queue.countInMemory < 4000)
            }
            return sent
        }
        #expect(try Set(work()) == Set(alive))
        // Also what comes later, and while those that were postponed are tried again.
        for _ in 0..<3 {
            store.time.advance(by: backoff)
            alive = try append(1, "alive", nil) + append(1, "alive", store.time.now)
            #expect(try Set(work()) == Set(alive))
        }
        store.time.advance(by: backoff)
        let late = try work(isRepaired: true)
        #expect(late.count == dead.count)
        #expect(Set(late) == Set(dead))
        #expect(queue.countInMemory == 0)
    }

    /// What the address of one kind has not taken waits in the store, and the other kinds go on.
    @Test func postponedKind_leavesRoomForOthers_howeverLong() throws {
        let store = try TestStore()
        let queue = try store.register(KindsApart())
        let append = { (count: Int, kind: Kind) throws -> [MessageID] in
            let message = NewMessage(
                queue: queue.target, kind: kind, acceptedAt: store.time.now, bytes: Array("{}".utf8))
            return try store.append(Array(repeating: message, count: count)).ids
        }
        var dead: [MessageID] = []
        for _ in 0..<9 { dead += try append(8000, "dead") }
        let alive = try append(3, "alive")
        /// Claims until nothing is left to claim now. Returns what is alive, which was delivered.
        func work() throws -> [MessageID] {
            var sent: [MessageID] = []
            while store.readiness(queue) == .now, case let claim = try store.claim(queue, most: 100),
                !claim.messages.isEmpty
            {
                let (living, others) = (
                    claim.messages.filter { $0.kind == "alive" }, claim.messages.filter { $0.kind == "dead" }
                )
                queue.postpone(claim.narrowed(to: others), until: store.time.now + backoff, for: .circuit)
                try store.deliver(living, of: queue)
                sent += living.map(\.id)
            }
            return sent
        }
        #expect(try work() == alive)
        #expect(queue.countInMemory < 2000)
        // Also if what was postponed is tried several times.
        for _ in 0..<3 {
            store.time.advance(by: backoff)
            #expect(try work().isEmpty)
            #expect(queue.countInMemory < 2000)
        }
        let more = try append(1, "alive")
        #expect(try work() == more)
        // It has recovered.
        store.time.advance(by: backoff)
        #expect(try store.drain(queue).sorted() == dead)
        #expect(queue.countInMemory == 0)
    }

    /// A lane that could not be read is read again.
    @Test func failedRead_losesNoLane() throws {
        let store = try TestStore()
        let queue = try store.register()
        let ids = try store.append(3, to: queue, lane: .digest(1))
        queue.giveBack(try store.claim(queue), now: store.time.now)
        try store.execute("ALTER TABLE queue_\(queue.number.rawValue) RENAME TO away")
        #expect(throws: (any Error).self) { try store.claim(queue) }
        try store.execute("ALTER TABLE away RENAME TO queue_\(queue.number.rawValue)")
        #expect(store.readiness(queue) == .now)
        #expect(try store.drain(queue) == ids)
    }

    /// The writer's thread never waits for what a claim reads.
    @Test(arguments: [LaneRule.acrossLanes, .perLane])
    func writer_acceptsAndCancels_whileAClaimReads(laneRule: LaneRule) throws {
        let store = try TestStore()
        let queue = try store.register(PlainUpstream(laneRule: laneRule))
        let lane: Lane = laneRule == .acrossLanes ? .digest(1) : .named("lane")
        let ids = try store.append(3, to: queue, lane: lane)
        queue.sendAgain(
            try store.claim(queue).messages, from: store.time.now, history: BatchHistory(suspectedAfter: 1))
        var during: [Result<Bool, any Error>] = []
        let claim = try queue.claim(
            BatchLimits(maxMessages: 10, maxBytes: 1000), now: store.time.now, oldest: nil,
            mayRepeat: { _, _ in
                if during.isEmpty { during.append(Result { try store.cancel(ids[1]) }) }
                return true
            })
        #expect(try during.first?.get() == true)
        // Cancelled after the snapshot or before it: never sent.
        #expect(claim.messages.map(\.id) == [ids[0], ids[2]])
        #expect(try store.append(to: queue, lane: lane) > ids[2])
    }

    @Test(arguments: [LaneRule.acrossLanes, .perLane])
    func waitThatWasEnded_staysEnded_inTheNextRun(laneRule: LaneRule) throws {
        let store = try TestStore()
        let upstream = PlainUpstream(laneRule: laneRule)
        var queue = try store.register(upstream)
        let id = try store.append(to: queue, lane: laneRule == .acrossLanes ? .digest(1) : .named("lane"))
        try store.sendLater(store.claim(queue).messages, of: queue, at: store.time.now + .seconds(3600))
        queue.makeDue(at: store.time.now)
        try store.settleDown()
        try store.reopen()
        queue = try store.register(upstream)
        #expect(try store.claim(queue).messages.map(\.id) == [id])
    }
}
