import Logging
import PosternCore
import PosternTestKit
import PosternThreads
import Testing

@testable import PosternStore
@testable import PosternUpstream

/// Nodes that share the queues of a store, and what happens when one moves.
@Suite struct QueueOwnersTests {
    private let shared: SharedStore

    init() throws { shared = try SharedStore() }

    /// Two nodes with the targets of two queues, of which they have adopted nothing. The first one keeps the store.
    private func open(
        lease: Double = 60, laneRule: LaneRule = .acrossLanes, through proxy: PostgresProxy? = nil
    ) throws -> (a: TestStore, b: TestStore, at: [QueueTarget], bt: [QueueTarget]) {
        let options = { [shared] (name: String, proxy: PostgresProxy?) in
            var options = shared.options(name, lease: lease, timeout: 5, through: proxy)
            options.pollSeconds = 0.02
            return options
        }
        let a = try shared.open(options("a", proxy))
        let register = { (store: TestStore) in
            try ["one", "two"].map {
                try store.outbox.register(
                    PlainUpstream($0, laneRule: laneRule), type: "plain", cap: QueueCap())
            }
        }
        let at = try register(a)
        let b = try shared.join(options("b", nil)).store
        return (a, b, at, try register(b))
    }

    @discardableResult private func append(
        _ text: String = "{}", to target: QueueTarget, lane: Lane = .none, at store: TestStore
    ) throws -> MessageID {
        let message = NewMessage(
            queue: target, kind: target.upstream.kinds[0], lane: lane, acceptedAt: store.time.now,
            bytes: Array(text.utf8))
        return try store.threads.result { store.outbox.append([message], completion: $0) }.ids[0]
    }

    /// Sends what can be claimed, until these have been.
    private func drain(_ queue: UpstreamQueue, at store: TestStore, count: Int) throws -> [MessageID] {
        var sent: [MessageID] = []
        _ = eventually {
            if let more = try? store.drain(queue) { sent += more }
            return sent.count >= count
        }
        return sent
    }

    @Test func queuesOfDifferentNodes_getTheMessagesOfBoth() throws {
        let (a, b, at, bt) = try open()
        let (one, two) = (try a.outbox.adopt(at[0]), try b.outbox.adopt(bt[1]))
        var (ones, twos): ([MessageID], [MessageID]) = ([], [])
        for _ in 0..<5 {
            ones += [try append(to: at[0], at: a), try append(to: bt[0], at: b)]
            twos += [try append(to: at[1], at: a), try append(to: bt[1], at: b)]
        }
        #expect(try drain(one, at: a, count: 10) == ones)
        #expect(try drain(two, at: b, count: 10) == twos)
        for store in [a, b] {
            for number in [one.number, two.number] {
                #expect(eventually { store.outbox.ledger(of: number).delivered == 10 })
                #expect(eventually { store.outbox.ledger(of: number).queued == 0 })
            }
            #expect(try store.isBalanced())
        }
        #expect(try shared.run("SELECT count(*) FROM arrivals") == 0)
        #expect(a.outbox.ownedQueues == 1 && b.outbox.ownedQueues == 1)
    }

    @Test func queueOfAnotherNode_isNotAdopted() throws {
        let (a, b, at, bt) = try open()
        let queue = try a.outbox.adopt(at[0])
        #expect(throws: StoreError.notOwner) { try b.outbox.adopt(bt[0]) }
        a.outbox.drop(queue)
        _ = try b.outbox.adopt(bt[0])
        #expect(throws: StoreError.notOwner) { try a.outbox.adopt(at[0]) }
        // What was refused is not a failure of the store.
        #expect(a.outbox.failure == nil && b.outbox.failure == nil)
    }

    @Test(arguments: [LaneRule.acrossLanes, .perLane])
    func queueThatMoves_keepsItsOrder_andItsFigures(laneRule: LaneRule) throws {
        let (a, b, at, bt) = try open(laneRule: laneRule)
        let lane = laneRule == .perLane ? Lane.named("x", group: nil) : .none
        var (ids, sent): ([MessageID], [MessageID]) = ([], [])
        for round in 0..<6 {
            let (owner, target) = round.isMultiple(of: 2) ? (a, at[0]) : (b, bt[0])
            // Before it has an owner, and while it has one.
            ids += [try append(to: at[0], lane: lane, at: a), try append(to: bt[0], lane: lane, at: b)]
            let queue = try owner.outbox.adopt(target)
            ids += [try append(to: at[0], lane: lane, at: a), try append(to: bt[0], lane: lane, at: b)]
            // Some are left to the next owner.
            let claim = try owner.claim(queue, most: 1)
            sent += claim.messages.map(\.id)
            try owner.deliver(claim.messages, of: queue)
            owner.outbox.drop(queue)
        }
        let last = try b.outbox.adopt(bt[0])
        sent += try drain(last, at: b, count: ids.count - sent.count)
        #expect(sent == ids)
        for store in [a, b] {
            #expect(eventually { store.outbox.ledger(of: at[0].number).delivered == ids.count })
            #expect(try store.isBalanced())
        }
    }

    @Test func openAttempts_areClosed_byTheNextOwner_ofThatQueueOnly() throws {
        let proxy = try shared.server.proxy()
        let (a, b, at, bt) = try open(lease: 1, through: proxy)
        let (one, two) = (try a.outbox.adopt(at[0]), try b.outbox.adopt(bt[1]))
        let (first, second) = (try append(to: at[0], at: a), try append(to: bt[1], at: b))
        try a.openAttempt(a.claim(one).messages, of: one)
        let claim = try b.claim(two)
        try b.openAttempt(claim.messages, of: two)
        proxy.isRefusing = true
        proxy.cutAll()
        #expect(eventually { b.outbox.assignment?.reasonToAdopt(one.number) == nil && b.outbox.isKeeper })
        b.outbox.serve(bt)
        #expect(eventually { b.outbox.assignment?.reasonToAdopt(one.number) == "takeover" })
        let adopted = try b.outbox.adopt(bt[0])
        #expect(b.outbox.ledger(of: one.number).ambiguousSends == 1)
        #expect(b.outbox.ledger(of: two.number).ambiguousSends == 0)
        #expect(try b.drain(adopted) == [first])
        // Its own request goes on.
        try b.deliver(claim.messages, of: two)
        #expect(try b.state(second) == .delivered)
        #expect(!a.outbox.mayStillSend)
        #expect(try b.isBalanced())
        proxy.heal()
        #expect(eventually { a.outbox.failure == .ownershipLost })
    }

    /// Also before it has noticed that it is the former one, and with sound connections.
    @Test func formerOwner_settlesNothing() throws {
        let (a, b, at, bt) = try open()
        let one = try a.outbox.adopt(at[0])
        let id = try append(to: at[0], at: a)
        let claim = try a.claim(one)
        try a.openAttempt(claim.messages, of: one)
        try shared.run("UPDATE nodes SET state = 3 WHERE name = 'a'")
        #expect(eventually { (try? b.outbox.adopt(bt[0])) != nil })
        #expect(throws: StoreError.self) { try a.deliver(claim.messages, of: one) }
        #expect(a.outbox.failure == .ownershipLost)
        #expect(try b.state(id) == .queued)
        #expect(try b.isBalanced())
    }

    /// A job of a former owner is never run by the writer of a later life of its process.
    @Test func nodeThatHadAQueue_doesNotBeginAgain() throws {
        let (a, b, _, bt) = try open()
        defer { withExtendedLifetime(a) {} }
        let queue = try b.outbox.adopt(bt[0])
        let id = try append(to: bt[0], at: b)
        let claim = try b.claim(queue)
        try shared.run("UPDATE nodes SET state = 3 WHERE name = 'b'")
        let writer = try shared.run("SELECT max(writer) FROM writers JOIN nodes USING (node) WHERE name = 'b'")
        try Fence(sql: shared.connect(), options: shared.options()).end(Int64(writer))
        #expect(throws: StoreError.self) { try b.deliver(claim.messages, of: queue) }
        #expect(eventually { b.outbox.loss == .ownershipLost })
        #expect(throws: StoreError.ownershipLost) { try b.deliver(claim.messages, of: queue) }
        #expect(try shared.run("SELECT count(*) FROM nodes WHERE name = 'b'") == 1)
        #expect(try b.state(id) == .queued)
    }

    // MARK: What a transaction does to the queue of another node

    /// The event is stored with the settlement that it reports.
    @Test func callback_toTheQueueOfAnotherNode_isCountedAndSentThere() throws {
        let (a, b, at, bt) = try open()
        let (one, two) = (try a.outbox.adopt(at[0]), try b.outbox.adopt(bt[1]))
        a.outbox.setCallbacks([
            Callback(to: at[1], as: "thing", of: [.delivered], in: nil, includesPayload: false) { messages in
                messages.map { _ in Callback.Event(Array("told".utf8), lane: .none) }
            }
        ])
        for index in 0..<3 { try append("\(index)", to: bt[0], at: b) }
        #expect(try drain(one, at: a, count: 3).count == 3)
        let told = try drain(two, at: b, count: 3)
        #expect(told.count == 3)
        for store in [a, b] {
            #expect(eventually { store.outbox.ledger(of: two.number).delivered == 3 })
            #expect(try store.isBalanced())
        }
    }

    /// Of a queue that is full, and of no other, the owner decides which messages are dropped, and which are in flight.
    @Test func fullQueue_ofAnotherNode_dropsItsOldest_whenThatHears() throws {
        let (a, b, at, bt) = try open()
        var cap = QueueCap()
        (cap.maxMessages, cap.whenFull) = (2, .dropOldest)
        a.outbox.setCap(cap, of: at[0])
        b.outbox.setCap(cap, of: bt[0])
        let queue = try a.outbox.adopt(at[0])
        let first = try append("0", to: bt[0], at: b)
        #expect(eventually(within: .seconds(20)) { a.outbox.ledger(of: queue.number).queued == 1 })
        let claim = try a.claim(queue)
        #expect(claim.messages.map(\.id) == [first])
        let ids = try (1..<5).map { try append("\($0)", to: bt[0], at: b) }
        #expect(eventually(within: .seconds(20)) { a.outbox.ledger(of: queue.number).dropped == 3 })
        try a.deliver(claim.messages, of: queue)
        #expect(try drain(queue, at: a, count: 1) == [ids[3]])
        #expect(try a.isBalanced())
    }

    /// Otherwise a message could be sent before an earlier one of its lane, which waits in another turn.
    @Test func lane_hasOneTurn_ifTwoNodesStoreItsFirstMessagesAtOnce() throws {
        let (a, b, at, bt) = try open()
        try a.outbox.share(at[0], by: Fairness(by: .caller))
        try b.outbox.share(bt[0], by: Fairness(by: .caller))
        let gate = try shared.connect()
        try gate.begin(.write)
        try gate.script("LOCK TABLE arrivals IN SHARE MODE")
        let results = [(a, at[0], Int64(1)), (b, bt[0], Int64(2))].map { store, target, turn in
            let result = SharedValue<Result<AppendReceipt, AppendError>?>(nil)
            let message = NewMessage(
                queue: target, kind: target.upstream.kinds[0], lane: .digest(7), acceptedAt: store.time.now,
                bytes: Array("{}".utf8), turn: turn)
            store.outbox.append([message]) { result.set($0) }
            return result
        }
        #expect(eventually { shared.blocked == 2 })
        gate.rollBack()
        for result in results { _ = try awaited(result) }
        #expect(try shared.run("SELECT count(*) FROM queue_1") == 2)
        #expect(try shared.run("SELECT count(DISTINCT turn) FROM queue_1") == 1)
    }

    // MARK: What an operator does

    @Test func message_isCancelled_byTheOwnerOfItsQueue_ifItIsNotBeingSent() throws {
        let (a, b, at, bt) = try open()
        let (one, two) = (try a.outbox.adopt(at[0]), try b.outbox.adopt(bt[1]))
        for store in [a, b] { store.outbox.answerRelayed { $0.respond(nil) } }
        let mine = try append(to: at[0], at: a)
        let (inFlight, others) = (try append(to: bt[1], at: b), try append(to: bt[1], at: b))
        let claim = try b.claim(two, most: 1)
        #expect(claim.messages.map(\.id) == [inFlight])
        #expect(throws: StoreError.notOwner) { try a.cancel(others) }
        #expect(a.outbox.mustRelay(two.number) && !a.outbox.mustRelay(one.number))
        let done = try a.threads.result { a.outbox.perform(.cancel, on: [mine, inFlight, others], completion: $0) }
        #expect(Set(done) == [mine, others])
        try b.fail(claim.messages, of: two)
        let again = try a.threads.result { a.outbox.perform(.retry, on: [inFlight], completion: $0) }
        #expect(again == [inFlight])
        #expect(try drain(two, at: b, count: 1) == [inFlight])
        let purged = try a.threads.result { a.outbox.perform(.purge, on: [inFlight, mine], completion: $0) }
        #expect(Set(purged) == [inFlight, mine])
        #expect(try a.isBalanced() && b.isBalanced())
        #expect(eventually { (try? shared.run("SELECT count(*) FROM requests")) == 0 })
    }

    @Test func keeper_answersForAQueueThatNoNodeHas() throws {
        let (a, b, at, bt) = try open()
        let (id, other) = (try append(to: bt[0], at: b), try append(to: at[0], at: a))
        for store in [a, b] { store.outbox.answerRelayed { $0.respond(nil) } }
        #expect(try a.cancel(id))
        #expect(try b.threads.result { b.outbox.perform(.cancel, on: [other], completion: $0) } == [other])
        #expect(try a.isBalanced())
    }

    // MARK: Which queues a node is to work on

    @Test func nodes_shareTheQueues_andTakeOverFromOneThatStops() throws {
        let (a, lease) = try shared.join(shared.options("a", lease: 2))
        let register = { (store: TestStore) in
            try (0..<4).map {
                try store.outbox.register(PlainUpstream("queue-\($0)"), type: "plain", cap: QueueCap())
            }
        }
        #expect(eventually { lease.isKeeper })
        let at = try register(a)
        a.outbox.serve(at)
        #expect(eventually { at.allSatisfy { a.outbox.assignment?.reasonToAdopt($0.number) == "free" } })
        var queues = try at.map { try a.outbox.adopt($0) }
        let b = try shared.join(shared.options("b", lease: 2)).store
        let bt = try register(b)
        b.outbox.serve(bt)
        // The one with more releases those with the highest numbers.
        #expect(
            eventually { at.map { a.outbox.assignment?.includes($0.number) == true } == [true, true, false, false] })
        #expect(
            eventually { bt.map { b.outbox.assignment?.includes($0.number) == true } == [false, false, true, true] })
        #expect(b.outbox.assignment?.reasonToAdopt(bt[3].number) == nil)
        a.outbox.drop(queues.removeLast())
        #expect(eventually { b.outbox.assignment?.reasonToAdopt(bt[3].number) == "balance" })
        _ = try b.outbox.adopt(bt[3])
        lease.beginStopping()
        #expect(eventually { bt.allSatisfy { b.outbox.assignment?.includes($0.number) == true } })
        a.outbox.drop(queues[0])
        #expect(eventually { b.outbox.assignment?.reasonToAdopt(bt[0].number) == "free" })
        a.close()
        #expect(eventually { bt.prefix(3).allSatisfy { b.outbox.assignment?.reasonToAdopt($0.number) == "free" } })
        #expect(eventually { b.outbox.isKeeper })
    }
}
