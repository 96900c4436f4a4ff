import PosternCore
import PosternTestKit
import Testing

@testable import PosternStore

/// No number is assigned twice, even if the clock does not help.
@Suite(.eachEngine) struct AssignedNumberTests {
    @Test func ids_continue_ifTheClockWasSetBackBeforeTheStart() throws {
        let store = try TestStore()
        var ids = try store.append(3, to: store.register(PlainUpstream("first")))
        ids += try store.append(2, to: store.register(PlainUpstream("second")))
        store.time.setWallClock(back: .seconds(3600))
        try store.reopen()
        let queue = try store.register(PlainUpstream("first"))
        ids += try store.append(2, to: queue)
        // The rows that show the latest numbers may be gone.
        try store.drain(queue)
        try store.reopen()
        ids += try store.append(1, to: store.register(PlainUpstream("second")))
        #expect(ids == ids.sorted() && Set(ids).count == 8)
        // Numbers that a PostgreSQL sequence has reserved are not used later.
        guard !store.options.engine.isPostgres else { return }
        #expect(ids.map(\.sequence) == Array(ids[0].sequence..<ids[0].sequence + 8))
    }

    @Test func batches_continue_ifTheirAttemptsWereDeleted() throws {
        let store = try TestStore { options in
            options.deliveredRetention = .seconds(100)
            options.failedRetention = .seconds(100)
        }
        let queue = try store.register()
        try store.append(1, to: queue)
        let messages = try store.claim(queue).messages
        let batch = store.outbox.nextBatch()
        try store.openAttempt(batch, carrying: messages.map(\.id), of: queue)
        var settlement = Settlement(batch: batch, outcome: .delivered, endedAt: store.time.now)
        settlement.delivered = messages
        try store.settle(settlement, of: queue)
        store.time.advance(by: .seconds(200))
        try store.runMaintenance()
        #expect(try store.outbox.read { try !$0.exists("SELECT 1 FROM attempts") })
        try store.reopen()
        let next = store.outbox.nextBatch().rawValue
        #expect(store.options.engine.isPostgres ? next > batch.rawValue : next == batch.rawValue + 1)
    }

    @Test func batches_continue_afterOneThatWasNotSent() throws {
        let store = try TestStore()
        let queue = try store.register()
        try store.append(1, to: queue)
        let settlement = store.settlement(.unsent)
        try store.settle(settlement, of: queue)
        try store.reopen()
        let next = store.outbox.nextBatch().rawValue
        let former = settlement.batch.rawValue
        #expect(store.options.engine.isPostgres ? next > former : next == former + 1)
    }
}
