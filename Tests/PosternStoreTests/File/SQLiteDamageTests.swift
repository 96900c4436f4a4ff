import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternStore

/// About SQLite: rows and tables that something else has changed.
@Suite struct SQLiteDamageTests {
    @Test(arguments: [
        "DELETE FROM queue_1 WHERE id = (SELECT min(id) FROM queue_1)",
        "DELETE FROM delivered_1 WHERE id = (SELECT max(id) FROM delivered_1)",
        "DELETE FROM receipts_1", "DELETE FROM ended_1",
        "UPDATE queue_1 SET payload = x'00' WHERE id = (SELECT max(id) FROM queue_1)",
        "UPDATE upstreams SET accepted = accepted + 1",
        "INSERT INTO delivered_1 SELECT id, kind, acceptedAtMs, 0, 1, NULL, NULL, 0 FROM queue_1 LIMIT 1",
    ])
    func audit_finds_whatWasChangedBehindItsBack(sql: String) throws {
        let store = try TestStore()
        let queue = try store.register()
        try store.append(30, to: queue)
        try store.deliver(store.claim(queue, most: 10).messages, of: queue)
        try store.fail(store.claim(queue, most: 10).messages, of: queue)
        // So few have no block.
        try store.deliver(store.claim(queue, most: 3).messages, of: queue)
        #expect(try store.isBalanced())
        try store.execute(sql)
        #expect(try !store.outbox.audit().isBalanced)
        #expect(try !StoreView(path: store.path).audit().isBalanced)
    }

    @Test func state_throws_whenItCannotBeRead() throws {
        let store = try TestStore()
        let queue = try store.register()
        for table in ["state", "credentials", "lanes", "queue_\(queue.number.rawValue)"] {
            try store.execute("DROP TABLE \(table)")
        }
        let credential = Credential(owner: "a", value: [1])
        let reads: [@Sendable (any UpstreamState) -> Void] = [
            { _ = $0.value(of: "a") }, { _ = $0.values(below: "a", atMost: 1) },
            { _ = $0.queued(inLane: "a", atMost: 1) }, { _ = $0.credential(of: "a") },
            { _ = $0.wasRefused(credential) },
            { _ = $0.isQueued(MessageID(sequence: 1, upstream: queue.number)) },
        ]
        for read in reads {
            #expect(throws: StoreError.self) { try store.outbox.withState(of: queue.number, read) }
        }
    }

    /// A value that cannot be read looks like a missing one to the type, which then decides wrongly.
    @Test func decision_isVoid_whenTheStateCannotBeRead() throws {
        let store = try TestStore()
        let queue = try store.register(NeedsValue())
        try store.change([.set(key: "known", value: [1])], of: queue)
        try store.append(to: queue)
        try store.execute("ALTER TABLE state RENAME TO hidden")
        let refusal = #expect(throws: AppendError.self) { try store.append(to: queue) }
        guard case .store = refusal else {
            Issue.record("refused by what could not be read: \(refusal.map { "\($0)" } ?? "")")
            return
        }
    }

    @Test func healthRecord_thatCannotBeRead_isNotTakenForAHealthyUpstream() throws {
        let store = try TestStore()
        _ = try store.register()
        #expect(try StoreView(path: store.path).summaries().map(\.circuit) == [CircuitRecord()])
        try store.execute("UPDATE upstreams SET circuit = 'junk'")
        #expect(try StoreView(path: store.path).summaries().map(\.circuit) == [nil])
    }
}

/// Takes payloads once `known` is stored.
private struct NeedsValue: PlainAtHeart, StateValidatingUpstream {
    func validate(_ candidate: PendingMessage, against state: any UpstreamState) throws(AcceptanceError)
        -> [StateChange]
    {
        guard state.value(of: "known") != nil else { throw AcceptanceError(.conflict, "nothing is known") }
        return []
    }
}
