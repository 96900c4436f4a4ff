import PosternCore
import PosternTestKit
import PosternThreads
import Testing

@testable import PosternStore

/// Random operations with restarts in between, against what has to hold whatever happens: nothing is lost or sent
/// twice, lanes keep their order, the books are balanced.
@Suite(.eachEngine) struct RandomOperationsTests {
    @Test(arguments: 0..<12)
    func mixedQueue_keepsItsPromises(seed: UInt64) throws {
        try Trial(seed: seed, laneRule: .acrossLanes).run()
    }

    @Test(arguments: 0..<12)
    func separateLanes_keepTheirPromises(seed: UInt64) throws {
        try Trial(seed: seed, laneRule: .perLane).run()
    }

    @Test func cancelledMessage_isNeverClaimed_andAClaimedOneNeverCancelled() throws {
        let store = try TestStore()
        for laneRule in [LaneRule.acrossLanes, .perLane] {
            let queue = try store.register(
                PlainUpstream(laneRule == .perLane ? "per-lane" : "across-lanes", laneRule: laneRule))
            let lane: (Int) -> Lane = { laneRule == .acrossLanes ? .none : .named("lane-\($0 % 7)") }
            let ids = try store.append((0..<2000).map { store.message(to: queue, lane: lane($0)) }).ids
            let answers = Inbox<[MessageID]>()
            let outbox = store.outbox
            let thread = try DedicatedThread(name: "cancels") {
                var random = SplitMix64(state: 7)
                for id in ids.shuffled(using: &random) {
                    outbox.cancel([id]) { answers.put((try? $0.get()) ?? []) }
                }
            }
            var delivered: Set<MessageID> = []
            while store.outbox.ledger(of: queue.number).queued > 0 {
                let claim = try store.claim(queue, most: 5)
                delivered.formUnion(claim.messages.map(\.id))
                try store.deliver(claim.messages, of: queue)
            }
            thread.join()
            let cancelled = Set(try store.threads.receive(ids.count, from: answers).joined())
            #expect(delivered.isDisjoint(with: cancelled))
            #expect(delivered.count + cancelled.count == ids.count)
        }
        #expect(try store.isBalanced())
    }
}

extension LaneRule {
    static func == (left: Self, right: Self) -> Bool {
        switch (left, right) {
        case (.acrossLanes, .acrossLanes), (.perLane, .perLane): true
        case (.acrossLanes, .perLane), (.perLane, .acrossLanes): false
        }
    }
}

private final class Trial {
    let laneRule: LaneRule
    let store: TestStore
    var queue: UpstreamQueue
    var random: SplitMix64
    var lanes: [MessageID: Lane] = [:]
    var open: [Claim] = []
    var settled: Set<MessageID> = []
    /// Delivered ids of each lane, in order; those that came back from the ended ones are not counted.
    var order: [Lane: [MessageID]] = [:]
    var cameBack: Set<MessageID> = []
    var scheduled: Set<MessageID> = []

    init(seed: UInt64, laneRule: LaneRule) throws {
        self.laneRule = laneRule
        random = SplitMix64(state: seed &+ 1)
        store = try TestStore()
        queue = try store.register(PlainUpstream(laneRule: laneRule))
    }

    func run() throws {
        for _ in 0..<400 { try step() }
        try finish()
        for (lane, ids) in order where lane != .none { #expect(ids == ids.sorted(), "\(lane)") }
        #expect(try store.isBalanced())
        let ledger = store.outbox.ledger(of: queue.number)
        #expect(ledger.accepted == lanes.count)
        #expect(ledger.queued == 0)
        #expect(try store.count("lanes") == 0)
    }

    private func chance(_ percent: Int) -> Bool { Int.random(in: 0..<100, using: &random) < percent }

    private func step() throws {
        switch Int.random(in: 0..<100, using: &random) {
        case 0..<30: try append()
        case 30..<55: try claim()
        case 55..<80: try settleOne()
        case 80..<85: try cancel()
        case 85..<88: try requeue()
        case 88..<95: store.time.advance(by: .milliseconds(Int.random(in: 1...3000, using: &random)))
        case 95..<97: try store.runMaintenance()
        case 97: queue.makeDue(at: store.time.now)
        case 98: try move()
        default: try restart()
        }
    }

    private func lane() -> Lane {
        let number = Int.random(in: 0..<6, using: &random)
        switch laneRule {
        case .acrossLanes: return number == 0 ? .none : .digest(Int64(number))
        case .perLane: return .named("lane-\(number)", group: number < 3 ? "group" : nil)
        }
    }

    private func append() throws {
        let later = chance(10) ? store.time.now + .milliseconds(Int.random(in: 1...2000, using: &random)) : nil
        let end = chance(5) ? store.time.now + .seconds(5) : nil
        let new = (0..<Int.random(in: 1...8, using: &random)).map { _ in
            store.message(
                to: queue, lane: lane(), notBefore: later, expiresAt: end, isFromSDK: chance(50),
                failure: chance(3) ? "it is not valid" : nil)
        }
        let ids = try store.append(new).ids
        for (id, message) in zip(ids, new) {
            lanes[id] = message.lane
            if message.failure != nil { settled.insert(id) }
            if later != nil { scheduled.insert(id) }
        }
    }

    private func claim() throws {
        let claim = try store.claim(queue, most: Int.random(in: 1...6, using: &random))
        if !claim.expired.isEmpty { try store.expire(claim.expired, of: queue) }
        guard !claim.messages.isEmpty else { return }
        try check(claim)
        open.append(claim.narrowed(to: claim.messages))
    }

    private func check(_ claim: Claim) throws {
        let ids = claim.messages.map(\.id)
        let underWay = open.flatMap { $0.messages }
        #expect(Set(ids).isDisjoint(with: underWay.map(\.id)))
        #expect(settled.isDisjoint(with: ids))
        #expect(ids == ids.sorted())
        for message in claim.messages {
            #expect(message.lane == lanes[message.id])
            #expect(message.lane == .none || !underWay.contains { $0.lane == message.lane })
        }
        guard case .perLane = laneRule else { return }
        #expect(Set(claim.messages.map(\.lane)).count == 1)
        if case .named(_, let group?) = claim.messages[0].lane {
            #expect(
                !underWay.contains { message in
                    if case .named(_, group) = message.lane { true } else { false }
                })
        }
    }

    private func settleOne() throws {
        guard let index = open.indices.randomElement(using: &random) else { return }
        let claim = open.remove(at: index)
        let messages = claim.messages
        let middle = (messages.count + 1) / 2
        switch Int.random(in: 0..<100, using: &random) {
        case 0..<50: try deliver(messages)
        case 50..<60:
            try store.sendLater(
                messages, of: queue,
                at: store.time.now + .milliseconds(Int.random(in: 0...2000, using: &random)), counts: chance(50))
        case 60..<70: queue.giveBack(claim, now: store.time.now)
        case 70..<80 where messages.count > 1:
            try store.settle(store.settlement(.split), of: queue)
            queue.sendAgain(Array(messages[..<middle]), from: store.time.now)
            queue.sendAgain(Array(messages[middle...]), from: store.time.now)
        case 80..<85 where messages.count > 1:
            // Only the first messages were in the request.
            queue.sendAgain(Array(messages[middle...]), from: store.time.now)
            try deliver(Array(messages[..<middle]))
        case 85..<90:
            queue.postpone(claim, until: store.time.now + .milliseconds(Int.random(in: 0...500, using: &random)))
            try store.settleDown()
        default:
            try store.fail(messages, of: queue)
            settled.formUnion(messages.map(\.id))
        }
    }

    private func deliver(_ messages: [Message]) throws {
        try store.deliver(messages, of: queue)
        for message in messages {
            #expect(settled.insert(message.id).inserted)
            let isOrdered = !cameBack.contains(message.id) && !scheduled.contains(message.id)
            if isOrdered { order[message.lane, default: []].append(message.id) }
        }
    }

    private func cancel() throws {
        guard let id = lanes.keys.sorted().randomElement(using: &random) else { return }
        let isOpen = open.contains { $0.messages.contains { $0.id == id } }
        let isCancelled = try store.cancel(id)
        if isOpen { #expect(!isCancelled && queue.isInFlight(id)) }
        if isCancelled { #expect(settled.insert(id).inserted) }
    }

    private func requeue() throws {
        let some = settled.sorted().shuffled(using: &random).prefix(3)
        let done = try store.requeue(Array(some))
        settled.subtract(done)
        cameBack.formUnion(done)
    }

    /// Another owner sends from the queue. What was claimed is void; some of it is removed before that.
    private func move() throws {
        open = []
        store.outbox.drop(queue)
        for _ in 0..<Int.random(in: 0..<4, using: &random) { if chance(50) { try append() } else { try cancel() } }
        queue = try store.outbox.adopt(queue.target)
    }

    private func restart() throws {
        open = []
        try store.reopen()
        queue = try store.register(PlainUpstream(laneRule: laneRule))
    }

    /// Delivers all remaining messages and checks that none is left.
    private func finish() throws {
        while !open.isEmpty { try settleOne() }
        for _ in 0..<5000 where store.outbox.ledger(of: queue.number).queued > 0 {
            try claim()
            while let claim = open.popLast() { try deliver(claim.messages) }
            switch store.readiness(queue) {
            case .now, .collecting: break
            case .due(let at): store.time.advance(by: max(.zero, at - store.time.now))
            case .nothing:
                guard store.outbox.ledger(of: queue.number).queued > 0 else { return }
                store.time.advance(by: .seconds(5))
                try store.runMaintenance()
                guard case .nothing = store.readiness(queue) else { break }
                #expect(store.outbox.ledger(of: queue.number).queued == 0, "messages stay behind")
                return
            }
        }
    }
}
