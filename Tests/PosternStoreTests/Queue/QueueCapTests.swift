import PosternCore
import PosternTestKit
import Testing

@testable import PosternStore

@Suite(.eachEngine) struct QueueCapTests {
    @Test func fullQueue_rejects_andStoresNothingOfTheRequest() throws {
        let store = try TestStore()
        let queue = try store.register(cap: QueueCap.with { $0.maxMessages = 3 })
        try store.append(2, to: queue)
        #expect(throws: AppendError.queueFull(queue.name)) { try store.append(2, to: queue) }
        #expect(store.outbox.ledger(of: queue.number).accepted == 2)
        try store.append(1, to: queue)
        try store.drain(queue)
        try store.append(3, to: queue)
        #expect(try store.isBalanced())
    }

    @Test func cap_isRaisedAndLowered_whileTheStoreIsOpen() throws {
        let store = try TestStore()
        let queue = try store.register()
        try store.append(3, to: queue)
        store.outbox.setCap(QueueCap.with { $0.maxMessages = 3 }, of: queue.target)
        #expect(throws: AppendError.queueFull(queue.name)) { try store.append(to: queue) }
        store.outbox.setCap(QueueCap.with { $0.maxMessages = 4 }, of: queue.target)
        try store.append(to: queue)
        store.outbox.setCap(QueueCap(), of: queue.target)
        store.outbox.setMaxBytes(100)
        #expect(throws: AppendError.queueFull(nil)) { try store.append(String(repeating: "x", count: 90), to: queue) }
        store.outbox.setMaxBytes(0)
        try store.append(String(repeating: "x", count: 100), to: queue)
    }

    @Test func cap_countsPayloadBytes() throws {
        let store = try TestStore()
        let queue = try store.register(cap: QueueCap.with { $0.maxBytes = 10 })
        try store.append("12345", to: queue)
        #expect(throws: AppendError.queueFull(queue.name)) { try store.append("123456", to: queue) }
        try store.append("12345", to: queue)
    }

    @Test func dropOldest_evictsWhatIsNeeded_butNothingThatIsBeingSent() throws {
        let store = try TestStore()
        let queue = try store.register(cap: QueueCap.with { ($0.maxMessages, $0.whenFull) = (4, .dropOldest) })
        let ids = try store.append(4, to: queue)
        let claim = try store.claim(queue, most: 2)
        let receipt = try store.append([store.message(to: queue), store.message(to: queue)])
        #expect(receipt.evicted == [ids[2], ids[3]])
        #expect(try store.state(ids[2]) == .dropped)
        #expect(try store.state(ids[0]) == .queued)
        #expect(throws: AppendError.queueFull(queue.name)) { try store.append(3, to: queue) }
        try store.deliver(claim.messages, of: queue)
        #expect(try store.drain(queue) == receipt.ids)
        #expect(try store.isBalanced())
    }

    @Test(arguments: [QueueCap.WhenFull.reject, .dropOldest])
    func requestOfAnSDK_largerThanTheQueue_isAccepted_onceNothingElseIsQueued(whenFull: QueueCap.WhenFull) throws {
        let store = try TestStore()
        let queue = try store.register(
            cap: QueueCap.with { ($0.maxMessages, $0.maxBytes, $0.whenFull) = (3, 8, whenFull) })
        func batch() -> [NewMessage] { (0..<5).map { _ in store.message(to: queue, isFromSDK: true) } }
        let first = try store.append(to: queue)
        if whenFull == .reject {
            #expect(throws: AppendError.queueFull(queue.name)) { try store.append(batch()) }
            try store.drain(queue)
        }
        let receipt = try store.append(batch())
        #expect(receipt.ids.count == 5 && receipt.evicted == (whenFull == .reject ? [] : [first]))
        // Larger than the queue, but not than what is in it.
        #expect(throws: AppendError.neverFits(queue.name)) {
            try store.append((0..<4).map { _ in store.message(to: queue) })
        }
        #expect(try store.drain(queue) == receipt.ids)
        #expect(try store.isBalanced())
    }

    @Test func requestLargerThanTheQueue_dropsNothing() throws {
        let store = try TestStore()
        let queue = try store.register(
            cap: QueueCap.with { ($0.maxMessages, $0.maxBytes, $0.whenFull) = (4, 40, .dropOldest) })
        try store.append(4, to: queue)
        #expect(throws: AppendError.neverFits(queue.name)) { try store.append(5, to: queue) }
        let large = String(repeating: "x", count: 41)
        #expect(throws: AppendError.neverFits(queue.name)) { try store.append(large, to: queue) }
        #expect(store.outbox.ledger(of: queue.number).dropped == 0)
        #expect(try store.drain(queue).count == 4)
    }

    @Test func requestRefusedByOneQueue_dropsNothingInAnother() throws {
        let store = try TestStore()
        let first = try store.register(
            PlainUpstream("first"), cap: QueueCap.with { ($0.maxMessages, $0.whenFull) = (1, .dropOldest) })
        let second = try store.register(PlainUpstream("second"), cap: QueueCap.with { $0.maxMessages = 1 })
        try store.append(to: first)
        try store.append(to: second)
        #expect(throws: AppendError.queueFull(second.name)) {
            try store.append([store.message(to: first), store.message(to: second)])
        }
        #expect(store.outbox.ledger(of: first.number).dropped == 0)
        #expect(try store.drain(first).count == 1)
        #expect(try store.isBalanced())
    }

    @Test func outboxCap_countsAllUpstreams() throws {
        let store = try TestStore { $0.maxBytes = 10 }
        let first = try store.register(PlainUpstream("first"))
        let second = try store.register(PlainUpstream("second"))
        try store.append("123456", to: first)
        #expect(throws: AppendError.queueFull(nil)) { try store.append("12345", to: second) }
        try store.drain(first)
        try store.append("12345", to: second)
    }

    @Test func evictedRetry_freesItsLane() throws {
        let store = try TestStore()
        let queue = try store.register(cap: QueueCap.with { ($0.maxMessages, $0.whenFull) = (2, .dropOldest) })
        try store.append(to: queue, lane: .digest(7))
        try store.sendLater(store.claim(queue).messages, of: queue, at: store.time.now + .seconds(300))
        let second = try store.append(to: queue, lane: .digest(7))
        #expect(try store.claim(queue).messages.isEmpty)
        let receipt = try store.append([store.message(to: queue, lane: .digest(7))])
        #expect(receipt.evicted.count == 1)
        #expect(store.readiness(queue) == .now)
        #expect(try store.drain(queue) == [second] + receipt.ids)
    }
}
