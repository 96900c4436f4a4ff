import Foundation
import PosternCore
import PosternTestKit
import Testing

@testable import PosternStore
@testable import PosternUpstream

/// The connection is cut, or stops to deliver, after each number of bytes of what the gateway sends and gets: what callers are
/// told is what the database has, then and later. `make postgres-faults` tries all of them, `make test` a few.
@Suite(.serialized) struct UnknownOutcomeTests {
    private let store: SharedStore
    private let proxy: PostgresProxy
    private let node: TestStore
    private let queue: UpstreamQueue

    private static let triesAll = ProcessInfo.processInfo.environment["POSTERN_ALL_OFFSETS"] != nil
    private static let few = 7

    init() throws {
        store = try SharedStore()
        proxy = try store.server.proxy()
        node = try store.open(store.options(timeout: 0.3, through: proxy))
        queue = try node.register()
        // Statements are prepared once.
        for _ in 0..<3 {
            try node.append("first", to: queue)
            try node.drain(queue)
        }
    }

    /// Calls `work` once for each number of bytes that it sends or gets, with the fault after them, and with what `prepare` has
    /// made before; at least for so many of the `last` ones.
    private func atEachByte<Made>(
        _ fault: PostgresProxy.Fault, _ direction: PostgresProxy.Direction, of member: Member? = nil, last: Int = 0,
        prepare: () throws -> Made, _ work: (Int?, Made) throws -> Void
    ) throws {
        let (node, proxy) = (member?.store ?? node, member?.proxy ?? proxy)
        let made = try prepare()
        let before = proxy.forwarded(direction)
        try work(nil, made)
        let size = proxy.forwarded(direction) - before
        try #require(size > 0)
        let step = Self.triesAll ? 1 : max(1, size / Self.few)
        for offset in Set(stride(from: 0, through: size, by: step)).union(max(0, size - last)...size).sorted() {
            let made = try prepare()
            proxy.strike(fault, after: offset, direction)
            try work(offset, made)
            proxy.heal()
            #expect(eventually { node.outbox.failure == nil }, "after \(offset) bytes")
        }
    }

    /// A node that does not own the store, with a proxy of its own.
    private struct Member {
        let owner: TestStore
        let queue: UpstreamQueue
        let store: TestStore
        let target: QueueTarget
        let proxy: PostgresProxy

        init(_ shared: SharedStore) throws {
            owner = try shared.open(shared.options("a"))
            queue = try owner.register()
            proxy = try shared.server.proxy()
            var options = shared.options("b", timeout: 0.3, through: proxy)
            options.pollSeconds = 60
            store = try shared.join(options).store
            target = try store.outbox.register(PlainUpstream(), type: "plain", cap: QueueCap())
        }

        func append(_ payload: String) throws {
            let message = NewMessage(
                queue: target, kind: target.upstream.kinds[0], acceptedAt: ManualTime().now, bytes: Array(payload.utf8))
            _ = try store.threads.result { store.outbox.append([message], completion: $0) }
        }
    }

    private func stored(_ payload: String, in store: SharedStore? = nil) throws -> Int {
        try (store ?? self.store).connect().value(
            "SELECT count(*) FROM queue_1 WHERE payload = ?", Array(payload.utf8), as: Int.self) ?? 0
    }

    @Test(arguments: [PostgresProxy.Fault.cut, .blackHole], PostgresProxy.Direction.allCases)
    func append_isToldWhatTheDatabaseHas(fault: PostgresProxy.Fault, direction: PostgresProxy.Direction) throws {
        var told: [String: Int] = [:]
        try atEachByte(fault, direction) {
        } _: { offset, _ in
            let payload = offset.map { "\($0)" } ?? "whole"
            do {
                try node.append(payload, to: queue)
                told[payload] = 1
            } catch AppendError.store(.unresolved) {
                told[payload] = nil
            } catch AppendError.store(.unavailable) {
                told[payload] = 0
            }
            if let told = told[payload] { #expect(try stored(payload) == told, "after \(payload) bytes") }
        }
        #expect(told.values.contains(1))
        // Nothing of what failed is on its way.
        proxy.cutAll()
        #expect(eventually { (try? node.append("last", to: queue)) != nil })
        for (payload, told) in told { #expect(try stored(payload) == told, "after \(payload) bytes, later") }
        #expect(try node.isBalanced())
    }

    /// The same at a node that does not own the store; and the owner delivers what it has told.
    @Test(arguments: [PostgresProxy.Fault.cut, .blackHole], PostgresProxy.Direction.allCases)
    func appendOfAnotherNode_isToldWhatTheDatabaseHas(
        fault: PostgresProxy.Fault, direction: PostgresProxy.Direction
    ) throws {
        let shared = try SharedStore()
        let member = try Member(shared)
        for _ in 0..<3 { try member.append("first") }
        var told: [String: Int] = [:]
        try atEachByte(fault, direction, of: member) {
        } _: { offset, _ in
            let payload = offset.map { "\($0)" } ?? "whole"
            do {
                try member.append(payload)
                told[payload] = 1
            } catch AppendError.store(.unresolved) {
                told[payload] = nil
            } catch AppendError.store(.unavailable) {
                told[payload] = 0
            }
            if let told = told[payload] { #expect(try stored(payload, in: shared) == told, "after \(payload) bytes") }
        }
        #expect(told.values.contains(1))
        member.proxy.cutAll()
        #expect(eventually { (try? member.append("last")) != nil })
        for (payload, told) in told {
            #expect(try stored(payload, in: shared) == told, "after \(payload) bytes, later")
        }
        let count = try shared.run("SELECT count(*) FROM queue_1")
        var delivered = 0
        #expect(
            try eventually {
                delivered += try member.owner.drain(member.queue).count
                return delivered == count
            })
        #expect(try shared.run("SELECT count(*) FROM queue_1") == 0)
        #expect(eventually { (try? member.owner.isBalanced()) == true })
    }

    /// Whatever the client was told, and whether the first one is still on its way.
    @Test(arguments: [PostgresProxy.Fault.cut, .blackHole], PostgresProxy.Direction.allCases)
    func request_isStoredOnce_ifItsClientRepeatsItsKey(
        fault: PostgresProxy.Fault, direction: PostgresProxy.Direction
    ) throws {
        try atEachByte(fault, direction) {
        } _: { offset, _ in
            let payload = offset.map { "\($0)" } ?? "whole"
            let record = ResponseRecord(key: Array(payload.utf8), fingerprint: []) { Array("\($0.ids)".utf8) }
            var responses: [[UInt8]] = []
            #expect(
                eventually {
                    do {
                        let receipt = try node.threads.result {
                            node.outbox.append(
                                [node.message(payload, to: queue)], recording: .response(record), completion: $0)
                        }
                        responses.append(Array("\(receipt.ids)".utf8))
                    } catch AppendError.recorded(let stored) {
                        responses.append(stored.bytes)
                    } catch {
                        return false
                    }
                    return responses.count == 2
                }, "after \(payload) bytes")
            let count = try stored(payload)
            #expect(Set(responses).count == 1 && count == 1, "after \(payload) bytes")
        }
        #expect(try node.isBalanced())
    }

    @Test(arguments: [PostgresProxy.Fault.cut, .blackHole], PostgresProxy.Direction.allCases)
    func settlement_isToldWhatTheDatabaseHas(fault: PostgresProxy.Fault, direction: PostgresProxy.Direction) throws {
        try atEachByte(fault, direction) {
            try node.append("message", to: queue)
            return try node.claim(queue).messages
        } _: { _, messages in
            let id = messages[0].id.rawValue
            do {
                try node.deliver(messages, of: queue)
                #expect(try store.run("SELECT count(*) FROM delivered_1 WHERE id = \(id)") == 1)
                #expect(try store.run("SELECT count(*) FROM queue_1 WHERE id = \(id)") == 0)
            } catch StoreError.unavailable {
                #expect(try store.run("SELECT count(*) FROM delivered_1 WHERE id = \(id)") == 0)
                queue.release(messages)
            }
        }
        proxy.cutAll()
        #expect(eventually { node.outbox.failure == nil && (try? node.append("last", to: queue)) != nil })
        #expect(try node.isBalanced())
    }

    /// Also if only the end of its snapshot fails, when it has found them already.
    @Test(arguments: PostgresProxy.Direction.allCases, [false, true])
    func claim_thatFails_losesNoMessage(direction: PostgresProxy.Direction, isRepeat: Bool) throws {
        let lanes = try node.register(PlainUpstream("lanes", laneRule: .perLane))
        for queue in [queue, lanes] {
            var claimed: [Message] = []
            try atEachByte(.cut, direction, last: 80) {
                if !claimed.isEmpty { try node.deliver(claimed, of: queue) }
                let lane = queue === lanes ? Lane.named("lane", group: nil) : .none
                let id = try node.append("message", to: queue, lane: lane)
                if isRepeat { queue.sendAgain(try node.claim(queue).messages, from: node.time.now) }
                return id
            } _: { offset, id in
                let isFound = eventually {
                    claimed = (try? node.claim(queue).messages) ?? []
                    return !claimed.isEmpty
                }
                #expect(isFound && claimed.map(\.id) == [id], "after \(offset ?? -1) bytes")
            }
            try node.deliver(claimed, of: queue)
        }
        #expect(try node.isBalanced())
    }

    /// Until something is known, the caller is not kept waiting; and it is told once.
    @Test func append_isAnswered_afterTheTimeLimit_andStored() throws {
        proxy.partition([.toClient])
        let start = ContinuousClock.now
        let answers = SharedValue<[Result<AppendReceipt, AppendError>]>([])
        node.outbox.append([node.message("kept", to: queue)]) { answers.set(answers.value + [$0]) }
        #expect(eventually { answers.value.count == 1 })
        #expect(ContinuousClock.now - start < .seconds(3))
        guard case .failure(.store(let error)) = answers.value[0] else { return _ = Issue.record("\(answers.value)") }
        #expect(error != .ownershipLost)
        proxy.heal()
        #expect(eventually { node.outbox.failure == nil })
        try node.append("later", to: queue)
        #expect(answers.value.count == 1)
        #expect(try node.isBalanced())
    }
}
