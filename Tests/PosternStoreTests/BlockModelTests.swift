import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternStore

/// A store with blocks and one in which each message has a row get the same random operations, and are reopened after each
/// step. What they list, count and send is the same.
@Suite struct BlockModelTests {
    @Test(arguments: 0..<16)
    func blocks_changeNothing_thatIsSeenFromOutside(seed: UInt64) throws {
        try Comparison(seed: seed).run()
    }
}

private final class Comparison {
    private var random: SplitMix64
    /// With blocks, and without.
    private let stores: [TestStore]
    private var queues: [UpstreamQueue] = []
    private var ids: [MessageID] = []
    private let limits = BatchLimits(maxMessages: 40, maxBytes: 30_000, overhead: 2)
    private let cap: QueueCap
    /// The greatest number of blocks that there were, of messages and of receipts.
    private var most = (blocks: 0, receipts: 0)

    init(seed: UInt64) throws {
        random = SplitMix64(state: seed &+ 100)
        let keepsReceipts = seed % 4 != 3
        cap = QueueCap.with {
            $0.maxMessages = seed % 2 == 0 ? 0 : 250
            $0.whenFull = .dropOldest
        }
        stores = try [true, false].map { storesBlocks in
            try TestStore {
                $0.storesBlocks = storesBlocks
                $0.deliveredRetention = keepsReceipts ? .seconds(40) : .zero
                $0.failedRetention = .seconds(60)
            }
        }
        try register()
    }

    private func register() throws {
        queues = try stores.map { try $0.register(PlainUpstream(kinds: ["thing", "other"]), cap: cap) }
        for queue in queues { queue.target.collect(upTo: limits, for: .zero, expireAfter: .seconds(30)) }
    }

    func run() throws {
        for _ in 0..<40 {
            for _ in 0..<Int.random(in: 1...6, using: &random) { try operate() }
            try compare()
            try each { try $0.reopen() }
            try register()
            try compare()
        }
        #expect(most.blocks > 1)
        #expect(most.receipts > 1 || stores[0].options.deliveredRetention == .zero)
        try finish()
    }

    private func each(_ body: (TestStore) throws -> Void) throws { for store in stores { try body(store) } }

    /// The same of both stores.
    private func both<T: Equatable>(
        _ what: String, _ location: SourceLocation = #_sourceLocation, _ body: (TestStore, UpstreamQueue) throws -> T
    ) throws -> T {
        let found = try zip(stores, queues).map(body)
        try #require(found[0] == found[1], "\(what)", sourceLocation: location)
        return found[0]
    }

    private func chance(_ percent: Int) -> Bool { Int.random(in: 0..<100, using: &random) < percent }

    private func operate() throws {
        switch Int.random(in: 0..<100, using: &random) {
        case 0..<30: try append()
        case 30..<75: try deliver()
        case 75..<81: try cancel()
        case 81..<86: try requeue()
        case 86..<90: try purge()
        default: try pass(.milliseconds(Int.random(in: 1...8000, using: &random)))
        }
    }

    private func append() throws {
        let plan = (0..<Int.random(in: [1...3, 4...40, 4...90][Int.random(in: 0..<3, using: &random)], using: &random))
            .map { _ in
                (
                    size: chance(3) ? 20_000 : Int.random(in: 0...400, using: &random),
                    lane: Int64.random(in: -20...4, using: &random),
                    key: chance(30) ? "key-\(Int.random(in: 0..<50, using: &random))" : nil, later: chance(1),
                    ends: chance(1),
                    kind: chance(20), isFromSDK: chance(30), fails: chance(2)
                )
            }
        ids += try both("ids") { store, queue in
            let receipt = try store.append(
                plan.map { message in
                    NewMessage(
                        queue: queue.target, kind: message.kind ? "other" : "thing",
                        lane: message.lane <= 0 ? .none : .digest(message.lane << 40), key: message.key,
                        acceptedAt: store.time.now, notBefore: message.later ? store.time.now + .seconds(3) : nil,
                        expiresAt: message.ends ? store.time.now + .seconds(9) : nil,
                        bytes: [UInt8](repeating: UInt8(message.size % 251), count: message.size),
                        isFromSDK: message.isFromSDK, failure: message.fails ? "it is not valid" : nil)
                })
            try #require(Set(receipt.failed.keys) == Set(plan.indices.filter { plan[$0].fails }))
            return Appended(ids: receipt.ids, evicted: receipt.evicted)
        }.ids
    }

    private struct Appended: Equatable {
        let ids: [MessageID]
        let evicted: [MessageID]
    }

    /// Some claims at a time, settled in another order. A claim ends before a block that it cannot take whole, so that only
    /// one of the stores is asked for the next messages, and the other one has to have the same.
    private func deliver() throws {
        var claims: [Claim] = []
        for _ in 0..<Int.random(in: 1...3, using: &random) {
            var limits = limits
            if chance(50) { limits.maxMessages = Int.random(in: 1...40, using: &random) }
            let claim = try queues[0].claim(limits, now: stores[0].time.now, oldest: nil)
            if !claim.messages.isEmpty || !claim.expired.isEmpty { claims.append(claim) }
        }
        for claim in claims.shuffled(using: &random) {
            for message in claim.messages {
                try #require(queues[1].read { try $0.row(message.id)?.message } == message)
            }
            let count = claim.messages.count
            // Most are delivered whole; of others, any part is.
            let isDelivered = chance(60) ? [Bool](repeating: true, count: count) : (0..<count).map { _ in chance(70) }
            let delivered = zip(claim.messages, isDelivered).filter(\.1).map(\.0)
            let others = zip(claim.messages, isDelivered).filter { !$0.1 }.map(\.0)
            let way = Int.random(in: 0..<4, using: &random)
            let isShuffled = chance(20)
            for (store, queue) in zip(stores, queues) {
                if !claim.expired.isEmpty { try store.expire(claim.expired, of: queue) }
                guard count > 0 else { continue }
                try settle(isShuffled ? delivered.reversed() : delivered, others, way, in: store, of: queue)
            }
        }
    }

    private func settle(
        _ delivered: [Message], _ others: [Message], _ way: Int, in store: TestStore, of queue: UpstreamQueue
    ) throws {
        var settlement = store.settlement(.sorted)
        settlement.delivered = delivered
        settlement.result = way == 0 ? Array("{}".utf8) : nil
        let later = store.time.now + .seconds(2)
        if !others.isEmpty {
            switch way {
            case 0: settlement.ended = others.map { .init($0, as: .failed, error: store.error(.refused)) }
            case 1: settlement.waiting = .init(others, nextAttemptAt: later, counts: true, error: store.error(.failing))
            case 2: settlement.possiblyArrived = others.map(\.id)
            default: settlement.progressed = others.prefix(1).map { ($0, [1, 2]) }
            }
        }
        try store.openAttempt(settlement.batch, carrying: (delivered + others).map(\.id).sorted(), of: queue)
        try store.settle(settlement, of: queue)
        queue.release(way == 0 ? delivered + others : delivered)
        if way != 0, !others.isEmpty { queue.sendAgain(others, from: way == 1 ? later : store.time.now) }
    }

    private func cancel() throws {
        guard let id = ids.randomElement(using: &random) else { return }
        _ = try both("cancelled") { store, _ in try store.cancel(id) }
    }

    private func requeue() throws {
        let some = Array(ids.shuffled(using: &random).prefix(20))
        _ = try both("queued again") { store, _ in try store.requeue(some) }
    }

    private func purge() throws {
        guard let id = ids.randomElement(using: &random) else { return }
        try each { store in try store.transact { _ = try $0.purge(id, in: nil) } }
    }

    private func pass(_ duration: Duration) throws {
        try each { store in
            store.time.advance(by: duration)
            try store.runMaintenance()
        }
    }

    // MARK: Comparing

    private func compare() throws {
        try each { store in
            let isBalanced = try store.isBalanced()
            try #require(isBalanced)
        }
        most.blocks = max(most.blocks, try stores[0].count("blocks_1"))
        most.receipts = max(most.receipts, try stores[0].count("receipts_1"))
        #expect(try stores[1].count("blocks_1") + stores[1].count("receipts_1") == 0)
        _ = try both("ledger") { store, queue in store.outbox.ledger(of: queue.number) }
        _ = try both("oldest") { store, queue in try store.outbox.oldestQueued(of: queue.number) }
        let key = "key-\(Int.random(in: 0..<50, using: &random))"
        let lane = Int64.random(in: 1...4, using: &random) << 40
        let id = ids.randomElement(using: &random)
        let order = MessageOrder.allCases.randomElement(using: &random) ?? .oldest
        let state = [MessageState.queued, .delivered, .failed].randomElement(using: &random)
        let time = stores[0].time.now - .seconds(65)
        _ = try both("position") { store, queue in try id.map { try store.outbox.queued(of: queue.number, through: $0) }
        }
        for (filter, order, limit) in [
            (MessageFilter(), MessageOrder.oldest, 10_000), (MessageFilter(), .newest, 10_000),
            (MessageFilter(state: state), order, 9), (MessageFilter(key: key), order, 100),
            (MessageFilter(kind: "other"), order, 11), (.with { $0.lane = Lane.text(ofDigest: lane) }, order, 100),
            (.with { $0.createdAfter = time }, order, 10_000), (.with { $0.createdBefore = time }, order, 50),
        ] {
            let start = chance(30) ? id : nil
            _ = try both("list \(filter)") { store, _ in
                let page = try store.outbox.readMessages {
                    try $0.messages(filter, order: order, after: start, limit: limit, payload: true)
                }
                return Page(messages: page.messages, next: page.next)
            }
        }
        _ = try both("message") { store, _ in try id.flatMap { try store.outbox.message($0, payload: true) } }
    }

    private struct Page: Equatable {
        let messages: [MessageRecord]
        let next: MessageID?
    }

    private func finish() throws {
        for _ in 0..<400 where stores[0].outbox.ledger(of: queues[0].number).queued > 0 {
            try deliver()
            try pass(.milliseconds(200))
        }
        try compare()
        #expect(stores[0].outbox.ledger(of: queues[0].number).queued == 0)
        #expect(try StoreVerification.run(stores[0].path).isSound)
    }
}

extension MessageFilter {
    fileprivate static func with(_ change: (inout Self) -> Void) -> Self {
        var filter = Self()
        change(&filter)
        return filter
    }
}
