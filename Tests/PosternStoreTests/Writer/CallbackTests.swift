import Logging
import PosternCore
import PosternEvents
import PosternMetrics
import PosternTestKit
import PosternThreads
import PosternUpstream
import Testing

@testable import PosternStore

/// Events about messages that settle, as the store keeps them. What they say is tested with the API.
@Suite(.eachEngine) struct CallbackTests {
    /// A store with an upstream `work`, whose messages are reported, and an upstream `hooks`, which gets the events.
    private struct Bench {
        let store: TestStore
        let work: UpstreamQueue
        let hooks: UpstreamQueue

        static let all: Set<MessageState> = [.delivered, .failed, .expired, .dropped]

        init(
            _ upstream: any Upstream = PlainUpstream("work"), cap: QueueCap = QueueCap(), hooks: QueueCap = QueueCap(),
            of states: Set<MessageState> = all, includesPayload: Bool = false,
            _ change: (inout OutboxOptions) -> Void = { _ in }
        ) throws {
            store = try TestStore(change)
            work = try store.register(upstream, cap: cap)
            self.hooks = try store.register(PlainUpstream("hooks"), cap: hooks)
            store.outbox.setCallbacks([Self.callback(to: self.hooks, of: states, includesPayload: includesPayload)])
        }

        static func callback(
            to queue: UpstreamQueue, of states: Set<MessageState> = all, in upstreams: Set<UpstreamName>? = nil,
            includesPayload: Bool = false
        ) -> Callback {
            Callback(to: queue.target, as: "thing", of: states, in: upstreams, includesPayload: includesPayload) {
                messages in
                messages.map { message in
                    let error = message.lastError.map(\.errorClass.rawValue) ?? "-"
                    let payload = message.payload.map { String(decoding: $0, as: UTF8.self) } ?? "-"
                    let result = message.result.map { String(decoding: $0, as: UTF8.self) } ?? "-"
                    let words = [
                        message.upstream.description, message.kind.description, message.state.name, message.key ?? "-",
                        "\(message.attempts)", error, result, payload,
                    ]
                    return Callback.Event(Array(words.joined(separator: " ").utf8), lane: .digest(7))
                }
            }
        }

        /// The events in the queue, oldest first: the id of the message that each reports, and its text.
        func events() throws -> [(id: MessageID, text: String)] {
            try store.outbox.read { sql in
                try sql.all("SELECT key, payload FROM queue_# WHERE key IS NOT NULL ORDER BY id", of: hooks.number) {
                    row in
                    (MessageID(row[0] as String)!, String(decoding: row[1] as [UInt8], as: UTF8.self))
                }
            }
        }

        func texts() throws -> [String] { try events().map(\.text) }
        var ledger: Ledger { store.outbox.ledger(of: hooks.number) }
    }

    // MARK: What is reported

    @Test func event_aboutACopy_namesTheOriginal_andEventsAreNotReplayed() throws {
        let bench = try Bench(includesPayload: false) { $0.deliveredPayloadRetention = .seconds(1000) }
        let original = try bench.store.append(to: bench.work)
        try bench.store.drain(bench.work)
        try bench.store.drain(bench.hooks)
        let payloads = try ["payloads_1", "payloads_2"].map(bench.store.count)
        #expect(payloads == [1, 0], "an event has no payload to be replayed")
        let originals = SharedValue<[MessageID?]>([])
        bench.store.outbox.setCallbacks([
            Callback(to: bench.hooks.target, as: "thing", of: [.delivered], in: nil, includesPayload: false) {
                messages in
                originals.set(messages.map(\.replayOf))
                return messages.map { _ in Callback.Event(Array("{}".utf8), lane: .none) }
            }
        ])
        let replay = Replay(
            id: "r", .init(upstream: bench.work.target.name, to: bench.work.target.name), by: nil, newest: original,
            at: bench.store.time.now)
        _ = try bench.store.threads.result { bench.store.outbox.begin(replay, completion: $0) }
        var step = Replay.Step(from: replay.cursor, next: nil)
        step.messages = [(original, bench.store.message(to: bench.work))]
        let made = step
        _ = try bench.store.threads.result {
            bench.store.outbox.advance("r", made, into: bench.work.target, completion: $0)
        }
        try bench.store.append(to: bench.work)
        try bench.store.drain(bench.work)
        #expect(originals.value == [original, nil])
    }

    @Test func event_isStored_withTheSettlementThatItReports() throws {
        let bench = try Bench()
        let id = try bench.store.append(to: bench.work, key: "k")
        var settlement = bench.store.settlement(.delivered)
        settlement.delivered = try bench.store.claim(bench.work).messages
        settlement.result = Array("ok".utf8)
        let seen = SharedValue<Ledger?>(nil)
        let (outbox, hooks) = (bench.store.outbox, bench.hooks.number)
        // The completion runs on the writer's thread right after the commit, before anything else is written.
        outbox.settle(settlement, of: bench.work) { _ in
            []
        } completion: { _ in
            seen.set(outbox.ledger(of: hooks))
        }
        try bench.store.settleDown()
        #expect(seen.value?.queued == 1)
        let event = try #require(try bench.events().first)
        #expect(event.id == id)
        #expect(event.text == "work thing delivered k 1 - ok -")
        #expect(try bench.store.claim(bench.hooks).messages.map(\.lane) == [.digest(7)])
        #expect(try bench.store.isBalanced())
    }

    @Test func event_isNotStored_ifItsSettlementIsNot() throws {
        let bench = try Bench()
        try bench.store.append(1, to: bench.work)
        var settlement = bench.store.settlement(.delivered)
        settlement.delivered = try bench.store.claim(bench.work).messages
        try bench.store.execute("ALTER TABLE state RENAME TO hidden")
        bench.store.outbox.settle(settlement, of: bench.work) { state in
            state.value(of: "a").map { [.set(key: "b", value: $0)] } ?? []
        } completion: { _ in
        }
        try bench.store.settleDown()
        #expect(bench.ledger.accepted == 0)
        #expect(try bench.texts() == [])
    }

    @Test func batch_isReported_messageByMessage() throws {
        let bench = try Bench()
        let ids = try bench.store.append(1000, to: bench.work)
        try bench.store.deliver(bench.store.claim(bench.work, most: 1000).messages, of: bench.work)
        #expect(try bench.events().map(\.id) == ids)
        #expect(bench.ledger.queued == 1000)
        #expect(try bench.store.isBalanced())
    }

    @Test func everyEnd_isReported_andACancelledMessageIsNot() throws {
        let bench = try Bench(cap: QueueCap.with { ($0.maxMessages, $0.whenFull) = (3, .dropOldest) })
        let (store, work) = (bench.store, bench.work)
        let failed = try store.append(to: work)
        try store.sendLater(store.claim(work).messages, of: work, at: store.time.now)
        try store.fail(store.claim(work).messages, of: work)
        let dropped = try store.append(to: work)
        let cancelled = try store.append(to: work)
        let outdated = try store.append(to: work, expiresAt: store.time.now + .seconds(1))
        try store.append(to: work)
        #expect(try store.cancel(cancelled))
        store.time.advance(by: .seconds(1))
        try store.runMaintenance()
        // A claim finds the last one to be too old.
        let claim = try store.claim(work, oldest: store.time.now)
        try store.expire(claim.expired, of: work)

        let events = try bench.events()
        #expect(events.map(\.id) == [failed, dropped, outdated, claim.expired[0].id])
        #expect(
            events.map(\.text) == [
                "work thing failed - 2 refused - -", "work thing dropped - 0 - - -", "work thing expired - 0 - - -",
                "work thing expired - 0 - - -",
            ])
        #expect(try store.isBalanced())
    }

    @Test func expiry_isReported_withTheErrorThatTheMessageHad() throws {
        let bench = try Bench()
        try bench.store.append(to: bench.work, expiresAt: bench.store.time.now + .seconds(1))
        let messages = try bench.store.claim(bench.work).messages
        try bench.store.sendLater(messages, of: bench.work, at: bench.store.time.now + .seconds(9))
        bench.store.time.advance(by: .seconds(1))
        try bench.store.runMaintenance()
        #expect(try bench.texts() == ["work thing expired - 1 failing - -"])
    }

    @Test func onlyConfiguredStatesAndUpstreams_areReported_andEachCallbackMakesItsOwnEvent() throws {
        let bench = try Bench()
        let other = try bench.store.register(PlainUpstream("other"))
        bench.store.outbox.setCallbacks([
            Bench.callback(to: bench.hooks, of: [.failed]),
            Bench.callback(to: bench.hooks, in: [other.name]),
        ])
        for queue in [bench.work, other] {
            try bench.store.append(2, to: queue)
            try bench.store.deliver(bench.store.claim(queue, most: 1).messages, of: queue)
            try bench.store.fail(bench.store.claim(queue, most: 1).messages, of: queue)
        }
        #expect(
            try bench.texts() == [
                "work thing failed - 1 refused - -", "other thing delivered - 1 - - -",
                "other thing failed - 1 refused - -", "other thing failed - 1 refused - -",
            ])
        bench.store.outbox.setCallbacks([])
        try bench.store.append(1, to: other)
        try bench.store.drain(other)
        #expect(try bench.texts().count == 4)
    }

    @Test func retriedMessage_isReportedAgain_whenItSettlesAgain() throws {
        let bench = try Bench()
        let id = try bench.store.append(to: bench.work)
        try bench.store.fail(bench.store.claim(bench.work).messages, of: bench.work)
        #expect(try bench.store.requeue([id]) == [id])
        bench.work.requeued(id...id)
        try bench.store.drain(bench.work)
        #expect(try bench.events().map(\.id) == [id, id])
        #expect(
            try bench.texts() == ["work thing failed - 1 refused - -", "work thing delivered - 1 - - -"])
    }

    @Test func event_belongsToTheTraceOfItsMessage() throws {
        let bench = try Bench()
        let traces = ["delivered", "failed"].map { "00-\($0)-01" }
        let messages = traces.map {
            NewMessage(
                queue: bench.work.target, kind: "thing", acceptedAt: bench.store.time.now, bytes: Array("{}".utf8),
                traceParent: $0)
        }
        try bench.store.append(messages)
        try bench.store.deliver(bench.store.claim(bench.work, most: 1).messages, of: bench.work)
        try bench.store.fail(bench.store.claim(bench.work, most: 1).messages, of: bench.work)
        #expect(try bench.store.claim(bench.hooks).messages.map(\.traceParent) == traces)
    }

    // MARK: Payloads

    @Test func payload_isReadOnlyIfACallbackNeedsIt() throws {
        for needsIt in [false, true] {
            let bench = try Bench(includesPayload: needsIt)
            try bench.store.append(#"{"a": 1.0}"#, to: bench.work)
            try bench.store.fail(bench.store.claim(bench.work).messages, of: bench.work)
            #expect(try bench.texts() == ["work thing failed - 1 refused - " + (needsIt ? #"{"a": 1.0}"# : "-")])
        }
    }

    @Test func damagedPayload_isNotReported() throws {
        let bench = try Bench(includesPayload: true)
        try bench.store.append("{\"a\":1}", to: bench.work)
        try bench.store.execute("UPDATE queue_1 SET payload = x'7b226122'")
        let claim = try bench.store.claim(bench.work)
        try bench.store.expire(claim.expired, of: bench.work)
        #expect(try bench.texts() == ["work thing failed - 0 damaged - -"])
    }

    // MARK: No loops

    @Test func event_isNotReportedItself_howeverItEnds_andAlsoByALaterRun() throws {
        let bench = try Bench(hooks: QueueCap.with { ($0.maxMessages, $0.whenFull) = (5, .dropOldest) })
        let store = bench.store
        try store.append(6, to: bench.work)
        // One of the six does not fit.
        try store.drain(bench.work)
        try store.deliver(store.claim(bench.hooks, most: 1).messages, of: bench.hooks)
        let failed = try store.claim(bench.hooks, most: 1).messages
        try store.fail(failed, of: bench.hooks)
        try store.reopen()
        let hooks = try store.register(PlainUpstream("hooks"))
        store.outbox.setCallbacks([Bench.callback(to: hooks)])
        #expect(try store.requeue([failed[0].id]) == [failed[0].id])
        hooks.requeued(failed[0].id...failed[0].id)
        // Events about events would never end.
        for _ in 0..<20 { try store.deliver(store.claim(hooks, most: 1).messages, of: hooks) }
        let ledger = store.outbox.ledger(of: hooks.number)
        #expect(ledger.accepted == 6)
        #expect(ledger.delivered == 5)
        #expect(ledger.dropped == 1)
        #expect(try store.isBalanced())
    }

    @Test func otherMessagesOfTheUpstream_areReported() throws {
        let bench = try Bench()
        let id = try bench.store.append(to: bench.hooks)
        for _ in 0..<20 { try bench.store.deliver(bench.store.claim(bench.hooks, most: 1).messages, of: bench.hooks) }
        #expect(bench.ledger.accepted == 2)
        #expect(bench.ledger.delivered == 2)
        #expect(try bench.store.record(id)?.state == .delivered)
    }

    // MARK: Room

    @Test func event_isDropped_ifItsQueueIsFullAndRejects_andCanBeQueuedAgain() throws {
        let bench = try Bench(hooks: QueueCap.with { $0.maxMessages = 2 })
        let store = bench.store
        let ids = try store.append(5, to: bench.work)
        try store.deliver(store.claim(bench.work).messages, of: bench.work)
        #expect(try bench.events().map(\.id) == Array(ids[..<2]))
        #expect(bench.ledger.dropped == 3)
        #expect(store.outbox.ledger(of: bench.work.number).delivered == 5)
        #expect(store.metrics.settled("hooks", "dropped").value == 3)
        #expect(store.metrics.accepted("hooks", "thing").value == 5)
        #expect(try store.isBalanced())

        try store.drain(bench.hooks)
        let dropped = try store.outbox.messages(
            MessageFilter(upstream: bench.hooks.name, state: .dropped), after: nil, limit: 10, payload: true
        ).messages
        #expect(dropped.map(\.key) == ids[2...].map(\.description))
        #expect(try store.requeue(dropped.map(\.id)).count == 3)
        bench.hooks.requeued(dropped[0].id...dropped[0].id)
        try store.drain(bench.hooks)
        #expect(bench.ledger.delivered == 5)
        #expect(bench.ledger.accepted == 5)
        #expect(try store.isBalanced())
    }

    @Test func newestEvents_areKept_ifTheQueueDropsTheOldest() throws {
        let bench = try Bench(hooks: QueueCap.with { ($0.maxMessages, $0.whenFull) = (3, .dropOldest) })
        let ids = try bench.store.append(9, to: bench.work)
        for count in [2, 2, 5] {
            try bench.store.deliver(bench.store.claim(bench.work, most: count).messages, of: bench.work)
        }
        #expect(try bench.events().map(\.id) == Array(ids[6...]))
        #expect(bench.ledger.dropped == 6)
        #expect(bench.ledger.accepted == 9)
        #expect(try bench.store.isBalanced())
    }

    @Test func eventThatIsBeingSent_isNotEvicted() throws {
        let bench = try Bench(hooks: QueueCap.with { ($0.maxMessages, $0.whenFull) = (2, .dropOldest) })
        try bench.store.append(4, to: bench.work)
        try bench.store.deliver(bench.store.claim(bench.work, most: 2).messages, of: bench.work)
        let claim = try bench.store.claim(bench.hooks, most: 1)
        try bench.store.deliver(bench.store.claim(bench.work).messages, of: bench.work)
        #expect(bench.ledger.queued == 2)
        #expect(bench.ledger.dropped == 2)
        let sent = try #require(claim.messages.first)
        #expect(try bench.store.state(sent.id) == .queued)
        #expect(try bench.store.isBalanced())
    }

    /// Otherwise each event about an evicted message would evict the next one, until only such events are left.
    @Test func messagesEvictedForEvents_evictNoFurtherOnes() throws {
        let bench = try Bench(hooks: QueueCap.with { ($0.maxMessages, $0.whenFull) = (10, .dropOldest) })
        try bench.store.append(10, to: bench.hooks)
        try bench.store.append(1, to: bench.work)
        try bench.store.drain(bench.work)
        // The event took the place of one message, about which there is an event, which has no room.
        #expect(bench.ledger.queued == 10)
        #expect(bench.ledger.dropped == 2)
        #expect(bench.ledger.accepted == 12)
        #expect(try bench.texts().last == "work thing delivered - 1 - - -")
        #expect(try bench.store.isBalanced())
    }

    @Test func capOfTheOutbox_countsEventsToo() throws {
        let bench = try Bench { $0.maxBytes = 40 }
        try bench.store.append("12345", to: bench.work)
        try bench.store.append("12345", to: bench.work)
        try bench.store.drain(bench.work, most: 1)
        // Each event has 30 bytes.
        #expect(try bench.texts() == ["work thing delivered - 1 - - -"], "\(bench.ledger)")
        #expect(bench.ledger.dropped == 1)
        #expect(try bench.store.isBalanced())
    }

    @Test func refusedRequest_leavesNoEventAboutWhatItWouldHaveEvicted() throws {
        let bench = try Bench(
            RefusingUpstream(), cap: QueueCap.with { ($0.maxMessages, $0.whenFull) = (1, .dropOldest) })
        try bench.store.append(to: bench.work)
        #expect(throws: AppendError.self) { try bench.store.append("no", to: bench.work) }
        #expect(bench.ledger.accepted == 0)
        #expect(bench.store.outbox.ledger(of: bench.work.number).dropped == 0)
        try bench.store.append("yes", to: bench.work)
        #expect(try bench.texts() == ["refusing thing dropped - 0 - - -"])
        #expect(try bench.store.isBalanced())
    }

    // MARK: Completions

    @Test func worker_isWoken_afterTheCommit() throws {
        let bench = try Bench()
        let woken = Inbox<Int>()
        bench.hooks.onArrival(limits: BatchLimits(maxMessages: 1, maxBytes: 1 << 20)) { woken.put(1) }
        try bench.store.append(1, to: bench.work)
        try bench.store.drain(bench.work)
        #expect(!woken.takeAll().isEmpty)
        #expect(bench.store.readiness(bench.hooks) == .now)
    }

    @Test func nothingExpires_beforeTheCallbacksAreKnown() throws {
        let store = try TestStore()
        let work = try store.register(PlainUpstream("work"))
        let id = try store.append(to: work, expiresAt: store.time.now + .seconds(1))
        store.outbox.close()
        store.time.advance(by: .seconds(2))
        let threads = ManualThreads(time: store.time)
        let outbox = try Outbox(
            store.options, time: store.time, threads: threads, metrics: store.metrics,
            logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
        defer { outbox.close() }
        _ = try outbox.register(PlainUpstream("work"), type: "plain", cap: QueueCap())
        threads.advance(by: .seconds(5))
        #expect(try outbox.message(id)?.state == .queued)
        outbox.setCallbacks([])
        threads.advance(by: .seconds(5))
        #expect(try outbox.message(id)?.state == .expired)
    }
}

/// Rejects `no` inside the transaction.
private struct RefusingUpstream: PlainAtHeart, StateValidatingUpstream {
    let plain = PlainUpstream("refusing")

    func validate(_ candidate: PendingMessage, against state: any UpstreamState) throws(AcceptanceError)
        -> [StateChange]
    {
        guard candidate.payload != Array("no".utf8) else { throw AcceptanceError(.conflict, "no") }
        return []
    }
}
