import CSQLite
import Foundation
import PosternCore
import PosternTestKit
import PosternThreads
import PosternUpstream
import Testing

@testable import PosternStore

/// What is erased of a person, in the rows and in the files.
@Suite(.eachEngine) struct EraseTests {
    /// What is looked for in the files.
    static let person = "person-4711-is-to-be-erased"
    static let other = "person-4712-stays"

    /// A store with an upstream `work`, whose messages are reported with their payloads to an upstream `hooks`.
    fileprivate struct Bench {
        let store: TestStore
        let work: UpstreamQueue
        let hooks: UpstreamQueue

        init(
            _ upstream: any Upstream = PlainUpstream("work"), _ change: (inout OutboxOptions) -> Void = { _ in }
        ) throws {
            store = try TestStore(change)
            work = try store.register(upstream)
            hooks = try store.register(PlainUpstream("hooks"))
            setCallbacks()
        }

        func setCallbacks() {
            let callback = Callback(
                to: hooks.target, as: "thing", of: [.delivered, .failed, .expired, .dropped],
                in: [work.upstream.name], includesPayload: true
            ) { messages in
                messages.map { message in
                    let payload = message.payload.map { String(decoding: $0, as: UTF8.self) } ?? "null"
                    let text = #"{"id":"\#(message.id)","key":"\#(message.key ?? "")","payload":\#(payload)}"#
                    return Callback.Event(Array(text.utf8), lane: .none)
                }
            }
            store.outbox.setCallbacks([callback])
        }

        func payload(of person: String, padding: Int = 0) -> String {
            #"{"user":{"id":"\#(person)"},"text":"\#(String(repeating: "x", count: padding))"}"#
        }

        /// The message, and its id.
        @discardableResult func append(_ person: String, padding: Int = 0, lane: Lane = .none) throws -> MessageID {
            try store.append(payload(of: person, padding: padding), to: work, lane: lane, key: person)
        }

        /// One message of the person among those of another, in a block.
        func appendBlock() throws -> MessageID {
            let people = (0..<10).map { $0 == 4 ? EraseTests.person : EraseTests.other }
            return try store.append(people.map { store.message(payload(of: $0), to: work, key: $0) }).ids[4]
        }

        func end(_ id: MessageID, as state: MessageState) throws {
            let (target, now) = (work.target, store.time.now)
            let person = try store.record(id)?.key ?? ""
            let error = AttemptError(.refused, status: 422, detail: "\(person) is unknown", at: now)
            try store.transact { transaction in
                try transaction.end(
                    id, in: target, as: state, error: error, at: now, result: Array("\"\(person)\"".utf8))
            }
        }

        /// Delivers all that can be sent.
        func deliver() throws {
            let claim = try store.claim(work)
            guard !claim.messages.isEmpty else { return }
            var settlement = store.settlement(.delivered)
            settlement.delivered = claim.messages
            // All messages of a batch keep the response to it.
            let isAlone = claim.messages.allSatisfy { $0.key == EraseTests.person }
            settlement.result = isAlone ? Array("\"\(EraseTests.person)\"".utf8) : nil
            if claim.messages.contains(where: { $0.key == EraseTests.person }) {
                settlement.detail = "of \(EraseTests.person)"
            }
            try store.openAttempt(settlement.batch, carrying: claim.messages.map(\.id), of: work)
            try store.settle(settlement, of: work)
            work.release(claim.messages)
        }

        func record(_ number: UInt8, of people: [String], lasting response: String = EraseTests.person) throws {
            let messages = people.map { store.message(payload(of: $0), to: work, key: $0) }
            let record = ResponseRecord(key: [number], fingerprint: [number]) { receipt in
                Array("200\n\n\(response) \(receipt.ids)".utf8)
            }
            _ = try store.threads.result { store.outbox.append(messages, recording: .response(record), completion: $0) }
        }

        func erase(
            _ selection: EraseRequest.Selection = .key(EraseTests.person),
            _ change: (inout EraseRequest) -> Void = { _ in }
        ) throws -> EraseCounts {
            var request = EraseRequest(selection) { _ in Array("202".utf8) }
            change(&request)
            return try store.threads.result { store.outbox.erase(request, on: .test, completion: $0) }
        }

        /// What SQLite finds wrong in the file. PostgreSQL keeps its pages itself.
        func faults() throws -> Int {
            guard !store.options.engine.isPostgres else { return 0 }
            return try store.integer("SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'")
        }

        func tracesOfPerson() throws -> [String] { try traces(of: EraseTests.person) }

        /// The files, or the tables in PostgreSQL, that contain `text`.
        func traces(of text: String) throws -> [String] {
            guard case .postgres(let options) = store.options.engine else { return try store.folder.files(with: text) }
            let connection = try PostgresConnection(options)
            defer { connection.close() }
            func column(_ text: String) throws -> [String] {
                let result = try connection.execute(text)
                return (0..<result.rowCount).map { String(decoding: result.bytes($0, 0), as: UTF8.self) }
            }
            try connection.execute("SET bytea_output = 'escape'")
            return try column("SELECT tablename FROM pg_tables WHERE schemaname = '\(options.schema)'").filter {
                try column("SELECT 1 FROM \"\($0)\" AS r WHERE r::text LIKE '%\(text)%' LIMIT 1") != []
            }
        }
    }

    @Test func erasedPerson_isInNoFile_whateverBecameOfTheMessages() throws {
        let bench = try Bench()
        let store = bench.store
        // Delivered with their blocks, as rows, and long ago.
        var delivered = [try bench.append(Self.person)]
        try bench.deliver()
        delivered += [try bench.appendBlock(), try bench.append(Self.person, padding: 50_000)]
        try bench.deliver()
        var ended: [MessageID] = []
        for state in [MessageState.failed, .cancelled, .dropped, .expired] {
            ended += [try bench.append(Self.person, padding: 20_000), try bench.appendBlock()]
            for id in ended.suffix(2) { try bench.end(id, as: state) }
        }
        let queued = try [bench.append(Self.person, padding: 9_000), bench.appendBlock()]
        try bench.record(1, of: [Self.person])
        _ = try store.threads.result { completion in
            store.outbox.append(
                [store.message(bench.payload(of: Self.person), to: bench.work, key: Self.person)],
                recording: .events([EventIdentity(key: [7], fingerprint: [7])]), completion: completion)
        }
        #expect(try !bench.tracesOfPerson().isEmpty)

        let counts = try bench.erase()
        #expect(try bench.tracesOfPerson() == [])
        #expect(
            counts.messages == [.queued: 4, .delivered: 3, .failed: 2, .cancelled: 2, .dropped: 2, .expired: 2])
        #expect(counts.callbacks == 3 + 6 && counts.idempotencyRecords == 1 && counts.events == 1)
        #expect(try queued.map { try store.state($0) } == [.cancelled, .cancelled])
        #expect(try (delivered + ended).allSatisfy { try store.record($0)?.key == nil })
        #expect(try ended.allSatisfy { try store.record($0)?.isErased == true })
        #expect(try store.isBalanced())
        #expect(try bench.faults() == 0)
        // The others are as they were.
        #expect(try store.drain(bench.work).count == 5 * 9)
        #expect(try !bench.traces(of: Self.other).isEmpty)
        #expect(counts.isKeptByDatabase == store.options.engine.isPostgres)
    }

    @Test func erasedPerson_isInNoFile_afterMuchHasMovedInThem() throws {
        for seed in 1...3 {
            var random = SplitMix64(state: UInt64(seed))
            let bench = try Bench()
            var ids: [MessageID] = []
            for _ in 0..<150 {
                switch Int.random(in: 0..<10, using: &random) {
                case 0..<5:
                    let person = Bool.random(using: &random) ? Self.person : Self.other
                    ids.append(try bench.append(person, padding: Int.random(in: 0..<25_000, using: &random)))
                case 5: ids.append(try bench.appendBlock())
                case 6: try bench.deliver()
                case 7: if let id = ids.randomElement(using: &random) { try bench.end(id, as: .failed) }
                case 8: _ = try bench.store.requeue(ids)
                default: try bench.store.drain(bench.hooks)
                }
            }
            _ = try bench.erase()
            #expect(try bench.tracesOfPerson() == [], "seed \(seed)")
            #expect(try bench.store.isBalanced())
            #expect(try bench.faults() == 0)
        }
    }

    @Test func preview_onlyCounts() throws {
        let bench = try Bench()
        try bench.end(bench.append(Self.person), as: .failed)
        let queued = try bench.append(Self.person)
        let counts = try bench.erase { $0.isDryRun = true }
        #expect(counts.messages == [.queued: 1, .failed: 1] && counts.callbacks == 1)
        #expect(try bench.store.record(queued)?.key == Self.person)
        #expect(try !bench.tracesOfPerson().isEmpty)
    }

    @Test func onlyTheUpstreamsOfTheRequest_areConcerned() throws {
        let bench = try Bench()
        let id = try bench.append(Self.person)
        let hooks = try #require(UpstreamName("hooks"))
        #expect(try bench.erase { $0.upstream = hooks }.messages == [:])
        #expect(try bench.erase { $0.visible = [hooks] }.messages == [:])
        #expect(try bench.store.state(id) == .queued)
        #expect(try bench.erase { $0.upstream = UpstreamName("work") }.messages == [.queued: 1])
    }

    @Test func payload_leadsToDeliveredMessages_throughTheirCallbacks() throws {
        let bench = try Bench()
        let delivered = try bench.append(Self.person)
        let others = try bench.append(Self.other)
        try bench.deliver()
        let counts = try bench.erase(
            .payload { payload, ofEvent in
                let text = String(decoding: payload, as: UTF8.self)
                return text.contains(Self.person) && text.contains("payload") == ofEvent
            })
        #expect(counts.messages == [.delivered: 1] && counts.callbacks == 1)
        #expect(try bench.store.record(delivered)?.key == nil)
        #expect(try bench.store.record(others)?.key == Self.other)
        #expect(try bench.tracesOfPerson() == [])
    }

    @Test(arguments: [true, false])
    func payloadThatIsKept_isErased_andThoseOfItsBlockStay(isByKey: Bool) throws {
        let bench = try Bench { $0.deliveredPayloadRetention = .seconds(1000) }
        bench.store.outbox.setCallbacks([])
        let inBlock = try bench.appendBlock()
        let alone = try bench.append(Self.person)
        try bench.deliver()
        #expect(try bench.store.record(inBlock)?.payload != nil)
        let byValue = EraseRequest.Selection.payload { payload, ofEvent in
            !ofEvent && String(decoding: payload, as: UTF8.self).contains(Self.person)
        }
        let counts = try bench.erase(isByKey ? .key(Self.person) : byValue)
        #expect(counts.messages == [.delivered: 2])
        #expect(try [inBlock, alone].allSatisfy { try bench.store.record($0)?.payload == nil })
        #expect(try bench.tracesOfPerson() == [])
        let others = MessageFilter(key: Self.other)
        let kept = try bench.store.outbox.messages(others, after: nil, limit: 100, payload: true)
        #expect(kept.messages.count == 9 && kept.messages.allSatisfy { $0.payload != nil })
        #expect(try bench.faults() == 0)
    }

    @Test func messageThatIsBeingSent_isErasedOnceItHasSettled() throws {
        let bench = try Bench()
        let id = try bench.append(Self.person)
        let claim = try bench.store.claim(bench.work)
        let result = SharedValue<EraseCounts?>(nil)
        bench.store.outbox.erase(EraseRequest(.key(Self.person)) { $0 }, on: .test) { result.set(try? $0.get()) }
        try bench.store.settleDown()
        #expect(try bench.store.record(id)?.key == Self.person)
        #expect(result.value == nil)
        try bench.store.deliver(claim.messages, of: bench.work)
        #expect(eventually { result.value != nil })
        #expect(result.value?.callbacks == 1, "the report of the delivery")
        #expect(try bench.tracesOfPerson() == [])
        #expect(try bench.store.state(id) == .delivered)
    }

    @Test func copyThatAReplayQueuesMeanwhile_isErased() throws {
        let bench = try Bench { $0.deliveredPayloadRetention = .seconds(1000) }
        bench.store.outbox.setCallbacks([])
        let original = try bench.append(Self.person)
        try bench.deliver()
        let replay = Replay(
            id: "r", Replay.Request(upstream: bench.work.target.name, to: bench.work.target.name), by: nil,
            newest: original, at: bench.store.time.now)
        _ = try bench.store.threads.result { bench.store.outbox.begin(replay, completion: $0) }
        // The erasure waits for another message of the person.
        try bench.append(Self.person)
        let claim = try bench.store.claim(bench.work)
        let result = SharedValue<EraseCounts?>(nil)
        bench.store.outbox.erase(EraseRequest(.key(Self.person)) { $0 }, on: .test) { result.set(try? $0.get()) }
        try bench.store.settleDown()
        var step = Replay.Step(from: replay.cursor, next: nil)
        let text = bench.payload(of: Self.person)
        step.messages = [(original, bench.store.message(text, to: bench.work, key: Self.person))]
        let made = step
        let done = try bench.store.threads.result {
            bench.store.outbox.advance("r", made, into: bench.work.target, completion: $0)
        }
        #expect(done?.replay.done == 1)
        try bench.store.deliver(claim.messages, of: bench.work)
        #expect(eventually { result.value != nil })
        #expect(result.value?.messages == [.delivered: 1, .queued: 2])
        #expect(try bench.store.claim(bench.work).messages.isEmpty)
        #expect(try bench.tracesOfPerson() == [])
    }

    @Test func erasedMessage_isNotQueuedAgain() throws {
        let bench = try Bench()
        let id = try bench.append(Self.person)
        try bench.end(id, as: .failed)
        _ = try bench.erase()
        #expect(try bench.store.requeue([id]) == [])
        #expect(MessageAction.retry.refusal(of: try bench.store.record(id)) == "the message was erased")
        #expect(try bench.store.record(id)?.lastError?.detail == "erased")
    }

    @Test func recordOfARequestWithOthers_isStillKnown_withoutWhatItQuoted() throws {
        let bench = try Bench()
        try bench.record(1, of: [Self.person, Self.other])
        try bench.record(2, of: [Self.other], lasting: "kept")
        #expect(try bench.erase().idempotencyRecords == 1)
        #expect(try bench.store.outbox.storedResponse([1])?.bytes == Array("202".utf8))
        #expect(try bench.store.outbox.storedResponse([2])?.bytes.starts(with: Array("200\n\nkept".utf8)) == true)
        #expect(try bench.tracesOfPerson() == [])
    }

    @Test func lane_isErased_whereItsNameIsThePerson() throws {
        let bench = try Bench(PlainUpstream("work", laneRule: .perLane))
        for state in [MessageState.failed, .cancelled] {
            try bench.end(
                bench.append(Self.person, lane: .named("\(Self.person)/phone", group: Self.person)), as: state)
        }
        try bench.append(Self.person, lane: .named("\(Self.person)/phone", group: Self.person))
        #expect(try bench.erase().messages == [.queued: 1, .failed: 1, .cancelled: 1])
        #expect(try bench.tracesOfPerson() == [])
    }
}

/// Only a file is overwritten, and can be copied.
@Suite struct EraseInFileTests {
    fileprivate typealias Bench = EraseTests.Bench
    private static let (person, other) = (EraseTests.person, EraseTests.other)

    @Test func read_thatNeedsTheFormerContent_isWaitedFor() throws {
        let bench = try Bench()
        try bench.end(bench.append(Self.person, padding: 20_000), as: .failed)
        let result = SharedValue<EraseCounts?>(nil)
        let view = try StoreView(path: bench.store.path)
        try view.read { reader in
            _ = try reader.message(MessageID(rawValue: 1), payload: false)
            let former = try bench.store.count("ended_1 WHERE key IS NOT NULL")
            #expect(former == 1)
            bench.store.outbox.erase(EraseRequest(.key(Self.person)) { $0 }, on: .test) { result.set(try? $0.get()) }
            #expect(try eventually { try bench.store.count("ended_1 WHERE key IS NOT NULL") == 0 })
            for _ in 0..<20 { try bench.store.settleDown() }
            #expect(result.value == nil)
        }
        #expect(eventually { result.value != nil })
        #expect(try bench.tracesOfPerson() == [])
    }

    @Test func erasedMessages_surviveAKill_andARestartReadsThem() throws {
        let bench = try Bench()
        try bench.end(bench.append(Self.person), as: .failed)
        let id = try bench.append(Self.person)
        try bench.append(Self.other)
        _ = try bench.erase()
        let copies = ScratchFolder()
        try bench.store.copyFiles(to: copies.file("killed.sqlite"))
        let outbox = try TestStore.open(OutboxOptions(path: copies.file("killed.sqlite")))
        defer { outbox.close() }
        #expect(try outbox.message(id)?.state == .cancelled)
        #expect(try outbox.audit().isBalanced)
        #expect(try copies.files(with: Self.person) == [])
        #expect(outbox.ledgers.values.reduce(0) { $0 + $1.queued } == 1, "the other one")
    }
}

extension EraseExecutor {
    /// Works on the thread that calls, and waits for a moment on another one.
    static let test = EraseExecutor(
        run: { $0() },
        later: { _, work in DispatchQueue.global().asyncAfter(deadline: .now() + .milliseconds(5), execute: work) },
        isStopping: { false })
}
