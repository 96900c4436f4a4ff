import Logging
import PosternCore
import PosternMetrics
import PosternProcess
import PosternTestKit
import PosternThreads
import Testing

@testable import PosternCommands
@testable import PosternStore

/// On the store itself; through a gateway they are tested with the built binary.
@Suite struct OutboxEditorTests {
    private let folder = ScratchFolder()
    private var index: StoreLocation { StoreLocation(path: folder.file("store.sqlite")) }
    private var editor: OutboxEditor { OutboxEditor(index) }
    private static let noon = Timestamp(milliseconds: 1_769_860_800_000)

    private func open() throws -> PosternStore.Outbox {
        try PosternStore.Outbox(
            // Noon is long ago: no message may be removed because of its age.
            OutboxOptions.with {
                ($0.path, $0.deliveredRetention, $0.failedRetention) = (
                    index.path, .seconds(1 << 32), .seconds(1 << 32)
                )
            },
            time: SystemTime(),
            threads: DedicatedThreads(), metrics: Metrics(),
            logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
    }

    /// Accepts messages for the upstream `plain`, in lanes of their own, and ends them in these states; closed again.
    private func makeStore(_ states: [MessageState], laneRule: LaneRule = .acrossLanes) async throws -> [MessageID] {
        let outbox = try open()
        defer { outbox.close() }
        let queue = try outbox.register(PlainUpstream(laneRule: laneRule), type: "plain", cap: QueueCap())
        let messages = states.indices.map { index in
            NewMessage(
                queue: queue, kind: "thing", lane: laneRule == .acrossLanes ? .digest(7) : .named("lane \(index)"),
                acceptedAt: Self.noon, bytes: Array("{\"place\":\(index)}".utf8))
        }
        let receipt = try await withCheckedContinuation { continuation in
            outbox.append(messages) { continuation.resume(returning: $0) }
        }.get()
        let batch = zip(messages, receipt.ids).map { message, id in
            Message(id: id, kind: message.kind, acceptedAt: message.acceptedAt, payload: message.bytes)
        }
        try await withCheckedContinuation { continuation in
            outbox.writer.change { transaction in
                for (message, state) in zip(batch, states) {
                    switch state {
                    case .queued: continue
                    case .delivered:
                        var settlement = Settlement(batch: outbox.nextBatch(), outcome: .delivered, endedAt: Self.noon)
                        settlement.delivered = [message]
                        try transaction.settle(settlement, of: queue)
                    case .failed, .cancelled, .dropped, .expired:
                        try transaction.end(message.id, in: queue, as: state, error: nil, at: Self.noon)
                    }
                }
            } completion: {
                continuation.resume(returning: $0)
            }
        }.get()
        return receipt.ids
    }

    private func states(of ids: [MessageID]) throws -> [MessageState?] {
        let view = try StoreView(path: index.path)
        return try ids.map { try view.message($0, payload: false)?.state }
    }

    private func expectBalance() throws {
        let audit = try StoreView(path: index.path).audit()
        #expect(audit.isBalanced, "\(audit.accounts.flatMap(\.findings))")
    }

    // MARK: retry

    @Test(arguments: [true, false])
    func deadLetters_areQueuedAgain_theRestRefused(hasLanes: Bool) async throws {
        let ids = try await makeStore(
            [.failed, .dropped, .cancelled, .delivered, .queued], laneRule: hasLanes ? .perLane : .acrossLanes)
        let unknown = MessageID(rawValue: 257)
        let edit = try await editor.edit(.retry, .ids(ids + [unknown]))
        #expect(edit.count == 2)
        #expect(
            edit.refused.map(\.reason) == [
                "the message is cancelled; only failed or dropped ones can be sent again",
                "the message is delivered; only failed or dropped ones can be sent again",
                "the message is queued; only failed or dropped ones can be sent again",
                "there is no such message",
            ])
        #expect(edit.exitCode == 1)
        #expect(try states(of: ids) == [.queued, .queued, .cancelled, .delivered, .queued])
        try expectBalance()
    }

    @Test func allDeadLettersOfAnUpstream_areQueuedAgain_beyondOnePage() async throws {
        let ids = try await makeStore(Array(repeating: .failed, count: 1203) + [.dropped])
        let plain = try #require(UpstreamName("plain"))
        let edit = try await editor.edit(.retry, .all(MessageFilter(upstream: plain, state: .failed)))
        #expect(edit == OutboxEditResult(.retry, count: 1203))
        #expect(edit.text == "1203 messages queued again; sent when the gateway runs.")
        #expect(try states(of: [ids[0], ids[1202], ids[1203]]) == [.queued, .queued, .dropped])
        try expectBalance()
    }

    @Test func unknownUpstream_isRefused_withThoseThereAre() async throws {
        _ = try await makeStore([.failed])
        let other = try #require(UpstreamName("other"))
        let failure = await #expect(throws: CommandFailure.self) {
            try await editor.edit(.retry, .all(MessageFilter(upstream: other, state: .failed)))
        }
        #expect(failure == CommandFailure(1, "The store has no upstream other; it has: plain."))
    }

    // MARK: erase

    @Test func messagesWithTheValue_areErased_andAPreviewCountsThem() async throws {
        let ids = try await makeStore([.queued, .failed])
        func erasure(_ value: String, isPreview: Bool) async throws -> OutboxErasure.Result {
            try await OutboxErasure(
                upstream: nil, key: nil, pointer: "/place", value: value, isNumber: true, isPreview: isPreview
            ).run(on: index)
        }
        let preview = try await erasure("1", isPreview: true)
        #expect(preview.text == "1 failed\nNothing was changed. Add --yes to erase them.")
        #expect(try await erasure("1", isPreview: false).text == "1 failed\nErased.")
        #expect(try await erasure("7", isPreview: false).text == "nothing\nErased.")
        #expect(try await erasure("0", isPreview: false).text == "1 queued\nErased.")
        #expect(try states(of: ids) == [.cancelled, .failed])
        #expect(try await editor.edit(.retry, .ids([ids[1]])).refused.map(\.reason) == ["the message was erased"])
        #expect(try folder.files(with: "place") == [])
        try expectBalance()
        await #expect(throws: CommandFailure.self) { try await erasure("x", isPreview: true) }
    }

    // MARK: cancel

    @Test(arguments: [true, false])
    func queuedMessage_isCancelled_aSettledOneRefused(hasLanes: Bool) async throws {
        let ids = try await makeStore([.queued, .failed], laneRule: hasLanes ? .perLane : .acrossLanes)
        let edit = try await editor.edit(.cancel, .ids(ids))
        #expect(edit.count == 1)
        #expect(edit.refused == [.init(ids[1], "the message is failed; only a queued one can be cancelled")])
        #expect(try states(of: ids) == [.cancelled, .failed])
        try expectBalance()
    }

    @Test(arguments: [true, false])
    func backlogOfAnUpstream_isCounted_thenCancelled_beyondOnePage(hasLanes: Bool) async throws {
        let ids = try await makeStore(
            Array(repeating: .queued, count: 1203) + [.failed], laneRule: hasLanes ? .perLane : .acrossLanes)
        let plain = try #require(UpstreamName("plain"))
        let filter = MessageFilter(upstream: plain, state: .queued)
        let preview = try await editor.edit(.cancel, .all(filter), isPreview: true)
        #expect(preview.text == "1203 messages would be cancelled; nothing was changed. Add --yes to do it.")
        #expect(preview.json == #"{"cancelled":1203,"preview":true,"refused":[]}"#)
        #expect(try states(of: [ids[0]]) == [.queued])
        #expect(
            try await editor.edit(.cancel, .all(filter), isPreview: false)
                == OutboxEditResult(.cancel, count: 1203))
        #expect(try states(of: [ids[0], ids[1202], ids[1203]]) == [.cancelled, .cancelled, .failed])
        try expectBalance()
    }

    @Test func backlogOfOneKind_isCancelledAlone() async throws {
        _ = try await makeStore([.queued])
        let plain = try #require(UpstreamName("plain"))
        let filter = MessageFilter(upstream: plain, kind: "other", state: .queued)
        #expect(try await editor.edit(.cancel, .all(filter), isPreview: false).count == 0)
    }

    // MARK: purge

    private func purge(
        _ state: MessageState, settledBefore: Timestamp? = nil, isPreview: Bool = false
    ) async throws -> OutboxEditResult {
        var filter = MessageFilter(upstream: UpstreamName("plain"), state: state)
        filter.settledBefore = settledBefore
        return try await editor.edit(.purge, .all(filter), isPreview: isPreview)
    }

    @Test func purge_isPreviewed() async throws {
        let ids = try await makeStore([.failed, .failed, .delivered])
        #expect(try await purge(.failed, isPreview: true).count == 2)
        #expect(try await purge(.failed, settledBefore: Self.noon, isPreview: true).count == 0)
        let preview = try await purge(.failed, settledBefore: Self.noon + .milliseconds(1), isPreview: true)
        #expect(preview.text == "2 messages would be removed; nothing was changed. Add --yes to do it.")
        #expect(try states(of: ids) == [.failed, .failed, .delivered])
    }

    @Test(arguments: [MessageState.delivered, .failed, .cancelled, .dropped, .expired])
    func purge_removesOneState_andTheBooksAgree(state: MessageState) async throws {
        let all = MessageState.allCases + MessageState.allCases
        let ids = try await makeStore(all)
        #expect(try await purge(state).text == "2 messages removed.")
        #expect(try states(of: ids) == all.map { $0 == state ? nil : $0 })
        try expectBalance()
    }

    @Test func purge_sparesWhatWasSettledLater() async throws {
        let ids = try await makeStore([.failed, .failed])
        #expect(try await purge(.failed, settledBefore: Self.noon).count == 0)
        #expect(try await purge(.failed, settledBefore: Self.noon + .milliseconds(1)).count == 2)
        #expect(try states(of: ids) == [nil, nil])
        try expectBalance()
    }

    @Test func purge_continues_beyondOnePage() async throws {
        _ = try await makeStore(Array(repeating: .failed, count: 1203))
        #expect(try await purge(.failed).count == 1203)
        try expectBalance()
    }

    @Test func purge_asksForTheGateway_with75_whileAnotherProcessHoldsTheStore() async throws {
        _ = try await makeStore([.failed])
        let outbox = try open()
        defer { outbox.close() }
        let failure = await #expect(throws: CommandFailure.self) { try await purge(.failed) }
        #expect(failure?.exitCode == 75)
        #expect(failure?.description.hasSuffix("Specify its address with --url.") == true)
    }

    // MARK: Missing stores

    @Test func missingStore_isRefused_with73_andNotMade() async throws {
        let failure = await #expect(throws: CommandFailure.self) {
            try await editor.edit(.cancel, .ids([MessageID(rawValue: 257)]))
        }
        #expect(failure?.exitCode == 73)
        #expect(throws: CommandFailure.self) { try OutboxInspection(index, now: Self.noon) }
    }

    @Test(arguments: ["nonsense", "00697znkr0001", "", "\u{1b}[2J"])
    func unknownMessage_isNotShown_with1(id: String) async throws {
        _ = try await makeStore([.queued])
        let inspection = try OutboxInspection(index, now: Self.noon)
        let failure = #expect(throws: CommandFailure.self) {
            try inspection.show(id, payload: false, asJSON: false)
        }
        #expect(failure?.exitCode == 1)
        #expect(failure?.description.hasPrefix("There is no message \(id.printable()): ") == true)
    }

    @Test func heldStore_withoutAnAddress_asksForOne_with75() async throws {
        let ids = try await makeStore([.queued])
        let outbox = try open()
        defer { outbox.close() }
        let failure = await #expect(throws: CommandFailure.self) { try await editor.edit(.cancel, .ids(ids)) }
        #expect(failure?.exitCode == 75)
        #expect(failure?.description.hasSuffix("Specify its address with --url.") == true)
    }
}
