import PosternCore
import PosternTestKit
import PosternUpstream
import Synchronization
import Testing

@testable import PosternStore

/// Requests that are admitted as a whole, in the transaction that stores their messages (`Admission`).
@Suite(.eachEngine) struct AdmissionTests {
    /// Rejects `full`, and notes the draft that a message has seen.
    private struct DraftUpstream: PlainAtHeart, StateValidatingUpstream {
        let seen = SharedValue<[Bool]>([])

        func validate(_ candidate: PendingMessage, against state: any UpstreamState) throws(AcceptanceError)
            -> [StateChange]
        {
            seen.set(seen.value + [state.draft != nil])
            if candidate.payload == Array("full".utf8) { throw AcceptanceError(.full, "on purpose") }
            return []
        }
    }

    private let upstream = DraftUpstream()
    private let store: TestStore
    private let queue: UpstreamQueue

    init() throws {
        store = try TestStore()
        queue = try store.register(upstream)
    }

    /// Counts the requests that it admits, three at most.
    private var counting: Admission {
        Admission(to: queue.target) { state throws(AcceptanceError) in
            let count = state.value(of: "count")?.first ?? 0
            if count == 3 { throw AcceptanceError(.unknownSession, "no more") }
            return [.set(key: "count", value: [count + 1]), .draft(StateChange.Draft())]
        }
    }

    private func append(_ payloads: [String], _ record: RequestRecord? = nil, admitted: Bool = true) throws
        -> Result<AppendReceipt, AppendError>
    {
        let messages = payloads.map { store.message($0, to: queue) }
        let result = Mutex<Result<AppendReceipt, AppendError>?>(nil)
        let admission = admitted ? counting : nil
        try store.transact { transaction in
            let made = try transaction.append(messages, recording: record, after: admission, isDiskFull: false)
            result.withLock { $0 = made }
        }
        return try #require(result.withLock { $0 })
    }

    private var count: UInt8 {
        get throws { try store.outbox.withState(of: queue.number) { $0.value(of: "count")?.first } ?? 0 }
    }

    @Test func messages_seeTheDraftOfTheirRequest_andNoOthers() throws {
        #expect(try append(["a", "b"]).get().ids.count == 2)
        #expect(try append(["c"], admitted: false).get().ids.count == 1)
        #expect(upstream.seen.value == [true, true, false])
        #expect(try count == 1)
    }

    @Test func requestThatIsNotAdmitted_storesNothing() throws {
        for payload in ["a", "b", "c"] { _ = try append([payload]).get() }
        guard case .failure(.notAdmitted(let refusal)) = try append(["d"]) else {
            return _ = Issue.record("it was admitted")
        }
        #expect(refusal.reason == .unknownSession)
        #expect(try count == 3)
        #expect(store.outbox.ledger(of: queue.number).accepted == 3)
        #expect(try store.isBalanced())
    }

    @Test func admission_isUndone_ifAMessageIsRejected() throws {
        guard case .failure(.refused) = try append(["a", "full"]) else { return _ = Issue.record("it was stored") }
        #expect(try count == 0 && store.outbox.ledger(of: queue.number).accepted == 0)
        #expect(try append(["b"], admitted: false).get().ids.count == 1)
        #expect(upstream.seen.value.last == false)
    }

    @Test func requestOfRepeatsAlone_orWithoutMessages_isAdmittedToo() throws {
        let record = RequestRecord.events([EventIdentity(key: [1], fingerprint: [])])
        let first = try append(["a"], record).get()
        #expect(try append(["a"], record).get().ids == first.ids)
        #expect(try append([]).get().ids.isEmpty)
        #expect(try count == 3)
        guard case .failure(.notAdmitted) = try append(["a"], record) else { return _ = Issue.record("admitted") }
        // What follows in the same transaction sees no draft.
        #expect(try append(["b"], admitted: false).get().ids.count == 1)
        #expect(upstream.seen.value == [true, false])
    }
}
