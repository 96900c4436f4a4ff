import PosternCore
import PosternTestKit
import Testing

@testable import PosternStore

/// Lists of messages by order, time, and error.
@Suite(.eachEngine) struct MessageListTests {
    /// Reads all pages of a list.
    private func all(
        _ filter: MessageFilter, _ order: MessageOrder = .oldest, limit: Int = 7, in store: TestStore
    ) throws -> [MessageID] {
        var found: [MessageID] = []
        var cursor: MessageID?
        repeat {
            let page = try store.outbox.messages(filter, order: order, after: cursor, limit: limit)
            #expect(page.messages.count <= limit)
            found += page.messages.map(\.id)
            cursor = page.next
        } while cursor != nil
        return found
    }

    /// A store with two upstreams and messages in all tables.
    private func withMessages(_ body: (TestStore, [MessageID]) throws -> Void) throws {
        let store = try TestStore()
        let first = try store.register(PlainUpstream("first"))
        let second = try store.register(PlainUpstream("second"))
        var ids: [MessageID] = []
        for index in 0..<40 {
            store.time.advance(by: .seconds(30))
            ids.append(try store.append(to: index % 3 == 0 ? second : first))
        }
        try store.deliver(store.claim(first, most: 10).messages, of: first)
        try store.fail(store.claim(second, most: 5).messages, of: second)
        try body(store, ids)
    }

    /// An older version accepted the name.
    @Test func messages_areListed_ofAnUpstreamWhoseNameIsReservedNow() throws {
        let store = try TestStore()
        let id = try store.append(to: try store.register())
        try store.execute("UPDATE upstreams SET name = 'history'")
        try store.reopen()
        #expect(try all(MessageFilter(), in: store) == [id])
        #expect(try store.outbox.disabledUpstreams(besides: []).map(\.name.description) == ["history"])
        guard !store.options.engine.isPostgres else { return }
        #expect(try StoreView(path: store.path).message(id, payload: false)?.upstream == "history")
    }

    @Test func newestFirst_isTheOldestFirst_reversed() throws {
        try withMessages { store, ids in
            let newest = try all(MessageFilter(), .newest, in: store)
            #expect(newest == ids.reversed())
            for state in MessageState.allCases {
                let filter = MessageFilter(state: state)
                let (newest, oldest) = (try all(filter, .newest, in: store), try all(filter, in: store))
                #expect(newest == oldest.reversed())
            }
        }
    }

    @Test func page_endsAtItsBytes_inBothOrders() throws {
        try withMessages { store, ids in
            for (order, expected) in [(MessageOrder.oldest, ids), (.newest, ids.reversed())] {
                let page = try store.outbox.messages(
                    MessageFilter(), order: order, after: nil, limit: 100, maxBytes: 2000)
                let count = page.messages.count
                #expect((2...5).contains(count))
                #expect(page.messages.map(\.id) == Array(expected.prefix(count)) && page.next == expected[count - 1])
            }
        }
    }

    /// However few of the rows match: a page examines so many, and reading the error of one counts as ten more.
    @Test(arguments: MessageOrder.allCases, [false, true])
    func page_endsAtItsRows(order: MessageOrder, readsErrors: Bool) throws {
        let store = try TestStore()
        let queue = try store.register()
        let most = StoreReader.rowsPerPage / (readsErrors ? 1 + StoreReader.rowsPerError : 1) + 1
        let count = most + 20
        // Only the one at the far end has the key, or the error.
        let wanted = order == .oldest ? count : 1
        try store.execute(
            """
            INSERT INTO ended_1 (id, state, kind, lane, acceptedAtMs, settledAtMs, attempts, key, lastError, checksum)
            WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < \(count))
            SELECT (n << 8) | 1, 2, 1, '', 0, \(store.time.now.milliseconds), 1, CASE WHEN n = \(wanted) THEN 'wanted' END,
              '{"class":"' || CASE WHEN n = \(wanted) THEN 'refused' ELSE 'timeout' END || '","detail":"","at":0}', 0 FROM numbers
            """)
        var filter = MessageFilter(key: readsErrors ? nil : "wanted")
        if readsErrors { filter.errorClass = .refused }
        func id(_ number: Int) -> MessageID { MessageID(rawValue: Int64(number << 8 | 1)) }
        let page = try store.outbox.messages(filter, order: order, after: nil, limit: 10)
        let examined = readsErrors ? most : StoreReader.rowsPerPage
        #expect(page.messages.isEmpty)
        #expect(page.next == id(order == .oldest ? examined : count + 1 - examined))
        let rest = try store.outbox.messages(filter, order: order, after: page.next, limit: 10)
        #expect(rest.messages.map(\.id) == [id(wanted)] && rest.next == nil)
        guard readsErrors else { return }
        // The same for groups of failures.
        let failures = try store.outbox.failures(of: queue.number, MessageFilter(), before: nil)
        #expect(failures.examined == examined && failures.next == id(count + 1 - examined))
    }

    @Test func time_selectsFromTheOneOn_toBeforeTheOther() throws {
        try withMessages { store, ids in
            let times = try ids.map { try #require(try store.record($0)).acceptedAt }
            for (start, end) in [(0, 40), (3, 9), (17, 18), (20, 20), (39, 40)] {
                var filter = MessageFilter()
                filter.createdAfter = times[start]
                filter.createdBefore = end < 40 ? times[end] : .never - .seconds(3600)
                let expected = Array(ids[start..<end])
                #expect(try all(filter, in: store) == expected)
                let newest = try all(filter, .newest, in: store)
                #expect(newest == expected.reversed())
            }
        }
    }

    /// Threads that validate at the same time, and a clock that is adjusted.
    @Test func time_selectsExactly_ifIdsAreALittleOutOfOrder() throws {
        let store = try TestStore()
        let queue = try store.register()
        var random = SplitMix64(state: 11)
        var times: [(id: MessageID, at: Timestamp)] = []
        for _ in 0..<400 {
            store.time.advance(by: .milliseconds(Int64(random.next() % 20_000)))
            let acceptedAt = store.time.now - .milliseconds(Int64(random.next() % 55_000))
            let message = NewMessage(
                queue: queue.target, kind: "thing", lane: .none, acceptedAt: acceptedAt, bytes: Array("{}".utf8))
            times.append((try store.append([message]).ids[0], acceptedAt))
        }
        for _ in 0..<50 {
            let bounds = [times[Int(random.next() % 400)].at, times[Int(random.next() % 400)].at].sorted()
            var filter = MessageFilter()
            (filter.createdAfter, filter.createdBefore) = (bounds[0], bounds[1])
            #expect(
                try all(filter, limit: 1000, in: store)
                    == times.filter { bounds[0] <= $0.at && $0.at < bounds[1] }.map(\.id))
        }
    }

    /// What is older or newer by more than the tolerance is not examined, however many messages that are.
    @Test func time_isFoundByBisection() throws {
        try withMessages { store, ids in
            let times = try ids.map { try #require(try store.record($0)).acceptedAt }
            var filter = MessageFilter()
            (filter.createdAfter, filter.createdBefore) = (times[20], times[30])
            let range = try store.outbox.read { sql in
                let reader = StoreReader(sql: sql, kinds: store.outbox.kinds, names: store.outbox.names)
                return try reader.range(in: .queue, of: ids[1].upstream, filter)
            }
            // A minute is two messages.
            #expect(range.first > ids[17].rawValue && range.last < ids[32].rawValue)
        }
    }

    @Test(arguments: MessageOrder.allCases) func cursor_mayBeAnyID(order: MessageOrder) throws {
        try withMessages { store, ids in
            for cursor in ["7zzzzzzzzzzzz", "0000000000000"] {
                let cursor = try #require(MessageID(cursor))
                let page = try store.outbox.messages(MessageFilter(), order: order, after: cursor, limit: 100)
                let isPastAll = (cursor.rawValue == .max) == (order == .oldest)
                #expect(page.messages.count == (isPastAll ? 0 : ids.count) && page.next == nil)
            }
        }
    }

    @Test func cursor_saysItsOrder() throws {
        let id = try #require(MessageID("05wkqtk003801"))
        #expect(MessageCursor("05wkqtk003801") == MessageCursor(id, in: .oldest))
        #expect(MessageCursor("newest.05wkqtk003801") == MessageCursor(id, in: .newest))
        for order in MessageOrder.allCases {
            let cursor = MessageCursor(id, in: order)
            #expect(MessageCursor(cursor.description) == cursor)
        }
        for text in ["", "newest.", "05wkqtk00380", "oldest.05wkqtk003801", "newest.newest.05wkqtk003801"] {
            #expect(MessageCursor(text) == nil)
        }
    }
}

/// Groups of messages with similar errors.
@Suite(.eachEngine) struct FailureTests {
    /// Fails one message for each of `details`, the first one first.
    private func fail(
        _ details: [String], _ errorClass: AttemptError.Class = .refused, status: Int? = 422, of queue: UpstreamQueue,
        in store: TestStore
    ) throws -> [MessageID] {
        let ids = try store.append(details.count, to: queue)
        let messages = try store.claim(queue, most: details.count).messages
        var settlement = store.settlement(.rejected)
        settlement.ended = zip(messages, details).map { message, detail in
            .init(
                message, as: .failed,
                error: AttemptError(errorClass, status: status, detail: detail, at: store.time.now))
        }
        try store.settle(settlement, of: queue)
        queue.release(messages)
        return ids
    }

    private func failures(_ store: TestStore, _ queue: UpstreamQueue, _ filter: MessageFilter = MessageFilter()) throws
        -> FailurePage
    {
        try store.outbox.failures(of: queue.number, filter, before: nil)
    }

    @Test func failures_areGroupedByTheirError_mostFirst() throws {
        let store = try TestStore()
        let queue = try store.register()
        let start = store.time.now
        let many = try fail(["item 17 is unknown", "item 18 is unknown"], of: queue, in: store)
        store.time.advance(by: .seconds(60))
        let late = try fail(["item 99 is unknown"], of: queue, in: store)
        _ = try fail(["item 17 is unknown"], .damaged, status: nil, of: queue, in: store)
        _ = try fail(["item 17 is unknown"], status: 400, of: queue, in: store)
        try store.append(3, to: queue)
        let page = try failures(store, queue)
        #expect(page.examined == 5 && page.next == nil)
        #expect(page.groups.map(\.count) == [3, 1, 1])
        let first = try #require(page.groups.first)
        #expect(first.errorClass == .refused && first.status == 422 && first.detail == "item * is unknown")
        #expect(first.sample == late[0])
        #expect(first.firstAt == start && first.lastAt == start + .seconds(60))
        #expect(Set(page.groups.map(\.id)).count == 3)
        // The group is a filter of lists, too.
        var filter = MessageFilter()
        filter.group = first.id
        let listed = try store.outbox.messages(filter, after: nil, limit: 10).messages.map(\.id)
        #expect(listed == many + late)
        filter = MessageFilter()
        filter.createdAfter = start + .seconds(60)
        #expect(try failures(store, queue, filter).groups.map(\.count) == [1, 1, 1])
    }

    @Test func group_countsItsErrorsByTheMinute_inTheHourBeforeTheLast() throws {
        let store = try TestStore()
        let queue = try store.register()
        // In the first second of a minute.
        store.time.advance(by: .milliseconds(60_000 - store.time.now.milliseconds % 60_000))
        for (count, seconds) in [(7, 60), (1, 3480), (2, 59), (3, 1)] {
            _ = try fail([String](repeating: "no", count: count), of: queue, in: store)
            store.time.advance(by: .seconds(seconds))
        }
        #expect(
            try failures(store, queue).groups.map(\.perMinute) == [[7, 1] + [UInt32](repeating: 0, count: 57) + [5]])
        _ = try fail(["no"], of: queue, in: store)
        // The seven are older than an hour now.
        let group = try #require(try failures(store, queue).groups.first)
        #expect(group.perMinute == [1] + [UInt32](repeating: 0, count: 57) + [5, 1] && group.count == 14)
        store.time.advance(by: .seconds(7200))
        _ = try fail(["no"], of: queue, in: store)
        #expect(try failures(store, queue).groups.map(\.perMinute) == [[UInt32](repeating: 0, count: 59) + [1]])
    }

    /// The clock may have been set back, so that a message with a higher id failed earlier.
    @Test func group_countsByTheMinute_inWhateverOrderTheyFailed() throws {
        let store = try TestStore()
        let moment = store.time.now
        let message = MessageID(sequence: 1, upstream: UpstreamNumber(rawValue: 1))
        var group = FailureGroup(message, nil, at: moment)
        group.add(message, at: moment - .seconds(120))
        group.add(message, at: moment - .seconds(86_400))
        #expect(group.perMinute.suffix(3) == [1, 0, 1] && group.count == 3)
        #expect(group.firstAt == moment - .seconds(86_400) && group.lastAt == moment)
    }

    @Test func requests_areListedNewestFirst_thoseOfOneUpstream() throws {
        let store = try TestStore()
        let (queue, other) = (try store.register(), try store.register(PlainUpstream("other")))
        let ids = try store.append(2, to: queue)
        let batches = try (0..<5).map { number in
            let batch = store.outbox.nextBatch()
            try store.openAttempt(batch, carrying: number == 4 ? ids : [ids[0]], of: number == 2 ? other : queue)
            return batch
        }
        func page(_ cursor: BatchID?, _ limit: Int) throws -> (batches: [AttemptRow], next: BatchID?) {
            try store.outbox.batches(of: queue.number, before: cursor, limit: limit)
        }
        let first = try page(nil, 2)
        #expect(first.batches.map(\.batch) == [batches[4], batches[3]] && first.next == batches[3])
        #expect(first.batches.map(\.messages) == [2, 1])
        let second = try page(first.next, 2)
        #expect(second.batches.map(\.batch) == [batches[1], batches[0]] && second.next == nil)
    }

    @Test func page_endsWithManyGroups_andContinues() throws {
        let store = try TestStore()
        let queue = try store.register()
        func letters(_ number: Int) -> String {
            String(String(number, radix: 2).map { $0 == "1" ? "x" : "o" })
        }
        let details = (1...1500).map { "bad \(letters($0))" }
        _ = try fail(details, of: queue, in: store)
        let page = try failures(store, queue)
        #expect(page.groups.count == 1000 && page.examined == 1000 && page.next != nil)
        let rest = try store.outbox.failures(of: queue.number, MessageFilter(), before: page.next)
        #expect(rest.groups.count == 500 && rest.next == nil)
        #expect(Set((page.groups + rest.groups).map(\.detail)) == Set(details))
    }

    @Test func error_isAFilter_byClassAndByText() throws {
        let store = try TestStore()
        let queue = try store.register()
        let failed = try fail(["Item 17 is unknown", "too old"], of: queue, in: store)
        let damaged = try fail(["the item is damaged"], .damaged, of: queue, in: store)
        let retried = try store.append(2, to: queue)
        try store.sendLater(store.claim(queue, most: 1).messages, of: queue, at: store.time.now + .seconds(60))
        try store.deliver(store.claim(queue, most: 1).messages, of: queue)
        func listed(_ change: (inout MessageFilter) -> Void) throws -> [MessageID] {
            var filter = MessageFilter()
            change(&filter)
            return try store.outbox.messages(filter, after: nil, limit: 10).messages.map(\.id)
        }
        #expect(try listed { $0.errorClass = .refused } == failed)
        #expect(try listed { $0.errorClass = .damaged } == damaged)
        #expect(try listed { $0.errorClass = .timeout } == [])
        #expect(try listed { $0.errorClass = .failing }.count == 1)
        #expect(try listed { $0.errorText = "ITEM" } == [failed[0]] + damaged)
        #expect(try listed { ($0.errorText, $0.state) = ("item", .queued) } == [])
        #expect(try listed { _ in }.count == failed.count + damaged.count + retried.count)
    }

    @Test(arguments: [
        ("", ""), ("refused", "refused"), ("HTTP 422: item 17", "HTTP 422: item *"), ("HTTP 4220", "HTTP *"),
        ("/items/3/id: unknown user 08f2-ab", "/items/*/id: unknown user *"), ("a_1-b c", "* c"),
        ("at 2026-01-31T12:00:00.431Z", "at *:*:*.*"), ("HTTP HTTP 12", "HTTP HTTP *"), ("größe 5é", "größe *é"),
    ])
    func pattern_hasNoNumbersAndIDs(detail: String, pattern: String) {
        #expect(ErrorPattern.of(detail) == pattern)
    }

    @Test func groupID_isText() throws {
        let id = FailureGroup.ID(AttemptError(.refused, detail: "", at: .never))
        #expect(id.description.utf8.count == 16 && FailureGroup.ID(id.description) == id)
        for text in ["", "6f1d2c3b4a59687", "6f1d2c3b4a59687g", "+f1d2c3b4a596877"] {
            #expect(FailureGroup.ID(text) == nil)
        }
    }
}
