import Logging
import PosternCore
import PosternTestKit
import PosternThreads
import Testing

@testable import PosternStore
@testable import PosternUpstream

/// A node that adds messages to queues on which another one works.
@Suite struct MemberTests {
    private let shared: SharedStore

    init() throws { shared = try SharedStore() }

    /// The owner of a queue, which keeps the store, too, and a node that has nothing; `poll`: how often the owner looks for what that one has added.
    private func open(
        _ upstream: any Upstream = PlainUpstream(), cap: QueueCap = QueueCap(), poll: Double = 60
    ) throws -> (owner: TestStore, queue: UpstreamQueue, member: TestStore, target: QueueTarget) {
        let options = { [shared] in
            var options = shared.options($0, timeout: 60)
            options.pollSeconds = $1
            return options
        }
        let owner = try shared.open(options("a", poll))
        let queue = try owner.register(upstream, cap: cap)
        let member = try shared.join(options("b", 0.02)).store
        return (owner, queue, member, try member.outbox.register(upstream, type: "plain", cap: cap))
    }

    private func cap(_ messages: Int, _ whenFull: QueueCap.WhenFull = .reject) -> QueueCap {
        var cap = QueueCap()
        (cap.maxMessages, cap.whenFull) = (messages, whenFull)
        return cap
    }

    private func message(_ text: String, to target: QueueTarget, lane: Lane = .none) -> NewMessage {
        NewMessage(
            queue: target, kind: target.upstream.kinds[0], lane: lane, acceptedAt: ManualTime().now,
            bytes: Array(text.utf8))
    }

    @discardableResult private func append(
        _ text: String, to target: QueueTarget, lane: Lane = .none, at member: TestStore
    ) throws -> MessageID {
        try member.threads.result { member.outbox.append([message(text, to: target, lane: lane)], completion: $0) }.ids[
            0]
    }

    /// It changes more of the figures than what is queued.
    @Test func messageThatFails_isStoredByAnyNode() throws {
        let (owner, queue, member, target) = try open(poll: 0.02)
        let failing = NewMessage(
            queue: target, kind: "thing", acceptedAt: ManualTime().now, bytes: [], failure: "is not valid")
        _ = try member.threads.result { member.outbox.append([message("{}", to: target), failing], completion: $0) }
        #expect(eventually { owner.outbox.ledger(of: queue.number).failed == 1 })
        #expect(eventually { owner.outbox.ledger(of: queue.number).queued == 1 })
        #expect(try owner.drain(queue).count == 1)
        #expect(eventually { member.outbox.ledger(of: queue.number).delivered == 1 })
        #expect(member.outbox.ledger(of: queue.number).accepted == 2)
        #expect(try owner.isBalanced())
    }

    /// Its state has one owner.
    @Test func messageThatNeedsTheStateOfItsUpstream_isStoredByTheOwnerOnly() throws {
        let (owner, queue, member, target) = try open()
        let admission = { Admission(to: $0) { _ in [] } }
        #expect(member.outbox.needsOwner([message("{}", to: target)], after: admission(target)) == queue.number)
        #expect(member.outbox.needsOwner([message("{}", to: target)]) == nil)
        #expect(owner.outbox.needsOwner([], after: admission(queue.target)) == nil)
        #expect(throws: AppendError.store(.notOwner)) {
            try member.threads.result {
                member.outbox.append([message("{}", to: target)], after: admission(target), completion: $0)
            }
        }
        #expect(try shared.run("SELECT count(*) FROM queue_1") == 0)
    }

    @Test func messageOfAnSDK_isStoredByAnyNode() throws {
        let (owner, queue, member, target) = try open()
        let message = NewMessage(
            queue: target, kind: "thing", acceptedAt: ManualTime().now, bytes: Array("{}".utf8), isFromSDK: true)
        let id = try member.threads.result { member.outbox.append([message], completion: $0) }.ids[0]
        #expect(try owner.claim(queue).messages.map(\.isFromSDK) == [true])
        #expect(try owner.record(id)?.isFromSDK == true)
    }

    // MARK: Delivery

    @Test func message_isCountedAndClaimed_byTheOwner() throws {
        let (owner, queue, member, target) = try open(poll: 0.02)
        let woken = SharedValue(0)
        queue.onArrival(limits: BatchLimits(maxMessages: 500, maxBytes: 1 << 20)) { woken.set(woken.value + 1) }
        #expect(try owner.claim(queue).messages.isEmpty)
        let id = try append("{}", to: target, at: member)
        #expect(eventually { woken.value > 0 && owner.outbox.ledger(of: queue.number).queued == 1 })
        #expect(try owner.drain(queue) == [id])
        #expect(try owner.isBalanced())
        #expect(eventually { member.outbox.ledger(of: queue.number).delivered == 1 })
        #expect(try shared.run("SELECT count(*) FROM arrivals") <= 1)
    }

    @Test func message_isClaimed_beforeItIsCounted() throws {
        let (owner, queue, member, target) = try open()
        let id = try append("{}", to: target, at: member)
        #expect(owner.outbox.ledger(of: queue.number).queued == 0)
        let later = try owner.append("{}", to: queue)
        #expect(try owner.drain(queue) == [id, later])
        #expect(try owner.isBalanced())
    }

    /// Its id is drawn, and its commit is late.
    @Test func message_whoseCommitWaited_isClaimed_beforeThoseOfLaterRequests() throws {
        let (owner, queue, member, target) = try open()
        let gate = try shared.connect()
        try gate.begin(.write)
        try gate.script("LOCK TABLE arrivals IN SHARE MODE")
        let late = SharedValue<Result<AppendReceipt, AppendError>?>(nil)
        member.outbox.append([message("late", to: target)]) { late.set($0) }
        #expect(eventually { shared.isBlocked })
        let passed = try owner.append("passed", to: queue)
        #expect(try owner.drain(queue) == [passed])
        gate.rollBack()
        let id = try #require(try awaited(late).ids.first)
        #expect(id < passed)
        let after = try owner.append("after", to: queue)
        #expect(try owner.drain(queue) == [id, after])
        #expect(try owner.isBalanced())
    }

    /// The owner has not counted the later one, but has seen it.
    @Test func messageOfTheOwner_whoseCommitWaited_isClaimed_afterALaterOneOfAnotherNode() throws {
        let (owner, queue, member, target) = try open()
        let gate = try shared.connect()
        try gate.begin(.write)
        // Only the owner changes the figures.
        try gate.script("LOCK TABLE upstreams IN SHARE MODE")
        let late = SharedValue<Result<AppendReceipt, AppendError>?>(nil)
        owner.outbox.append([message("late", to: queue.target)]) { late.set($0) }
        #expect(eventually { shared.isBlocked })
        let passed = try append("passed", to: target, at: member)
        let first = try owner.claim(queue)
        #expect(first.messages.map(\.id) == [passed])
        gate.rollBack()
        let id = try #require(try awaited(late).ids.first)
        #expect(id < passed)
        #expect(try owner.drain(queue) == [id])
        try owner.deliver(first.messages, of: queue)
        #expect(try owner.isBalanced())
    }

    @Test(.timeLimit(.minutes(1)), arguments: [0.02, 60])
    func lane_staysInOrder_whicheverNodeStoresItsMessages(poll: Double) throws {
        let (owner, queue, member, target) = try open(PlainUpstream(laneRule: .perLane), poll: poll)
        let lane = Lane.named("x", group: nil)
        var ids: [MessageID] = []
        for round in 0..<5 {
            ids.append(try append("\(round)", to: target, lane: lane, at: member))
            ids.append(try owner.append("\(round)", to: queue, lane: lane))
        }
        #expect(try owner.drain(queue) == ids)
        let last = try append("last", to: target, lane: lane, at: member)
        if poll < 1 {
            var sent: [MessageID] = []
            #expect(eventually { (try? sent += owner.drain(queue)) != nil && sent == [last] })
        }
        #expect(try owner.isBalanced())
    }

    // MARK: Counting

    @Test func messages_areCountedOnce_ifTheOwnerEndsBeforeIt() throws {
        let (owner, queue, member, target) = try open()
        for index in 0..<3 { try append("\(index)", to: target, at: member) }
        #expect(try shared.run("SELECT count(*) FROM arrivals") == 3)
        owner.outbox.close()
        member.close()
        let next = try shared.open(shared.options("c"))
        let adopted = try next.register()
        #expect(eventually { next.outbox.ledger(of: queue.number).queued == 3 })
        #expect(try next.drain(adopted).count == 3)
        try next.reopen()
        #expect(next.outbox.ledger(of: queue.number).delivered == 3)
        #expect(try next.isBalanced())
    }

    @Test func message_isCountedOnce_ifItIsAddedWhileTheOthersAreCounted() throws {
        let (owner, queue, member, target) = try open()
        try append("{}", to: target, at: member)
        owner.outbox.close()
        member.close()
        // Another one, once the next owner has counted the first.
        try shared.run(
            """
            CREATE FUNCTION addAnother() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
              INSERT INTO arrivals (writer, n, upstream, firstId, lastId, accepted, acceptedBytes, ready, readyBytes, dueAtMs)
                SELECT writer, n + 1, upstream, firstId + 1, lastId + 1, accepted, 7777, ready, readyBytes, dueAtMs
                FROM (SELECT OLD.*) AS counted
                WHERE OLD.acceptedBytes <> 7777;
              RETURN NULL;
            END $$
            """)
        try shared.run("CREATE TRIGGER late AFTER DELETE ON arrivals FOR EACH ROW EXECUTE FUNCTION addAnother()")
        let next = try shared.open(shared.options("c"))
        _ = try next.register()
        #expect(eventually { (try? shared.run("SELECT sum(queued) FROM upstreams")) == 2 })
        #expect(eventually { next.outbox.ledger(of: queue.number).queued == 2 })
        #expect(next.outbox.ledger(of: queue.number).accepted == 2)
    }

    @Test func fullQueue_refuses_atEachNode() throws {
        let (owner, queue, member, target) = try open(cap: cap(2), poll: 0.02)
        try append("1", to: target, at: member)
        try owner.append("2", to: queue)
        #expect(eventually { member.outbox.ledger(of: queue.number).queued == 2 })
        #expect(throws: AppendError.queueFull(queue.name)) { try append("3", to: target, at: member) }
    }

    @Test func owner_dropsTheOldest_forMessagesOfOthers() throws {
        let (owner, queue, member, target) = try open(cap: cap(2, .dropOldest), poll: 0.02)
        let ids = try (0..<5).map { try append("\($0)", to: target, at: member) }
        #expect(eventually { owner.outbox.ledger(of: queue.number).dropped == 3 })
        #expect(try owner.drain(queue) == Array(ids.suffix(2)))
        #expect(try owner.isBalanced())
    }

    // MARK: What it does not do

    @Test func requests_thatNeedTheOwner_areRefused() throws {
        let (owner, _, member, target) = try open()
        defer { withExtendedLifetime(owner) {} }
        let id = try append("{}", to: target, at: member)
        #expect(throws: StoreError.notOwner) { try member.cancel(id) }
        let unknown = PlainUpstream("unknown")
        #expect(throws: StoreError.notOwner) { try member.outbox.register(unknown, type: "plain", cap: QueueCap()) }
        #expect(member.outbox.failure == nil)
    }

    @Test func memberThatWasEnded_goesOn_asAnotherNode() throws {
        let (owner, queue, member, target) = try open()
        var ids = [try append("before", to: target, at: member)]
        try shared.run("UPDATE nodes SET state = 3 WHERE name = 'b'")
        let writer = try shared.run("SELECT max(writer) FROM writers JOIN nodes USING (node) WHERE name = 'b'")
        try Fence(sql: shared.connect(), options: shared.options()).end(Int64(writer))
        ids.append(try append("after", to: target, at: member))
        #expect(member.outbox.failure == nil)
        #expect(try owner.drain(queue) == ids)
        #expect(try owner.isBalanced())
    }

    @Test func silentMember_isEnded_byTheOwner() throws {
        let owner = try shared.open(shared.options("a", lease: 1))
        _ = try owner.register()
        let proxy = try shared.server.proxy()
        let member = try shared.join(shared.options("b", lease: 1, timeout: 0.3, through: proxy)).store
        let target = try member.outbox.register(PlainUpstream(), type: "plain", cap: QueueCap())
        try append("{}", to: target, at: member)
        proxy.isRefusing = true
        proxy.cutAll()
        #expect(eventually { (try? shared.run("SELECT count(*) FROM nodes WHERE name = 'b' AND state = 3")) == 1 })
        #expect(eventually { (try? shared.run("SELECT count(*) FROM writers WHERE NOT isEnded")) == 1 })
        #expect(owner.outbox.failure == nil)
    }

    @Test func member_keepsTheStore_afterTheOwner_andSendsWhatItHasLeft() throws {
        let owner = try shared.open(shared.options("a"))
        let ids = try owner.append(2, to: owner.register())
        let (member, lease) = try shared.join(shared.options("b"))
        #expect(!lease.isKeeper)
        let target = try member.outbox.register(PlainUpstream(), type: "plain", cap: QueueCap())
        owner.outbox.close()
        #expect(eventually { member.outbox.isKeeper })
        // Before it works on the queue.
        let id = try append("{}", to: target, at: member)
        #expect(try member.drain(member.outbox.adopt(target)) == ids + [id])
        #expect(try member.isBalanced())
    }

    /// Each makes the tables, or finds them half made.
    @Test func nodesThatStartAtOnce_onAnEmptyDatabase_allJoin_andOneKeepsTheStore() throws {
        for _ in 0..<20 {
            let empty = try SharedStore()
            let leases = try (0..<8).map { index in
                var options = OutboxOptions()
                options.engine = .postgres(empty.options("node-\(index)"))
                let lease = try StoreLease.join(
                    options, threads: DedicatedThreads(),
                    logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
                return try #require(lease)
            }
            #expect(eventually { leases.allSatisfy(\.hasJoined) && leases.count { $0.isKeeper } == 1 })
            #expect(try empty.run("SELECT count(*) FROM nodes WHERE state = 1") == 8)
            leases.forEach { $0.leave() }
            #expect(try empty.run("SELECT count(*) FROM nodes WHERE state = 1") == 0)
        }
    }

    /// As long as the owner has not made the queue, a node cannot open the store, and tries again.
    @Test func member_staysANode_ifItsStoreIsClosed() throws {
        let owner = try shared.open(shared.options("a"))
        let (member, lease) = try shared.join(shared.options("b"))
        member.outbox.close()
        #expect(eventually { (try? lease.liveNode()).flatMap { $0 } != nil })
        let again = try TestStore(lease: lease) { $0.engine = member.options.engine }
        #expect(!again.outbox.isKeeper && owner.outbox.failure == nil)
        withExtendedLifetime(member) {}
    }
}
