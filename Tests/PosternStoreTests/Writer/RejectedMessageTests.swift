import PosternCore
import PosternEvents
import PosternMetrics
import PosternTestKit
import PosternThreads
import PosternUpstream
import Testing

@testable import PosternStore

/// Messages that are stored as failed (`NewMessage.failure`, `NewMessage.failsIfRejected`).
@Suite(.eachEngine) struct RejectedMessageTests {
    private let store: TestStore

    init() throws { store = try TestStore() }

    private func rejected(_ queue: UpstreamQueue, lane: Lane = .none, key: String? = nil) -> NewMessage {
        store.message(#"{"n":"bad"}"#, to: queue, lane: lane, key: key, failure: "/n must be an integer")
    }

    private func events() -> [String] {
        store.outbox.events.take().map { "\($0.type.rawValue) \($0.ids.count)" }
    }

    @Test func message_thatIsNotValid_isInTheBooksAsFailed_andStaysSoAfterARestart() throws {
        let queue = try store.register()
        let receipt = try store.append([
            store.message(to: queue), rejected(queue, key: "k"), store.message(to: queue), rejected(queue),
        ])
        #expect(receipt.ids.count == 4 && receipt.failed.keys.sorted() == [1, 3])
        let error = AttemptError(.refused, detail: "/n must be an integer", at: store.time.now)
        #expect(receipt.failed[1] == error)
        #expect(receipt.notices.map(\.state) == [.failed, .failed])
        try store.reopen()
        let ledger = store.outbox.ledger(of: queue.number)
        #expect(ledger.accepted == 4 && ledger.queued == 2 && ledger.failed == 2 && ledger.queuedBytes == 4)
        let record = try #require(try store.record(receipt.ids[1]))
        #expect(record.state == .failed && record.attempts == 0 && record.lastError == error && record.key == "k")
        #expect(record.payload == Array(#"{"n":"bad"}"#.utf8) && record.settledAt == record.acceptedAt)
        #expect(try store.isBalanced())
        #expect(try store.drain(store.register()) == [receipt.ids[0], receipt.ids[2]])
    }

    @Test func failedMessages_areGroupedByWhatIsWrong_andPurged() throws {
        let queue = try store.register()
        let ids = try store.append([rejected(queue), rejected(queue), store.message(to: queue, failure: "is late")]).ids
        let groups = try store.outbox.failures(of: queue.number, MessageFilter(), before: nil).groups
        #expect(groups.map(\.count) == [2, 1])
        #expect(try store.threads.result { store.outbox.perform(.purge, on: ids, completion: $0) } == ids)
        #expect(store.outbox.ledger(of: queue.number).purged.failed == 3)
        #expect(try store.isBalanced())
    }

    @Test func metrics_andOneEvent_tellOfIt_andNoneThatItWasQueued() throws {
        let queue = try store.register()
        store.outbox.events.open {}
        let id = try store.append([rejected(queue)]).ids[0]
        #expect(store.metrics.settled("plain", "failed").value == 1)
        #expect(events() == ["message.failed 1"])
        _ = try store.requeue([id])
        #expect(events() == ["message.queued 1"])
    }

    @Test func callbacks_reportIt_withItsPayload() throws {
        let (work, hooks) = (try store.register(), try store.register(PlainUpstream("hooks")))
        let seen = SharedValue<[SettledMessage]>([])
        store.outbox.setCallbacks([
            Callback(to: hooks.target, as: "thing", of: [.failed], in: nil, includesPayload: true) { messages in
                seen.set(messages)
                return messages.map { _ in Callback.Event(Array("{}".utf8), lane: .none) }
            }
        ])
        let message = store.message("[]", to: work, key: "k", isFromSDK: true, failure: "must be an object")
        let id = try store.append([message]).ids[0]
        let told = try #require(seen.value.first)
        #expect(told.id == id && told.state == .failed && told.attempts == 0 && told.key == "k" && told.isFromSDK)
        #expect(told.lastError?.detail == "must be an object" && told.payload == Array("[]".utf8))
        #expect(try store.drain(hooks).count == 1)
        #expect(try store.isBalanced())
    }

    // MARK: Queues

    @Test func message_takesNoRoom_ofItsQueueOrTheOutbox() throws {
        let store = try TestStore()
        store.outbox.setMaxBytes(14)
        var cap = QueueCap()
        cap.maxMessages = 2
        let queue = try store.register(cap: cap)
        func rejected() -> NewMessage { store.message("\"more than 14 bytes\"", to: queue, failure: "is not valid") }
        try store.append(2, to: queue)
        #expect(try store.append([rejected(), rejected(), rejected()]).failed.count == 3)
        #expect(throws: AppendError.queueFull(nil)) { try store.append([rejected(), store.message(to: queue)]) }
        #expect(store.outbox.ledger(of: queue.number).failed == 3, "all of a request is stored, or nothing")
        #expect(try store.isBalanced())
    }

    @Test func messageBetweenOthers_isSentAgain_inItsPlace() throws {
        let queue = try store.register()
        let messages = (0..<20).map { $0 == 9 ? rejected(queue) : store.message("{\"n\":\($0)}", to: queue) }
        let ids = try store.append(messages).ids
        #expect(try store.isBalanced())
        #expect(try store.requeue([ids[9]]) == [ids[9]])
        queue.requeued(ids[9]...ids[9])
        #expect(try store.record(ids[9])?.lastError != nil)
        #expect(try store.isBalanced())
        #expect(try store.drain(queue) == ids)
        #expect(try store.record(ids[9])?.state == .delivered)
        #expect(try store.isBalanced())
    }

    @Test(arguments: [Lane.named("a", group: "g"), .none])
    func message_opensALane_onlyOnceItIsRetried(lane: Lane) throws {
        let queue = try store.register(PlainUpstream(laneRule: .perLane))
        let ids = try store.append([rejected(queue, lane: lane), rejected(queue, lane: lane)]).ids
        #expect(try store.count("lanes") == 0)
        #expect(try store.claim(queue).messages.isEmpty)
        #expect(try store.requeue(ids) == ids)
        queue.requeued(ids[0]...ids[1])
        // What has no lane gets one of its own, so that it waits for no other.
        let claims = try (0..<2).map { _ in try store.claim(queue).messages }.filter { !$0.isEmpty }
        #expect(claims.count == (lane.isNamed ? 1 : 2))
        for message in claims.joined() {
            #expect(message.lane == (lane.isNamed ? lane : .named(message.id.description)) && message.wasRetried)
        }
        for claim in claims { try store.deliver(claim, of: queue) }
        #expect(Set(claims.joined().map(\.id)) == Set(ids))
        #expect(try store.count("lanes") == 0)
        #expect(try store.isBalanced())
    }

    // MARK: Messages that are rejected in the transaction

    /// Adds up the payloads of all messages. `full` and `late` are rejected.
    private struct Strict: PlainAtHeart, StateValidatingUpstream {
        func validate(_ candidate: PendingMessage, against state: any UpstreamState) throws(AcceptanceError)
            -> [StateChange]
        {
            if candidate.payload == Array("full".utf8) { throw AcceptanceError(.full, "on purpose") }
            if candidate.payload == Array("late".utf8) { throw AcceptanceError(.conflict, "is late", at: "/n") }
            let sum = (state.value(of: "sum")?.first ?? 0) + UInt8(candidate.payload.count)
            return [.set(key: "sum", value: [sum])]
        }
    }

    private func message(_ text: String, _ queue: UpstreamQueue) -> NewMessage {
        store.message(text, to: queue, failsIfRejected: true)
    }

    @Test func messageThatItsUpstreamRejects_fails_andTheOthersOfItsRequestAreQueued() throws {
        let queue = try store.register(Strict())
        let receipt = try store.append(["1", "late", "22"].map { message($0, queue) } + [rejected(queue)])
        #expect(receipt.failed.mapValues(\.detail) == [1: "/n is late", 3: "/n must be an integer"])
        #expect(try store.outbox.withState(of: queue.number) { $0.value(of: "sum") } == [3])
        let ledger = store.outbox.ledger(of: queue.number)
        #expect(ledger.queued == 2 && ledger.failed == 2)
        #expect(try store.isBalanced())
        #expect(throws: AppendError.self) { try store.append([store.message("late", to: queue)]) }
    }

    @Test func lackOfRoom_isNotAFault_andNothingOfTheRequestIsStored() throws {
        let queue = try store.register(Strict())
        let refused = AppendError.refused([.init(index: 2, refusal: AcceptanceError(.full, "on purpose"))])
        #expect(throws: refused) { try store.append(["1", "late", "full"].map { message($0, queue) }) }
        #expect(store.outbox.ledger(of: queue.number) == Ledger())
        #expect(store.metrics.settled("plain", "failed").value == 0)
        #expect(try store.count("ended_1") == 0)
        #expect(try store.isBalanced())
    }

    /// Of a request with events, only those that are new are stored.
    @Test func receipt_hasTheFailedMessages_byTheirIndicesInTheRequest() throws {
        let queue = try store.register()
        func append(_ range: Range<UInt8>) throws -> AppendReceipt {
            let record = RequestRecord.events(range.map { EventIdentity(key: [$0], fingerprint: [$0]) })
            let messages = range.map { $0 % 2 == 0 ? rejected(queue) : store.message(to: queue) }
            return try store.threads.result { store.outbox.append(messages, recording: record, completion: $0) }
        }
        let first = try append(0..<2)
        let second = try append(0..<4)
        #expect(first.failed.keys.sorted() == [0] && second.failed.keys.sorted() == [2])
        #expect(second.repeated == [0, 1] && second.ids.prefix(2) == first.ids[...])
        #expect(try store.isBalanced())
    }
}

/// Messages of SDKs (`NewMessage.isFromSDK`).
@Suite(.eachEngine) struct SDKMessageTests {
    private let store: TestStore
    private let queue: UpstreamQueue

    init() throws {
        store = try TestStore()
        queue = try store.register()
    }

    /// Every other one is from an SDK.
    private func append(_ count: Int) throws -> [MessageID] {
        try store.append((0..<count).map { store.message("{\"n\":\($0)}", to: queue, isFromSDK: $0 % 2 == 1) }).ids
    }

    /// Whether exactly every other one is known to be from an SDK, as `append` has stored them.
    private func areKnown(_ ids: [MessageID]) throws -> Bool {
        try ids.indices.allSatisfy { try store.record(ids[$0])?.isFromSDK == ($0 % 2 == 1) }
    }

    @Test func blocks_ofMessagesAndReceipts_tellOne_fromThoseOfTheAPI() throws {
        let ids = try append(10)
        if store.options.engine.isBlockwise { #expect(try store.count("blocks_1") == 1) }
        #expect(try areKnown(ids))
        let claim = try store.claim(queue).messages
        #expect(claim.map(\.isFromSDK) == ids.indices.map { $0 % 2 == 1 })
        try store.deliver(claim, of: queue)
        #expect(try areKnown(ids))
        // Its receipt gets a row, and so do the others of the block.
        #expect(try store.threads.result { store.outbox.perform(.purge, on: [ids[4]], completion: $0) } == [ids[4]])
        #expect(try areKnown(Array(ids[..<4])) && store.record(ids[5])?.isFromSDK == true)
        #expect(try store.isBalanced())
    }

    /// Of a block of which some are delivered, and of rows that are delivered together, or one by one.
    @Test(arguments: [1, 3, 5, 9]) func messagesInRows_keepIt(together: Int) throws {
        let ids = try append(10)
        let claim = try store.claim(queue).messages
        try store.deliver(Array(claim[..<together]), of: queue)
        try store.fail(Array(claim[together...]), of: queue)
        #expect(try areKnown(ids))
        #expect(try store.requeue(Array(ids[together...])).count == 10 - together)
        queue.requeued(ids[0]...ids[9])
        #expect(try areKnown(ids))
        let again = try store.claim(queue).messages
        #expect(again.map(\.isFromSDK) == (together..<10).map { $0 % 2 == 1 })
        try store.reopen()
        try store.drain(store.register())
        #expect(try areKnown(ids) && store.state(ids[9]) == .delivered)
        #expect(try store.isBalanced())
    }

    @Test func callbacks_areTold() throws {
        let hooks = try store.register(PlainUpstream("hooks"))
        let told = SharedValue<[Bool]>([])
        store.outbox.setCallbacks([
            Callback(to: hooks.target, as: "thing", of: [.delivered, .failed], in: nil, includesPayload: false) {
                messages in
                told.set(told.value + messages.map(\.isFromSDK))
                return messages.map { _ in Callback.Event(Array("{}".utf8), lane: .none) }
            }
        ])
        _ = try append(4)
        let claim = try store.claim(queue).messages
        try store.deliver(Array(claim[..<2]), of: queue)
        try store.fail(Array(claim[2...]), of: queue)
        #expect(told.value == [false, true, false, true])
        #expect(try !store.claim(hooks).messages.contains(where: \.isFromSDK))
    }
}

extension StoreEngineKind {
    /// Whether several messages are stored in one row.
    fileprivate var isBlockwise: Bool { laneAdmission == .inAppend }
}
