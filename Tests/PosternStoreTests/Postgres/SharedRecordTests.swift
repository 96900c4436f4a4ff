import PosternCore
import PosternMetrics
import PosternTestKit
import PosternThreads
import Testing

@testable import PosternStore
@testable import PosternUpstream

/// Requests and events that several nodes of a store get: each is stored once, by whichever commits first.
@Suite struct SharedRecordTests {
    private let shared: SharedStore
    /// The owner of the store, and two nodes that are not.
    private let nodes: [Node]
    private let queue: UpstreamQueue

    private struct Node {
        let store: TestStore
        let target: QueueTarget

        var outbox: Outbox { store.outbox }
    }

    private typealias Answer = SharedValue<Result<AppendReceipt, AppendError>?>

    init() throws {
        shared = try SharedStore()
        let owner = try shared.open(shared.options("a", timeout: 60))
        queue = try owner.register()
        nodes = try [Node(store: owner, target: queue.target), Self.join(shared, "b"), Self.join(shared, "c")]
    }

    private static func join(
        _ shared: SharedStore, _ name: String, timeout: Double = 60, through proxy: PostgresProxy? = nil
    ) throws -> Node {
        let store = try shared.join(shared.options(name, timeout: timeout, through: proxy)).store
        let target = try store.outbox.register(PlainUpstream(), type: "plain", cap: QueueCap())
        return Node(store: store, target: target)
    }

    private func message(to node: Node) -> NewMessage {
        NewMessage(
            queue: node.target, kind: node.target.upstream.kinds[0], acceptedAt: ManualTime().now,
            bytes: Array("{}".utf8))
    }

    /// Hands in a request. `prepare` runs in its transaction, before its record is stored.
    private func post(
        _ key: UInt8, _ body: String = "{}", to node: Node, prepare: @escaping @Sendable () -> Void = {}
    ) -> Answer {
        let record = ResponseRecord(key: [key], fingerprint: Array(body.utf8)) { receipt in
            prepare()
            return Array("\(receipt.ids)".utf8)
        }
        return append([message(to: node)], .response(record), to: node)
    }

    private func post(events: [UInt8], _ body: String = "{}", to node: Node) -> Answer {
        let identities = events.map { EventIdentity(key: [$0], fingerprint: Array(body.utf8)) }
        return append(events.map { _ in message(to: node) }, .events(identities), to: node)
    }

    private func append(_ messages: [NewMessage], _ record: RequestRecord?, to node: Node) -> Answer {
        let answer = Answer(nil)
        node.outbox.append(messages, recording: record) { answer.set($0) }
        return answer
    }

    private func wait(for answers: [Answer]) { #expect(eventually { answers.allSatisfy { $0.value != nil } }) }

    /// The response, and whether it is that to an earlier request.
    private func response(_ answer: Answer) throws -> (text: String, isRepeated: Bool) {
        wait(for: [answer])
        do {
            return ("\(try #require(answer.value).get().ids)", false)
        } catch AppendError.recorded(let stored) {
            return (String(decoding: stored.bytes, as: UTF8.self), true)
        }
    }

    private func ids(_ answer: Answer) throws -> [MessageID] {
        wait(for: [answer])
        return try #require(answer.value).get().ids
    }

    /// One of them was stored, and all have its response.
    private func expectOne(of answers: [Answer], _ location: SourceLocation = #_sourceLocation) throws {
        let responses = try answers.map(response)
        #expect(Set(responses.map(\.text)).count == 1, sourceLocation: location)
        #expect(responses.count { !$0.isRepeated } == 1, sourceLocation: location)
    }

    private func expectStored(_ count: Int, _ location: SourceLocation = #_sourceLocation) throws {
        let owner = nodes[0].store
        #expect(eventually { owner.outbox.ledger(of: queue.number).queued >= count }, sourceLocation: location)
        #expect(try owner.drain(queue).count == count, sourceLocation: location)
        #expect(try owner.isBalanced(), sourceLocation: location)
    }

    /// What is handed in at the node until the result is called is one transaction.
    private func collect(at node: Node) -> () -> Void {
        let (isHeld, mayGoOn) = (SharedValue(false), SharedValue(false))
        node.outbox.writer.change(inTime: true) { _ in
            isHeld.set(true)
            _ = eventually { mayGoOn.value }
        }
        #expect(eventually { isHeld.value })
        return { mayGoOn.set(true) }
    }

    /// A node that stops between the record and its `COMMIT`.
    private func hold(_ keys: [UInt8]) throws -> SQL {
        let holder = try shared.connect()
        try holder.begin(.write)
        for key in keys {
            try holder.run(
                "INSERT INTO responses (key, fingerprint, createdAtMs, response) VALUES (?, ?, ?, ?)", [key],
                Array("{}".utf8), ManualTime().now, Array("held".utf8))
        }
        return holder
    }

    // MARK: One key

    @Test(arguments: [(0, 1), (1, 2)])
    func key_atTwoNodesAtOnce_isStoredOnce_andBothGetItsResponse(one: Int, other: Int) throws {
        for key in 0..<100 as Range<UInt8> {
            try expectOne(of: [post(key, to: nodes[one]), post(key, to: nodes[other])])
        }
        try expectStored(100)
    }

    @Test(arguments: [(0, 1), (1, 0), (1, 2)])
    func repeat_getsTheResponse_ofARequestThatAnotherNodeHasStored(one: Int, other: Int) throws {
        let first = try response(post(1, to: nodes[one]))
        let second = try response(post(1, to: nodes[other]))
        #expect(first.text == second.text && second.isRepeated)
        #expect(try nodes[other].outbox.storedResponse([1])?.bytes == Array(first.text.utf8))
        try expectStored(1)
    }

    @Test(arguments: [0, 2])
    func repeat_waits_whileAnotherNodeHasStoredTheRecord_andNotCommitted(other: Int) throws {
        let gate = try shared.connect()
        try gate.begin(.write)
        try gate.script("LOCK TABLE arrivals IN SHARE MODE")
        let first = post(1, to: nodes[1])
        #expect(eventually { shared.blocked == 1 })
        let second = post(1, to: nodes[other])
        #expect(eventually { shared.blocked == 2 })
        #expect(first.value == nil && second.value == nil)
        gate.rollBack()
        #expect(try !response(first).isRepeated)
        try expectOne(of: [first, second])
        try expectStored(1)
    }

    @Test(arguments: [0, 1]) func repeat_isStored_ifTheOtherNodeRollsBack(node: Int) throws {
        let holder = try hold([1])
        let answer = post(1, to: nodes[node])
        #expect(eventually { shared.isBlocked })
        holder.rollBack()
        #expect(try !response(answer).isRepeated)
        try expectStored(1)
    }

    /// As after a response that the outcome of the first one is not known yet.
    @Test(arguments: [0, 1]) func key_twiceInOneTransaction_isStoredOnce(node: Int) throws {
        let commit = collect(at: nodes[node])
        let answers = [post(1, to: nodes[node]), post(1, to: nodes[node])]
        commit()
        try expectOne(of: answers)
        try expectStored(1)
    }

    @Test(arguments: [(0, 1), (1, 0), (1, 2)])
    func otherRequest_underAKeyOfAnotherNode_storesNothing(one: Int, other: Int) throws {
        let first = try response(post(1, to: nodes[one]))
        let second = post(1, "[]", to: nodes[other])
        wait(for: [second])
        guard case .failure(.recorded(let stored)) = second.value else { return _ = Issue.record("\(second.value)") }
        #expect(stored == StoredResponse(fingerprint: Array("{}".utf8), bytes: Array(first.text.utf8)))
        try expectStored(1)
    }

    @Test(arguments: [(0, 1), (1, 0), (1, 2)]) func expiredRecord_isReplaced_atAnyNode(one: Int, other: Int) throws {
        let first = try response(post(1, to: nodes[one]))
        // Not that of the others: the record is not deleted.
        nodes[other].store.time.advance(by: nodes[other].store.options.idempotencyRetention)
        let second = try response(post(1, "[]", to: nodes[other]))
        #expect(!second.isRepeated && second.text != first.text)
        let third = try response(post(1, "[]", to: nodes[other]))
        #expect(third.isRepeated && third.text == second.text)
        #expect(try shared.run("SELECT count(*) FROM responses") == 1)
    }

    @Test(arguments: [0, 1]) func refusedRequest_leavesNoRecord(node: Int) throws {
        var cap = QueueCap()
        cap.maxMessages = 1
        let target = try nodes[node].outbox.register(PlainUpstream(), type: "plain", cap: cap)
        let full = Node(store: nodes[node].store, target: target)
        #expect(try !response(post(1, to: full)).isRepeated)
        #expect(eventually { full.outbox.ledger(of: queue.number).queued == 1 })
        #expect(throws: AppendError.queueFull(queue.name)) { try response(post(2, to: full)) }
        #expect(try full.outbox.storedResponse([2]) == nil)
        try expectStored(1)
    }

    /// As with `Prefer: wait`.
    @Test func finalResponse_takesThePlaceOfTheFirst_atAMember() throws {
        let member = nodes[1].outbox
        _ = try response(post(1, to: nodes[1]))
        try nodes[1].store.threads.result { member.replaceResponse([1], with: [200], completion: $0) }
        #expect(try response(post(1, to: nodes[0])).text == String(decoding: [200], as: UTF8.self))
        try nodes[1].store.threads.result { member.replaceResponse([1], with: nil, completion: $0) }
        #expect(try !response(post(1, to: nodes[0])).isRepeated)
        try expectStored(2)
    }

    // MARK: Events

    @Test(arguments: [(0, 1), (1, 2)]) func event_atTwoNodesAtOnce_isStoredOnce(one: Int, other: Int) throws {
        for event in 0..<100 as Range<UInt8> {
            let answers = [post(events: [event], to: nodes[one]), post(events: [event], to: nodes[other])]
            #expect(Set(try answers.flatMap(ids)).count == 1)
            #expect(try answers.count { try $0.value?.get().repeated.isEmpty == true } == 1)
        }
        try expectStored(100)
    }

    @Test(arguments: [(0, 1), (1, 0), (1, 2)])
    func batches_thatShareEvents_storeEachOnce_whicheverNodeGetsThem(one: Int, other: Int) throws {
        let (first, second) = (post(events: [1, 2, 3], to: nodes[one]), post(events: [4, 3, 2, 5], to: nodes[other]))
        let (a, b) = try (ids(first), ids(second))
        #expect(b[1] == a[2] && b[2] == a[1])
        #expect(Set(a + b).count == 5)
        let reused = post(events: [6, 1], "[]", to: nodes[other])
        #expect(throws: AppendError.reused([1])) { try ids(reused) }
        try expectStored(5)
    }

    // MARK: Transactions that are in each other's way

    /// Each node stores the first of two keys, and then the one that the other node has stored.
    @Test(arguments: [(0, 1), (1, 2)])
    func keys_inOppositeOrder_areStoredOnce_afterADeadlock(one: Int, other: Int) throws {
        let nodes = [nodes[one], nodes[other]]
        let haveFirst = [SharedValue(false), SharedValue(false)]
        let commits = nodes.map(collect)
        let answers = (0..<2).map { index in
            let (mine, theirs) = (haveFirst[index], haveFirst[1 - index])
            let keys: [UInt8] = index == 0 ? [1, 2] : [2, 1]
            return [
                post(keys[0], to: nodes[index]),
                // Its look waits until the first record is stored.
                post(events: [keys[0] + 100], to: nodes[index]),
                post(keys[1], to: nodes[index]) {
                    mine.set(true)
                    _ = eventually { theirs.value }
                },
            ]
        }
        commits.forEach { $0() }
        try expectOne(of: [answers[0][0], answers[1][2]])
        try expectOne(of: [answers[0][2], answers[1][0]])
        #expect(nodes.contains { $0.store.metrics.database.retries("40P01").value > 0 })
        try expectStored(4)
    }

    /// The node that has stored their records is frozen. Requests that have nothing to do with it do not wait for it.
    @Test func requests_areAnsweredInTime_whileAnotherNodeHoldsTheKeysOfSome() throws {
        let holder = try hold([1, 2])
        let node = try Self.join(shared, "d", timeout: 10)
        for key in 10..<12 as Range<UInt8> {
            let commit = collect(at: node)
            let held = [post(1, to: node), post(2, to: node)]
            let others = [post(key, to: node), append([message(to: node)], nil, to: node)]
            commit()
            for other in others { #expect(try !response(other).isRepeated) }
            for held in held {
                wait(for: [held])
                guard case .failure(.store(.conflict)) = held.value else { return _ = Issue.record("\(held.value)") }
            }
        }
        #expect(node.outbox.failure == nil)
        // Together, and each alone.
        #expect(node.store.metrics.database.retries("55P03").value >= 4)
        holder.rollBack()
        #expect(try !response(post(1, to: node)).isRepeated)
        try expectStored(5)
    }

    // MARK: Unknown outcomes

    @Test(arguments: PostgresProxy.Direction.allCases)
    func request_isStoredOnce_ifTheConnectionOfAMemberIsLost(direction: PostgresProxy.Direction) throws {
        let proxy = try shared.server.proxy()
        let node = try Self.join(shared, "d", timeout: 0.3, through: proxy)
        _ = try response(post(0, to: node))
        var count: UInt8 = 0
        for offset in stride(from: 0, to: 1600, by: 160) {
            count += 1
            proxy.strike(.cut, after: offset, direction)
            var answer = post(count, to: node)
            wait(for: [answer])
            proxy.heal()
            // As a client does, at the same node or at another one.
            let again = count % 2 == 0 ? node : nodes[0]
            #expect(
                eventually {
                    if (try? response(answer)) != nil { return true }
                    answer = post(count, to: again)
                    return false
                }, "after \(offset) bytes")
        }
        try expectStored(Int(count) + 1)
    }
}
