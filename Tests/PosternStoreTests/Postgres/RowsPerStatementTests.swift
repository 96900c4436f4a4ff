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
}
