import PosternCore
import PosternTestKit
import PosternUpstream
import Synchronization
import Testing

@testable import PosternStore

/// Messages that their upstream recognizes as repeats of earlier ones (`StateChange.repeats`).
@Suite(.eachEngine) struct RepeatTests {
    /// Takes each payload once.
    private struct OnceUpstream: PlainAtHeart, StateValidatingUpstream {
        func validate(_ candidate: PendingMessage, against state: any UpstreamState) throws(AcceptanceError)
            -> [StateChange]
        {
            if candidate.payload == Array("no".utf8) { throw AcceptanceError(.conflict, "no") }
            let key = String(decoding: candidate.payload, as: UTF8.self)
            let first = state.value(of: key).flatMap { MessageID(String(decoding: $0, as: UTF8.self)) }
            if let first { return [.repeats(first)] }
            return [.set(key: key, value: Array(candidate.id.description.utf8))]
        }
    }

    private let store: TestStore
    private let queue: UpstreamQueue

    init() throws {
        store = try TestStore { $0.deliveredPayloadRetention = .seconds(100) }
        queue = try store.register(OnceUpstream())
    }

    private func append(
        _ payloads: [String], _ record: RequestRecord? = nil
    ) throws -> Result<AppendReceipt, AppendError> {
        let messages = payloads.map { store.message($0, to: queue) }
        let result = Mutex<Result<AppendReceipt, AppendError>?>(nil)
        try store.transact { transaction in
            let made = try transaction.append(messages, recording: record, isDiskFull: false)
            result.withLock { $0 = made }
        }
        return try #require(result.withLock { $0 })
    }

    @Test func repeat_isNotStored_andGetsTheIDOfTheFirst() throws {
        let first = try append(["a"]).get()
        #expect(first.repeated.isEmpty)
        let second = try append(["b", "a", "c", "b"]).get()
        #expect(second.ids[1] == first.ids[0] && second.ids[3] == second.ids[0] && Set(second.ids).count == 3)
        #expect(second.repeated == [1, 3])
        let third = try append(["c", "a"]).get()
        #expect(third.ids == [second.ids[2], first.ids[0]] && third.repeated == [0, 1])
        #expect(store.outbox.ledger(of: queue.number).accepted == 3)
        #expect(try store.claim(queue).messages.map(\.id) == [first.ids[0], second.ids[0], second.ids[2]])
        #expect(try store.isBalanced())
    }

    @Test func rejectedRequest_storesNothing_alsoWithRepeats() throws {
        let first = try append(["a"]).get()
        guard case .failure(.refused(let refused)) = try append(["b", "a", "no"]) else {
            Issue.record("it was accepted")
            return
        }
        #expect(refused.map(\.index) == [2])
        #expect(try append(["b"]).get().repeated.isEmpty)
        #expect(try append(["a"]).get().ids == first.ids)
        #expect(try store.isBalanced())
    }

    @Test func eventThatRepeatsAMessage_hasItsID() throws {
        let first = try append(["a"]).get()
        func identities(_ keys: [UInt8]) -> RequestRecord {
            .events(keys.map { EventIdentity(key: [$0], fingerprint: [$0]) })
        }
        let second = try append(["b", "c", "a"], identities([1, 2, 3])).get()
        #expect(second.ids[2] == first.ids[0] && second.repeated == [2])
        let third = try append(["b", "d", "a"], identities([1, 4, 3])).get()
        #expect(third.ids == [second.ids[0], third.ids[1], first.ids[0]] && third.repeated == [0, 2])
        #expect(store.outbox.ledger(of: queue.number).accepted == 4)
        #expect(try store.isBalanced())
    }

    @Test func replayedMessage_isSkipped_ifItRepeatsAnother() throws {
        let ids = try append(["1", "2", "3"]).get().ids
        try store.drain(queue)
        try store.transact { transaction in
            try transaction.sql.run("DELETE FROM state WHERE key = ?", "2")
        }
        let newest = MessageID(rawValue: Int64(store.outbox.ledger(of: queue.number).lastID))
        let request = Replay.Request(upstream: queue.target.name, to: queue.target.name)
        let replay = try store.threads.result {
            store.outbox.begin(Replay(id: "r", request, by: nil, newest: newest, at: store.time.now), completion: $0)
        }
        let messages = zip(ids, ["1", "2", "3"]).map { (original: $0, message: store.message($1, to: queue)) }
        var step = Replay.Step(from: replay.cursor, next: nil)
        step.messages = messages
        let made = step
        let progress = try store.threads.result {
            store.outbox.advance(replay.id, made, into: queue.target, completion: $0)
        }
        let ended = try #require(progress?.replay)
        #expect(ended.done == 1 && ended.refused == 2)
        let details = [ids[0], ids[2]].map { "repeats \($0), which was accepted before" }
        #expect(ended.skipped.sorted { $0.id < $1.id }.map(\.detail) == details)
        #expect(try store.claim(queue).messages.count == 1)
        #expect(try store.isBalanced())
    }
}
