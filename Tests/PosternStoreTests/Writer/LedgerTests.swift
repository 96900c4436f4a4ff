import Foundation
import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternStore

@Suite(.eachEngine) struct LedgerTests {
    @Test func figuresOfAnotherWriter_areKept_whateverACommitAdds() throws {
        let store = try TestStore()
        let queue = try store.register()
        func figures() throws -> [Int] {
            try ["accepted", "queued", "delivered", "failed"].map { try store.integer("SELECT \($0) FROM upstreams") }
        }
        try store.execute(
            "UPDATE upstreams SET accepted = 1000, queued = 100, delivered = 700, failed = 200, lastId = \(1 << 60)")
        try store.append(3, to: queue)
        try store.deliver(try store.claim(queue, most: 1).messages, of: queue)
        #expect(try figures() == [1003, 102, 701, 200])
        try store.fail(try store.claim(queue, most: 1).messages, of: queue)
        #expect(try figures() == [1003, 101, 701, 201])
        #expect(try store.integer("SELECT lastId FROM upstreams") == 1 << 60)
        let ledger = store.outbox.ledger(of: queue.number)
        #expect(ledger.accepted == 3 && ledger.counts == Ledger.Counts(queued: 1, delivered: 1, failed: 1))
    }

    @Test func change_isAdded_toTheColumnOfEachFigure() throws {
        let store = try TestStore()
        let number = try store.register().number
        var expected = Ledger()
        for change in [
            Ledger(lastID: 512, accepted: 3, queuedBytes: 40, counts: .init(queued: 3)),
            Ledger(queuedBytes: -7, counts: .init(queued: -2, delivered: 2)),
            Ledger(
                lastID: 256, accepted: 101, queuedBytes: 102,
                counts: .init(queued: 103, delivered: 104, failed: 105, cancelled: 106, dropped: 107, expired: 108),
                purged: .init(delivered: 109, failed: 110, cancelled: 111, dropped: 112, expired: 113),
                ambiguousSends: 114),
        ] {
            expected = expected + change
            try store.transact { try change.add(to: number, with: $0.sql) }
            #expect(try store.outbox.summary(of: number)?.ledger == expected)
        }
        #expect(expected.lastID == 512)
    }
}

struct LedgerTailTests {
    /// What the row of the upstream says, which leaves out its tail.
    private func accepted(_ store: TestStore) throws -> Int { try store.integer("SELECT accepted FROM upstreams") }

    @Test func acceptedMessages_areCountedByTheirRows_untilOneOfThemLeavesTheQueue() throws {
        let store = try TestStore()
        let queue = try store.register()
        let first = try store.append("12345", to: queue)
        try store.append("123", to: queue)
        #expect(try accepted(store) == 0)
        let ledger = try #require(try store.outbox.summary(of: queue.number)).ledger
        #expect(ledger == store.outbox.ledger(of: queue.number))
        #expect(ledger.accepted == 2 && ledger.queued == 2 && ledger.queuedBytes == 8)
        #expect(try store.outbox.audit().isBalanced)
        #expect(try store.survivors() == 2)
        #expect(try store.cancel(first))
        #expect(try accepted(store) == 2)
        try store.append(to: queue)
        #expect(try accepted(store) == 2)
        #expect(try store.outbox.audit().isBalanced)
        try store.reopen()
        #expect(try accepted(store) == 3)
        #expect(try store.outbox.audit().isBalanced)
    }

    @Test func acceptedMessages_areCounted_whenSuchChangesAddUpToNothing() throws {
        let store = try TestStore()
        let queue = try store.register()
        let failed = try store.append(to: queue)
        try store.fail(try store.claim(queue).messages, of: queue)
        let newest = try store.append(to: queue)
        let (target, now) = (queue.target, store.time.now)
        try store.transact { transaction in
            try transaction.end(newest, in: target, as: .failed, error: nil, at: now)
            #expect(try transaction.requeue(failed, in: target, at: now))
        }
        try store.reopen()
        #expect(try store.outbox.audit().isBalanced)
        #expect(store.outbox.ledger(of: queue.number).accepted == 2)
    }

    @Test func acceptedMessages_areCountedByTheirRows_onlyWhileTheyAreFew() throws {
        let store = try TestStore()
        let queue = try store.register()
        try store.append(Ledger.longestTail, to: queue)
        #expect(try accepted(store) == 0)
        try store.append(1, to: queue)
        #expect(try accepted(store) == Ledger.longestTail + 1)
    }

    @Test func undoneMessages_areNotCounted() throws {
        let store = try TestStore()
        let queue = try store.register()
        let message = store.message("{}", to: queue)
        #expect(throws: StoreError.self) {
            try store.transact {
                _ = try $0.append([message])
                throw StoreError.failed(detail: "on purpose")
            }
        }
        try store.append(1, to: queue)
        #expect(store.outbox.ledger(of: queue.number).accepted == 1)
        try store.reopen()
        #expect(store.outbox.ledger(of: queue.number).accepted == 1)
        #expect(try store.outbox.audit().isBalanced)
    }

    @Test func numbersOfAcceptedMessages_areNotAssignedAgain() throws {
        let store = try TestStore()
        let queue = try store.register()
        let id = try store.append(to: queue)
        let newest = try store.outbox.readers.readSnapshot { try AssignedNumbers($0).sequence }
        #expect(newest == id.sequence)
    }
}

@Suite(.eachEngine) struct SettlementTests {
    @Test func settlement_isNotKept_ifItsChangesCannotBeComputed() throws {
        let store = try TestStore()
        let queue = try store.register()
        try store.append(1, to: queue)
        var settlement = store.settlement(.delivered)
        settlement.delivered = try store.claim(queue).messages
        try store.execute("ALTER TABLE state RENAME TO hidden")
        #expect(throws: StoreError.self) {
            try store.threads.result {
                store.outbox.settle(
                    settlement, of: queue, changes: { [.set(key: "a", value: $0.value(of: "b") ?? [])] }, completion: $0
                )
            }
        }
        #expect(try store.state(settlement.delivered[0].id) == .queued)
    }
}

@Suite(.eachEngine) struct UpkeepTests {
    @Test func retention_removesReceipts_andTheBooksStayBalanced() throws {
        let store = try TestStore { $0.deliveredRetention = .seconds(100) }
        let queue = try store.register()
        let old = try store.append(5000, to: queue)
        try store.drain(queue)
        store.time.advance(by: .seconds(99))
        let young = try store.append(10, to: queue)
        try store.drain(queue)
        try store.runMaintenance()
        #expect(try store.state(old[0]) == .delivered)
        store.time.advance(by: .seconds(2))
        try store.runMaintenance()
        #expect(try store.state(old[4999]) == nil)
        #expect(try store.state(young[0]) == .delivered)
        #expect(store.outbox.ledger(of: queue.number).purged.delivered == 5000)
        #expect(try store.isBalanced())
        store.time.advance(by: .seconds(100))
        try store.runMaintenance()
        #expect(try store.kept(.delivered) == 0)
        #expect(store.outbox.ledger(of: queue.number).delivered == 5010)
        #expect(try store.isBalanced())
    }

    /// It waits until the oldest is old enough, and that may be sooner than it was.
    @Test func retention_isInTime_withTheSameMaintenance_alsoAfterTheClockWasSetBack() throws {
        let store = try TestStore { options in
            options.deliveredRetention = .seconds(100)
            options.failedRetention = .seconds(100)
        }
        let queue = try store.register()
        let maintenance = Maintenance(outbox: store.outbox)
        func turn() throws { try store.runMaintenance(maintenance) }
        func states(_ ids: [MessageID]) throws -> [MessageState?] { try ids.map { try store.state($0) } }
        func storeOne() throws -> [MessageID] {
            let ids = try store.append(2, to: queue)
            try store.fail(Array(store.claim(queue, most: 1).messages), of: queue)
            try store.drain(queue)
            return ids
        }
        try turn()
        let first = try storeOne()
        store.time.advance(by: .seconds(60))
        try turn()
        // Half an hour earlier by the clock.
        store.time.setWallClock(back: .seconds(1800))
        let second = try storeOne()
        try turn()
        store.time.advance(by: .seconds(101))
        try turn()
        #expect(try states(second) == [nil, nil])
        #expect(try states(first) == [.failed, .delivered])
        store.time.advance(by: .seconds(1740))
        try turn()
        #expect(try states(first) == [nil, nil])
        #expect(try store.isBalanced())
    }

    /// More of them than a turn examines.
    @Test func futureTimes_delayNoRetention_onceTheClockIsRight() throws {
        let store = try TestStore { $0.deliveredRetention = .seconds(100) }
        let queue = try store.register()
        let years = Duration.seconds(10 * 365 * 86400)
        store.time.setWallClock(back: .zero - years)
        let early = try store.append(2500, to: queue)
        for _ in 0..<250 { try store.deliver(store.claim(queue, most: 10).messages, of: queue) }
        store.time.setWallClock(back: years)
        let late = try store.append(10, to: queue)
        try store.drain(queue)
        let maintenance = Maintenance(outbox: store.outbox)
        try store.runMaintenance(maintenance)
        #expect(try store.state(early[0]) == .delivered)
        for _ in 1...3 {
            store.time.advance(by: .seconds(101))
            try store.runMaintenance(maintenance)
        }
        #expect(try store.state(early[2499]) == nil && store.state(late[9]) == nil)
        #expect(try store.integer("SELECT count(*) FROM attempts") == 0)
        #expect(try store.isBalanced())
    }

    /// Else a repeated key would get its old response for as long as the clock was ahead.
    @Test func futureResponse_isKeptNoLongerThanOthers() throws {
        let store = try TestStore { $0.idempotencyRetention = .seconds(100) }
        let later = store.time.now + .seconds(10 * 365 * 86400)
        try store.execute("INSERT INTO responses VALUES (x'01', x'02', \(later.milliseconds), x'03')")
        let maintenance = Maintenance(outbox: store.outbox)
        try store.runMaintenance(maintenance)
        #expect(try store.integer("SELECT count(*) FROM responses") == 1)
        store.time.advance(by: .seconds(101))
        try store.runMaintenance(maintenance)
        #expect(try store.integer("SELECT count(*) FROM responses") == 0)
    }

    @Test func undoneTurn_isDoneAgain() throws {
        let store = try TestStore { $0.deliveredRetention = .seconds(100) }
        let queue = try store.register()
        let old = try store.append(5, to: queue)
        try store.drain(queue)
        let maintenance = Maintenance(outbox: store.outbox)
        try store.runMaintenance(maintenance)
        store.time.advance(by: .seconds(101))
        #expect(throws: StoreError.self) {
            try store.transact { transaction in
                _ = try maintenance.run(in: transaction)
                throw StoreError.failed(detail: "after all")
            }
        }
        #expect(try store.state(old[0]) == .delivered)
        try store.runMaintenance(maintenance)
        #expect(try store.state(old[0]) == nil && store.state(old[4]) == nil)
        #expect(try store.isBalanced())
    }

    @Test func deadLetters_areKeptLonger() throws {
        let store = try TestStore { options in
            options.deliveredRetention = .seconds(100)
            options.failedRetention = .seconds(1000)
        }
        let queue = try store.register()
        let ids = try store.append(3, to: queue)
        try store.fail(Array(store.claim(queue, most: 1).messages), of: queue)
        #expect(try store.cancel(ids[1]))
        store.time.advance(by: .seconds(999))
        try store.runMaintenance()
        #expect(try store.state(ids[0]) == .failed)
        store.time.advance(by: .seconds(2))
        try store.runMaintenance()
        #expect(try store.state(ids[0]) == nil)
        #expect(try store.state(ids[1]) == nil)
        #expect(try store.state(ids[2]) == .queued)
        #expect(try store.isBalanced())
    }

    @Test func noRetention_keepsNoReceipts() throws {
        let store = try TestStore { $0.deliveredRetention = .zero }
        let queue = try store.register()
        try store.append(10, to: queue)
        try store.deliver(store.claim(queue, most: 1).messages, of: queue)
        try store.drain(queue)
        #expect(try store.kept(.delivered) == 0)
        #expect(store.outbox.ledger(of: queue.number).delivered == 10)
        #expect(try store.isBalanced())
    }

    @Test func attempts_goWithTheReceipts_pastFailuresThatAreKept() throws {
        let store = try TestStore { options in
            options.deliveredRetention = .seconds(100)
            options.failedRetention = .seconds(1000)
        }
        let queue = try store.register()
        let outcomes = (0..<600).map { $0 < 400 ? Settlement.Outcome.retry : .delivered }
        let time = store.time.now
        let batches = outcomes.map { _ in store.outbox.nextBatch() }
        for (batch, outcome) in zip(batches, outcomes) {
            store.outbox.openAttempt(batch, carrying: [MessageID(rawValue: 1)], at: time, of: queue) { _ in }
            let settlement = Settlement(batch: batch, outcome: outcome, endedAt: time)
            store.outbox.settle(settlement, of: queue) { _ in
                []
            } completion: { _ in
            }
        }
        store.time.advance(by: .seconds(101))
        try store.runMaintenance()
        #expect(try store.count("attempts") == 400)
        store.time.advance(by: .seconds(1000))
        try store.runMaintenance()
        #expect(try store.count("attempts") == 0)
    }
}

@Suite(.eachEngine) struct ReadingTests {
    /// PostgreSQL stores one of these characters in no text.
    @Test(arguments: ["\0", "\u{10FFFF}", "\u{10FFFF}0", "a\0\u{301}b\u{10FFFF}1", "\u{100000}", "\u{1F600}"])
    func anyCharacter_isKept_inTheTextsOfAMessage_andOfItsLane(text: String) throws {
        let store = try TestStore()
        let queue = try store.register(PlainUpstream(laneRule: .perLane))
        let ids = try store.append([
            store.message(to: queue, lane: .named("before")),
            store.message(to: queue, lane: .named(text, group: "group \(text)"), key: text),
            store.message(to: queue, lane: .named("after")),
        ]).ids
        let found = try store.outbox.messages(MessageFilter(key: text), after: nil, limit: 10).messages
        #expect(found.map(\.id) == [ids[1]] && found.first?.key == text)
        var settlement = store.settlement(.rejected)
        settlement.detail = text
        let claims = try (0..<3).map { _ in try store.claim(queue).messages }
        let messages = try #require(claims.first { $0.map(\.id) == [ids[1]] })
        guard case .named(text, _) = messages[0].lane else { return _ = Issue.record("\(messages[0].lane)") }
        try store.openAttempt(settlement.batch, carrying: [ids[1]], of: queue)
        settlement.ended = messages.map { .init($0, as: .failed, error: store.error(.refused)) }
        let state = StateChange.set(key: "key/\(text)", value: Array("value".utf8))
        try store.settle(settlement, of: queue, changes: [state])
        queue.release(messages)
        #expect(try store.state(ids[1]) == .failed)
        #expect(try store.count("state") == 1)
        #expect(try store.isBalanced())
    }

    /// An index of PostgreSQL takes 2704 bytes, compressed: random text is not shorter.
    @Test func longTexts_areStored_andLanesFoundByThem() throws {
        let store = try TestStore()
        let queue = try store.register(PlainUpstream(laneRule: .perLane))
        var random = SplitMix64(state: 1)
        let text = String((0..<8000).map { _ in Character(Unicode.Scalar(UInt8(33 + random.below(90)))) })
        let names = [text + "a", text + "b"]
        let ids = try names.map { try store.append(to: queue, lane: .named($0), key: text) }
        try store.reopen()
        let again = try store.register(PlainUpstream(laneRule: .perLane))
        let later = try names.map { try store.append(to: again, lane: .named($0), key: text) }
        #expect(try store.count("lanes") == 2)
        var filter = MessageFilter(key: text)
        filter.lane = names[0]
        let found = try store.outbox.messages(filter, after: nil, limit: 10).messages
        #expect(found.map(\.id) == [ids[0], later[0]])
        let claims = try (0..<2).map { _ in try store.claim(again).messages.map(\.id) }
        #expect(claims == [[ids[0], later[0]], [ids[1], later[1]]])
        #expect(try store.isBalanced())
    }

    @Test func pages_goThroughAllStates_inTheOrderOfAcceptance() throws {
        let store = try TestStore()
        let first = try store.register(PlainUpstream("first"))
        let second = try store.register(PlainUpstream("second"))
        var ids: [MessageID] = []
        for index in 0..<40 { ids.append(try store.append(to: index % 3 == 0 ? second : first, key: "k\(index % 2)")) }
        try store.deliver(store.claim(first, most: 10).messages, of: first)
        try store.fail(store.claim(second, most: 5).messages, of: second)
        func all(_ filter: MessageFilter) throws -> [MessageID] {
            var found: [MessageID] = []
            var cursor: MessageID?
            repeat {
                let page = try store.outbox.messages(filter, after: cursor, limit: 7)
                #expect(page.messages.count <= 7)
                found += page.messages.map(\.id)
                cursor = page.next
            } while cursor != nil
            return found
        }
        #expect(try all(MessageFilter()) == ids)
        #expect(try all(MessageFilter(upstream: second.name)) == ids.indices.filter { $0 % 3 == 0 }.map { ids[$0] })
        #expect(try all(MessageFilter(key: "k1")) == ids.indices.filter { $0 % 2 == 1 }.map { ids[$0] })
        #expect(try all(MessageFilter(state: .delivered)).count == 10)
        #expect(try all(MessageFilter(state: .failed)).count == 5)
        #expect(try all(MessageFilter(state: .queued)).count == 25)
    }

    @Test func attempts_areFound_byTheMessagesTheyCarried() throws {
        let store = try TestStore()
        let queue = try store.register()
        let ids = try store.append(6, to: queue)
        for members in [[ids[0], ids[2]], [ids[1]], [ids[2], ids[5]]] {
            try store.openAttempt(store.outbox.nextBatch(), carrying: members, of: queue)
        }
        #expect(try store.outbox.attempts(of: ids[2]).map(\.batch.rawValue) == [1, 3])
        #expect(try store.outbox.attempts(of: ids[2], onPageOf: 100_000).map(\.batch.rawValue) == [1, 3])
        #expect(try store.outbox.attempts(of: ids[2], onPageOf: 200_000).count == 1, "it examines one request")
        #expect(try store.outbox.attempts(of: ids[1]).map(\.messages) == [1])
        #expect(try store.outbox.attempts(of: ids[3]).isEmpty)
    }

    @Test func disabledUpstreams_areThoseWithMessagesAndWithoutAWorker() throws {
        let store = try TestStore()
        for (name, count) in [("zulu", 2), ("empty", 0), ("alpha", 1), ("mine", 1)] {
            let queue = try store.register(PlainUpstream(name))
            if count > 0 { try store.append(count, to: queue) }
        }
        func numbers(_ names: [String]) -> Set<UpstreamNumber> {
            Set(store.outbox.names.filter { names.contains($0.value.description) }.keys)
        }
        let all = numbers(["zulu", "empty", "alpha", "mine"])
        #expect(try store.outbox.disabledUpstreams(besides: all).isEmpty)
        try store.reopen()
        _ = try store.register(PlainUpstream("mine"))
        try store.outbox.registerStored()
        let disabled = try store.outbox.disabledUpstreams(besides: numbers(["mine"]))
        #expect(disabled.map(\.name.description) == ["alpha", "zulu"])
        #expect(disabled.map { store.outbox.ledger(of: $0.number).queued } == [1, 2])
        #expect(disabled.map(\.type) == ["plain", "plain"])
    }
}
