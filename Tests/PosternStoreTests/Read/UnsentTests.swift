import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternStore

/// Messages as a worker would claim them, without a claim.
@Suite(.eachEngine) struct UnsentTests {
    @Test(arguments: [true, false])
    func message_isWhatAClaimReturns_queuedAndFailed(hasLanes: Bool) throws {
        let store = try TestStore()
        let queue = try store.register(PlainUpstream(laneRule: hasLanes ? .perLane : .acrossLanes))
        let lane: Lane = hasLanes ? .named("a", group: "g") : .digest(7)
        let id = try store.append(#"{"n": 1.10}"#, to: queue, lane: lane, key: "k")
        let unsent = try #require(try store.outbox.unsent(id))
        let claimed = try store.claim(queue).messages
        #expect(claimed == [unsent] && unsent.lane == lane)
        try store.fail(claimed, of: queue)
        let ended = try #require(try store.outbox.unsent(id))
        _ = try store.requeue([id])
        #expect(try store.claim(queue).messages.map(\.wasRetried) == [ended.wasRetried])
        #expect(ended.wasRetried && ended.payload == unsent.payload && ended.lane == lane)
    }

    @Test func message_isNotThere_onceItIsDeliveredOrCancelled() throws {
        let store = try TestStore()
        let queue = try store.register()
        let ids = try store.append(2, to: queue)
        try store.deliver(store.claim(queue, most: 1).messages, of: queue)
        #expect(try store.cancel(ids[1]))
        for id in ids + [MessageID(rawValue: 257 << 20)] { #expect(try store.outbox.unsent(id) == nil) }
    }

    /// A message that has got another state since its page was read is not removed.
    @Test func purge_isOfOneState_orOfAnyThatIsSettled() throws {
        let store = try TestStore()
        let queue = try store.register()
        let ids = try store.append(4, to: queue)
        try store.deliver(store.claim(queue, most: 1).messages, of: queue)
        try store.fail(store.claim(queue, most: 1).messages, of: queue)
        #expect(try store.cancel(ids[2]))
        func purge(_ state: MessageState?) throws -> [MessageID] {
            try store.threads.result { store.outbox.perform(.purge, on: ids, in: state, completion: $0) }
        }
        #expect(try purge(.expired) == [])
        #expect(try purge(.failed) == [ids[1]])
        #expect(try purge(nil) == [ids[0], ids[2]])
        #expect(try store.state(ids[3]) == .queued)
        #expect(try store.isBalanced())
        let ledger = store.outbox.ledger(of: queue.number)
        #expect(ledger.purged.total == 3 && ledger.counts.total == 4)
    }
}
