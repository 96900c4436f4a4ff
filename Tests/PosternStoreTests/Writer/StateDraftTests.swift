import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternStore

/// What the messages of one request change together (`StateChange.Draft`).
@Suite(.eachEngine) struct StateDraftTests {
    /// Adds up the payloads of all messages. `full` is rejected.
    private struct Adder: PlainAtHeart, StateValidatingUpstream {
        final class Draft: StateChange.Draft, @unchecked Sendable {
            var sum: UInt8
            init(_ sum: UInt8) { self.sum = sum }
            override var changes: [StateChange] { [.set(key: "sum", value: [sum])] }
        }
        let reads = SharedValue(0)

        func validate(_ candidate: PendingMessage, against state: any UpstreamState) throws(AcceptanceError)
            -> [StateChange]
        {
            if candidate.payload == Array("full".utf8) { throw AcceptanceError(.full, "on purpose") }
            if state.draft == nil { reads.set(reads.value + 1) }
            let draft = state.draft as? Draft ?? Draft(state.value(of: "sum")?.first ?? 0)
            draft.sum += UInt8(candidate.payload.count)
            return [.draft(draft)]
        }
    }

    private let upstream = Adder()

    private func sum(_ store: TestStore, _ queue: UpstreamQueue) throws -> UInt8? {
        try store.outbox.withState(of: queue.number) { $0.value(of: "sum")?.first }
    }

    @Test func value_isReadAndWrittenOnce_forAllMessagesOfARequest() throws {
        let store = try TestStore()
        let queue = try store.register(upstream)
        try store.append((0..<50).map { _ in store.message("1", to: queue) })
        #expect(upstream.reads.value == 1)
        #expect(try sum(store, queue) == 50)
        try store.append([store.message("22", to: queue), store.message("333", to: queue)])
        #expect(upstream.reads.value == 2)
        #expect(try sum(store, queue) == 55)
    }

    @Test func value_isUnchanged_whenTheRequestIsRejected() throws {
        let store = try TestStore()
        let queue = try store.register(upstream)
        try store.append([store.message("1", to: queue)])
        #expect(throws: AppendError.self) {
            try store.append([store.message("22", to: queue), store.message("full", to: queue)])
        }
        #expect(try sum(store, queue) == 1)
        // In the same transaction, the next request begins with what is stored.
        let messages = ["22", "full", "333"].map { store.message($0, to: queue) }
        try store.transact { transaction in
            _ = try transaction.append(Array(messages[..<2]))
            _ = try transaction.append(Array(messages[2...]))
        }
        #expect(try sum(store, queue) == 4)
    }

    @Test func books_balance_whenTheFirstRequestOfAnUpstreamIsRejected() throws {
        let store = try TestStore()
        let queue = try store.register(upstream)
        #expect(throws: AppendError.self) {
            try store.append([store.message("1", to: queue), store.message("full", to: queue)])
        }
        #expect(store.outbox.ledger(of: queue.number).queued == 0)
        try store.append([store.message("1", to: queue)])
        #expect(store.outbox.ledger(of: queue.number).queued == 1)
        #expect(try store.isBalanced())
    }
}
