import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternStore

/// One statement does to all messages of a request or a batch what happens to them. Each row says which one has written it: `xmin` is
/// its transaction, `cmin` its number there.
@Suite struct RowsPerStatementTests {
    private let shared: SharedStore
    private let store: TestStore

    init() throws {
        shared = try SharedStore()
        store = try shared.open(shared.options())
    }

    private func statements(in table: String) throws -> Int {
        try shared.run(
            "SELECT count(*) FROM (SELECT DISTINCT xmin::text, cmin::text FROM \(table)) AS statements")
    }

    @Test func request_isStored_byOneStatement() throws {
        let queue = try store.register()
        let ids = try store.append(700, to: queue)
        #expect(try shared.run("SELECT count(*) FROM queue_1") == 700)
        #expect(try statements(in: "queue_1") == 1)
        #expect(ids == ids.sorted())
        #expect(try store.drain(queue) == ids)
        #expect(try store.isBalanced())
    }

    @Test func messages_keepAllTheirValues_ifOneStatementStoresThem() throws {
        let queue = try store.register(PlainUpstream(laneRule: .perLane))
        let later = store.time.now + .seconds(60)
        let texts = ["", "a\0b", "ü\u{10FFFF}"]
        let messages =
            texts.map { store.message($0, to: queue, lane: .named("lane " + $0, group: "group " + $0), key: "k" + $0) }
            + [
                store.message("plain", to: queue, lane: .named("other", group: nil)),
                store.message(
                    "late", to: queue, lane: .named("other", group: nil), notBefore: later, expiresAt: later,
                    isFromSDK: true),
            ]
        let ids = try store.append(messages).ids
        #expect(try statements(in: "queue_1") == 1)
        for (id, message) in zip(ids, messages) {
            let record = try #require(try store.record(id))
            #expect(record.payload == message.bytes && record.key == message.key)
            #expect(record.laneName.map { Lane.named($0, group: message.lane.group) } == message.lane)
        }
        let rows = try shared.connect().all(
            "SELECT waiting, nextAttemptAtMs, expiresAtMs, tried FROM queue_1 ORDER BY id"
        ) { "\($0[0] as Int) \(($0[1] as Timestamp?) == later) \(($0[2] as Timestamp?) == later) \($0[3] as Int)" }
        #expect(rows == Array(repeating: "0 false false 0", count: 4) + ["2 true true 32"])
    }

    /// Also if others are between them.
    @Test func batch_isDelivered_byOneStatement() throws {
        let queue = try store.register()
        let ids = try store.append(40, to: queue)
        let claim = try store.claim(queue)
        try store.deliver(claim.messages.enumerated().filter { $0.offset % 3 == 0 }.map(\.element), of: queue)
        #expect(try statements(in: "delivered_1") == 1)
        #expect(try store.kept(.delivered) == 14)
        #expect(try store.state(ids[0]) == .delivered && store.state(ids[1]) == .queued)
        #expect(try store.isBalanced())
    }

    /// Its row went without the queue: nothing may count it twice.
    @Test func message_thatIsGone_isNotDelivered() throws {
        let queue = try store.register()
        let ids = try store.append(5, to: queue)
        let claim = try store.claim(queue)
        try store.deliver([claim.messages[1]], of: queue)
        try store.deliver(claim.messages, of: queue)
        #expect(store.outbox.ledger(of: queue.number).delivered == ids.count)
        #expect(try store.isBalanced())
    }

    @Test func batch_waits_byOneStatement() throws {
        let queue = try store.register()
        try store.append(30, to: queue)
        let claim = try store.claim(queue)
        try store.sendLater(claim.messages, of: queue, at: store.time.now + .seconds(5))
        #expect(try statements(in: "queue_1") == 1)
        #expect(try shared.run("SELECT count(*) FROM queue_1 WHERE waiting = 1 AND attempts = 1 AND tried = 1") == 30)
    }

    /// Otherwise each claim would have the server read, and send, many times what it takes.
    @Test(arguments: [LaneRule.acrossLanes, .perLane]) func claim_reads_hardlyMoreThanItTakes(rule: LaneRule) throws {
        let shared = try SharedStore()
        let proxy = try shared.server.proxy()
        let store = try shared.open(shared.options(through: proxy))
        let queue = try store.register(PlainUpstream(laneRule: rule))
        let lane = rule == .perLane ? Lane.named("lane", group: nil) : .none
        let payload = String(repeating: "x", count: 1000)
        for _ in 0..<4 { try store.append((0..<500).map { _ in store.message(payload, to: queue, lane: lane) }) }
        // Statements are prepared once.
        try store.deliver(store.claim(queue, most: 1).messages, of: queue)
        let before = proxy.forwarded(.toClient)
        let claim = try store.claim(queue, most: 200)
        #expect(claim.messages.count == 200)
        #expect(proxy.forwarded(.toClient) - before < 300 * payload.utf8.count)
    }
}
