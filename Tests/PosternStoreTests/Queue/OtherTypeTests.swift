import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternStore

/// A name that is configured again as another type, whose API would get the messages of the former one.
@Suite(.eachEngine) struct OtherTypeTests {
    private func error(_ store: TestStore) -> StoreError? {
        do throws(StoreError) {
            _ = try store.outbox.register(PlainUpstream(), type: "other", cap: QueueCap())
            return nil
        } catch {
            return error
        }
    }

    @Test func queuedMessages_forbidAnotherType() throws {
        let store = try TestStore()
        let queue = try store.register()
        try store.append(2, to: queue)
        try store.reopen()
        #expect(error(store) == .otherType(upstream: "plain", former: "plain", type: "other", messages: 2))
        // Nothing was changed, and the former type continues.
        let again = try store.register()
        #expect(try store.drain(again).count == 2)
        try store.reopen()
        #expect(error(store) == nil)
    }

    @Test func failedMessages_forbidIt_untilTheyArePurged() throws {
        let store = try TestStore()
        let queue = try store.register()
        let id = try store.append(to: queue)
        try store.fail(store.claim(queue, most: 1).messages, of: queue)
        try store.reopen()
        #expect(error(store) != nil)
        _ = try store.register()
        _ = try store.threads.result { store.outbox.perform(.purge, on: [id], completion: $0) }
        try store.reopen()
        #expect(error(store) == nil)
    }

    @Test func stateOfTheFormerType_isNotReadByTheOther() throws {
        let store = try TestStore()
        let queue = try store.register()
        try store.change([.set(key: "session", value: [1], expiry: nil)], of: queue)
        try store.reopen()
        _ = try store.register()
        #expect(try store.outbox.read { try $0.exists("SELECT 1 FROM state") })
        try store.reopen()
        #expect(error(store) == nil)
        #expect(try store.outbox.read { try !$0.exists("SELECT 1 FROM state") })
    }
}
