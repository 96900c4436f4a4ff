import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternStore

/// Messages of several callers take turns; those of a lane keep their order.
@Suite struct TurnTests {
    private let store: TestStore
    private let queue: UpstreamQueue
    private let many = Fairness.turn(ofCaller: "many")
    private let few = Fairness.turn(ofCaller: "few")

    init() throws {
        store = try TestStore()
        queue = try store.register(PlainUpstream(kinds: ["thing", "other"]))
        try store.share(queue)
    }

    @Test func callerWithOneMessage_isInTheNextRequest_howeverManyAnotherOneHasQueued() throws {
        try store.append(5000, to: queue, inTurn: many)
        let id = try store.append(1, to: queue, inTurn: few)[0]
        #expect(try store.count("blocks_1") > 100, "they still share rows")
        let claim = try store.claim(queue)
        #expect(claim.messages.contains { $0.id == id })
        #expect(claim.messages.count > 470, "the request is not smaller than without turns")
    }

    @Test func callers_haveTheMessagesOfTheirWeights() throws {
        try store.share(queue, by: ["many": 3])
        let first = Set(try store.append(4000, to: queue, inTurn: many))
        let second = Set(try store.append(4000, to: queue, inTurn: few))
        var taken = 0
        var other = 0
        for _ in 0..<4 {
            let claim = try store.claim(queue)
            taken += claim.messages.filter { first.contains($0.id) }.count
            other += claim.messages.filter { second.contains($0.id) }.count
        }
        #expect(abs(taken - 3 * other) < 3 * 2 * 31, "\(taken) and \(other)")
    }

    @Test func callerWithBlocks_hasNoMoreThanOneWithRows() throws {
        let first = Set(try store.append(4000, to: queue, inTurn: many))
        let second = Set(try (0..<400).flatMap { _ in try store.append(1, to: queue, inTurn: few) })
        let claims = try (0..<3).flatMap { _ in try store.claim(queue, most: 200).messages.map(\.id) }
        #expect(abs(claims.filter(first.contains).count - claims.filter(second.contains).count) < 2 * 31)
    }

    @Test func laneOfTwoCallers_keepsItsOrder() throws {
        try store.append(2000, to: queue, inTurn: many)
        let ids = try [many, few, many, few].map { try store.append(1, to: queue, lane: .digest(7), inTurn: $0)[0] }
        #expect(try store.drain(queue, most: 20).filter(ids.contains) == ids)
    }

    @Test func lane_keepsItsOrder_ifOnlySomeOfItWereStoredWithTurns() throws {
        try store.share(queue, isOn: false)
        var ids = try store.append(6, to: queue, lane: .digest(7))
        #expect(try store.count("blocks_1") == 1)
        try store.share(queue)
        ids += try store.append(2, to: queue, lane: .digest(7), inTurn: few)
        try store.share(queue, isOn: false)
        ids += try store.append(2, to: queue, lane: .digest(7))
        try store.share(queue)
        ids += try store.append(2, to: queue, lane: .digest(7), inTurn: many)
        #expect(try store.drain(queue, most: 1) == ids)
    }

    @Test func retriedMessage_isSentBeforeTheLaterOnesOfItsLane() throws {
        let ids = try (0..<3).map { _ in try store.append(1, to: queue, lane: .digest(7), inTurn: few)[0] }
        try store.fail(try store.claim(queue, most: 1).messages, of: queue)
        try store.append(100, to: queue, inTurn: many)
        #expect(try store.requeue([ids[0]]) == [ids[0]])
        #expect(try store.drain(queue, most: 4).filter(ids.contains) == ids)
    }

    @Test func turns_areKnown_afterARestart() throws {
        try store.append(1000, to: queue, inTurn: many)
        let id = try store.append(1, to: queue, inTurn: few)[0]
        try store.reopen()
        let queue = try store.register(PlainUpstream(kinds: ["thing", "other"]))
        try store.share(queue)
        let claim = try store.claim(queue, most: 40)
        #expect(claim.messages.contains { $0.id == id })
        #expect(try store.drain(queue).count == 1001 - claim.messages.count)
    }

    @Test func blockThatBecomesRows_staysInItsTurn() throws {
        let ids = try store.append(30, to: queue, inTurn: many)
        #expect(try store.cancel(ids[3]))
        #expect(try store.count("blocks_1") == 0)
        let turns = try store.outbox.read { try $0.all("SELECT DISTINCT turn FROM queue_1") { $0[0] as Int64 } }
        #expect(turns == [many])
    }

    @Test func endOfTurns_leavesNothingBehind() throws {
        try store.append(1000, to: queue, inTurn: many)
        try store.append(3, to: queue, inTurn: few)
        let claim = try store.claim(queue, most: 100)
        try store.share(queue, isOn: false)
        try store.deliver(claim.messages, of: queue)
        #expect(try store.drain(queue).count == 1003 - claim.messages.count)
        #expect(try store.outbox.read { try !$0.exists("SELECT 1 FROM sqlite_master WHERE name = 'queue_1_turn'") })
    }

    /// What waits for the lanes of one caller leaves room for the others.
    @Test func longLane_ofOneCaller_doesNotHoldUpAnother() throws {
        try store.append(40_000, to: queue, lane: .digest(7), inTurn: many)
        let first = try store.claim(queue)
        #expect(!first.messages.isEmpty)
        for _ in 0..<3 {
            let id = try store.append(1, to: queue, lane: .digest(8), inTurn: few)[0]
            let claim = try store.claim(queue)
            #expect(claim.messages.map(\.id) == [id])
            try store.deliver(claim.messages, of: queue)
        }
        #expect(queue.countInMemory < 35_000)
        #expect(try store.claim(queue).messages.isEmpty)
        #expect(store.readiness(queue) == .nothing, "the rest waits for its lane")
        try store.deliver(first.messages, of: queue)
        #expect(try store.drain(queue).count == 40_000 - first.messages.count)
    }

    @Test func kindOfOneCaller_isSent_whileAnotherOneHasManyOfOtherKinds() throws {
        let store = try TestStore()
        var upstream = PlainUpstream(kinds: ["a", "b", "c"])
        upstream.traits.sendsKindsApart = true
        let queue = try store.register(upstream)
        try store.share(queue)
        for _ in 0..<50 {
            try store.append(
                (0..<40).map { store.message(to: queue, kind: $0 % 2 == 0 ? "a" : "b", lane: .none, inTurn: many) })
        }
        let id = try store.append([store.message(to: queue, kind: "c", lane: .none, inTurn: few)]).ids[0]
        var requests = 0
        var claim = try store.claim(queue)
        while !claim.messages.contains(where: { $0.id == id }), requests < 50 {
            #expect(Set(claim.messages.map(\.kind)).count == 1)
            try store.deliver(claim.messages, of: queue)
            claim = try store.claim(queue)
            requests += 1
        }
        #expect(requests <= 3)
    }

    /// What waits because its kind has been sent as often as it may takes turns, too, with and without an order.
    @Test(arguments: [false, true]) func callers_takeTurns_ifTheirKindHasALimit(withLanes: Bool) throws {
        let store = try TestStore()
        var upstream = PlainUpstream(kinds: ["a", "b"])
        upstream.traits.sendsKindsApart = true
        let queue = try store.register(upstream)
        try store.share(queue)
        var number: Int64 = 0
        func append(_ count: Int, inTurn turn: Int64) throws -> [MessageID] {
            let messages = (0..<count).map { _ in
                number += 1
                return store.message(
                    to: queue, kind: "a", lane: withLanes ? .digest(number) : .none, inTurn: turn)
            }
            return try store.append(messages).ids
        }
        func claim(isLimited: Bool) throws -> [Message] {
            try queue.claim(
                BatchLimits(maxMessages: 20, maxBytes: 1 << 20), now: store.time.now, oldest: nil,
                waitingKinds: isLimited ? ["a": store.time.now + .seconds(1)] : [:]
            ).messages
        }
        for _ in 0..<50 { _ = try append(40, inTurn: many) }
        #expect(try claim(isLimited: true).isEmpty)
        let ids = Set(try append(60, inTurn: few))
        #expect(try claim(isLimited: true).isEmpty)
        var sent = 0
        var requests = 0
        while sent < ids.count, requests < 20 {
            store.time.advance(by: .seconds(1))
            let messages = try claim(isLimited: false)
            #expect(messages.count == 20, "the request is not smaller than without turns")
            #expect(messages.contains { ids.contains($0.id) })
            #expect(messages.contains { !ids.contains($0.id) })
            sent += messages.filter { ids.contains($0.id) }.count
            try store.deliver(messages, of: queue)
            requests += 1
            #expect(try claim(isLimited: true).isEmpty)
        }
        #expect(requests < 10, "each of the two has about half of every request")
        store.time.advance(by: .seconds(1))
        #expect(try store.drain(queue).count == 2060 - 20 * requests, "what was passed is found again")
    }

    /// While a kind may not be sent, claims find nothing: that is no turn.
    @Test func callers_takeTurnsWithABatchThatIsSentAgain_ifTheirKindHasALimit() throws {
        let store = try TestStore()
        var upstream = PlainUpstream(kinds: ["a", "b"])
        upstream.traits.sendsKindsApart = true
        let queue = try store.register(upstream)
        try store.share(queue)
        try store.append(100, to: queue, inTurn: many)
        try store.sendLater(try store.claim(queue).messages, of: queue, at: store.time.now)
        let id = try store.append(1, to: queue, inTurn: few)[0]
        var sent: [MessageID] = []
        for _ in 0..<4 {
            for isLimited in [false, true] {
                sent += try queue.claim(
                    BatchLimits(maxMessages: 1, maxBytes: 1 << 20), now: store.time.now, oldest: nil,
                    waitingKinds: isLimited ? ["a": store.time.now + .seconds(1)] : [:]
                ).messages.map(\.id)
            }
            store.time.advance(by: .seconds(1))
        }
        #expect(sent.count == 4)
        #expect(sent.contains(id))
    }

    @Test func flush_ends_whenWhatWasThereIsSent_howeverMuchFollows() throws {
        let ids = try store.append(40, to: queue, inTurn: few)
        let more = try store.append(5000, to: queue, inTurn: many)
        let last = ids[39]
        #expect(try queue.maySend(through: last, now: store.time.now))
        try store.deliver(try store.claim(queue).messages, of: queue)
        #expect(try !queue.maySend(through: last, now: store.time.now))
        #expect(try queue.maySend(through: more[4999], now: store.time.now))
    }

    @Test func separateLanes_ofCallers_takeTurns() throws {
        let store = try TestStore()
        let queue = try store.register(PlainUpstream(laneRule: .perLane))
        try store.share(queue, by: ["many": 2])
        for lane in 0..<300 { try store.append(1, to: queue, lane: .named("many-\(lane)"), inTurn: many) }
        for lane in 0..<3 { try store.append(1, to: queue, lane: .named("few-\(lane)"), inTurn: few) }
        let names = try (0..<9).map { _ in
            let messages = try store.claim(queue).messages
            guard case .named(let name, _)? = messages.first?.lane else { return "" }
            return String(name.prefix { $0 != "-" })
        }
        #expect(names.filter { $0 == "few" }.count == 3, "\(names)")
        #expect(try store.drain(queue).count == 294)
    }

    // MARK: How long messages wait

    /// 4 requests in flight, of 100 ms each. One caller has queued 50,000, and another one sends 10 in a second.
    @Test func p99OfACaller_isAtMostTwiceThatWithoutTheBacklogOfAnother() throws {
        let alone = try p99(backlog: 0)
        let next = try p99(backlog: 50_000)
        #expect(next <= 2 * alone, "\(next) ms instead of \(alone) ms")
    }

    private func p99(backlog: Int) throws -> Int {
        let store = try TestStore()
        let queue = try store.register()
        try store.share(queue)
        if backlog > 0 { try store.append(backlog, to: queue, inTurn: many) }
        var flights: [(end: Int, messages: [Message])] = []
        var acceptedAt: [MessageID: Int] = [:]
        var waits: [Int] = []
        for now in stride(from: 0, to: 5000, by: 5) {
            if now % 100 == 0 { acceptedAt[try store.append(1, to: queue, inTurn: few)[0]] = now }
            for flight in flights where flight.end <= now {
                try store.deliver(flight.messages, of: queue)
                waits += flight.messages.compactMap { acceptedAt[$0.id] }.map { now - $0 }
            }
            flights.removeAll { $0.end <= now }
            while flights.count < 4, store.readiness(queue, wait: .milliseconds(50)) == .now {
                let claim = try store.claim(queue)
                guard !claim.messages.isEmpty else { break }
                flights.append((now + 100, claim.messages))
            }
            store.time.advance(by: .milliseconds(5))
        }
        try #require(waits.count > 45)
        return waits.sorted()[waits.count * 99 / 100]
    }
}

/// Random operations on a mixed queue whose messages sometimes take turns: lanes keep their order, and nothing is lost.
@Suite(.eachEngine) struct TurnModelTests {
    @Test(arguments: 0..<12) func lanes_keepTheirOrder_andAllIsSent(seed: UInt64) throws {
        var random = SplitMix64(state: seed &+ 7)
        func below(_ limit: Int) -> Int { Int.random(in: 0..<limit, using: &random) }
        let store = try TestStore()
        func register() throws -> UpstreamQueue {
            var upstream = PlainUpstream(kinds: ["thing", "other"])
            upstream.traits.sendsKindsApart = seed % 3 == 0
            return try store.register(upstream)
        }
        var queue = try register()
        var isOn = false
        var lanes: [MessageID: Int64] = [:]
        var open: [MessageID] = []
        // They take their place in the lane when they become due, perhaps before earlier ones that were not examined.
        var scheduled: Set<MessageID> = []
        var flights: [Claim] = []
        func change() throws {
            isOn = below(3) > 0
            try store.share(queue, by: ["0": 1 + below(3)], isOn: isOn)
        }
        func append() throws {
            let turn = Fairness.turn(ofCaller: "\(below(4))")
            let messages = (0..<[1, 3, 60][below(3)]).map { _ in
                let lane = Lane(number: Int64(below(3) > 0 ? 0 : 1 + below(6)))
                return store.message(
                    to: queue, kind: below(4) == 0 ? "other" : "thing", lane: lane, inTurn: isOn ? turn : 0,
                    notBefore: below(40) == 0 ? store.time.now + .milliseconds(3) : nil)
            }
            for (id, message) in zip(try store.append(messages).ids, messages) {
                lanes[id] = message.lane.number
                if message.notBefore != nil { scheduled.insert(id) }
                open.append(id)
            }
        }
        func claim() throws {
            let claim = try store.claim(queue, most: [1, 7, 100][below(3)])
            guard !claim.messages.isEmpty else { return }
            let taken = Set(claim.messages.map(\.id))
            let others = open.filter { !taken.contains($0) && !scheduled.contains($0) }
            for message in claim.messages where message.lane.number != 0 && !scheduled.contains(message.id) {
                let earlier = others.filter { $0 < message.id && lanes[$0] == message.lane.number }
                #expect(earlier.isEmpty, "\(message.id) of lane \(message.lane.number) is sent before \(earlier)")
            }
            flights.append(claim)
        }
        func end() throws {
            guard !flights.isEmpty else { return }
            let claim = flights.remove(at: below(flights.count))
            switch below(8) {
            case 0: try store.sendLater(claim.messages, of: queue, at: store.time.now + .milliseconds(below(4)))
            case 1: queue.giveBack(claim, now: store.time.now)
            default:
                try store.deliver(claim.messages, of: queue)
                let gone = Set(claim.messages.map(\.id))
                open.removeAll(where: gone.contains)
            }
        }
        for _ in 0..<250 {
            switch below(20) {
            case 0: try change()
            case 1..<6: try append()
            case 6..<12: try claim()
            case 12..<18: try end()
            case 18:
                store.time.advance(by: .milliseconds(2))
                if let id = open.randomElement(using: &random), try store.cancel(id) { open.removeAll { $0 == id } }
            default:
                flights = []
                try store.reopen()
                queue = try register()
                try store.share(queue, isOn: isOn)
            }
        }
        while !flights.isEmpty { try end() }
        store.time.advance(by: .seconds(1))
        let rest = try store.drain(queue, most: 50)
        #expect(Set(rest) == Set(open), "\(open.count) are queued, and \(rest.count) were sent")
        #expect(rest.count == open.count)
        #expect(try store.isBalanced())
    }
}

extension TestStore {
    fileprivate func share(_ queue: UpstreamQueue, by callers: [String: Int] = [:], isOn: Bool = true) throws {
        try outbox.share(queue.target, by: isOn ? Fairness(by: .caller, callers: callers) : nil)
    }

    fileprivate func message(
        to queue: UpstreamQueue, kind: Kind, lane: Lane, inTurn turn: Int64, notBefore: Timestamp? = nil
    ) -> NewMessage {
        NewMessage(
            queue: queue.target, kind: kind, lane: lane, acceptedAt: time.now, notBefore: notBefore,
            bytes: Array("{}".utf8), turn: turn)
    }

    @discardableResult fileprivate func append(
        _ count: Int, to queue: UpstreamQueue, lane: Lane = .none, inTurn turn: Int64
    ) throws -> [MessageID] {
        let kind = queue.upstream.kinds[0]
        return try append((0..<count).map { _ in message(to: queue, kind: kind, lane: lane, inTurn: turn) }).ids
    }
}
