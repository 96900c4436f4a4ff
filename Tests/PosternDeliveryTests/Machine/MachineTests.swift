import PosternCore
import PosternUpstream
import Testing

@testable import PosternDelivery
@testable import PosternStore

/// The effects of each verdict, and the invariants that hold in any order of events.
@Suite(.timeLimit(.minutes(10))) struct MachineTests {
    private static let failure = TransferFailure(.interrupted, mayHaveArrived: true, detail: "cut")

    // MARK: Every verdict × circuit state × batch size

    enum CircuitState: CaseIterable { case closed, halfOpen }

    struct Row: Sendable {
        let verdict: Verdict
        let outcome: Settlement.Outcome
        /// Of a batch of one, and of several.
        let endsOne: MessageState?
        let endsSeveral: MessageState?
        /// Whether the endpoint is considered to be working.
        let works: Bool?
    }

    static let rows: [Row] = [
        .init(verdict: .delivered(), outcome: .delivered, endsOne: .delivered, endsSeveral: .delivered, works: true),
        .init(verdict: .proceed(progress: [1]), outcome: .proceed, endsOne: nil, endsSeveral: nil, works: true),
        .init(verdict: .retry(after: nil), outcome: .retry, endsOne: nil, endsSeveral: nil, works: false),
        .init(verdict: .retry(after: .seconds(60)), outcome: .retry, endsOne: nil, endsSeveral: nil, works: false),
        .init(verdict: .backOff, outcome: .backedOff, endsOne: nil, endsSeveral: nil, works: true),
        .init(verdict: .suspect(after: nil), outcome: .suspect, endsOne: nil, endsSeveral: nil, works: false),
        .init(verdict: .refreshToken, outcome: .unauthorized, endsOne: nil, endsSeveral: nil, works: nil),
        .init(
            verdict: .holdUpstream(.credentials, detail: "no"), outcome: .held, endsOne: nil, endsSeveral: nil,
            works: false),
        .init(
            verdict: .holdUpstream(.configuration, detail: "no"), outcome: .held, endsOne: nil, endsSeveral: nil,
            works: false),
        .init(verdict: .park, outcome: .parked, endsOne: nil, endsSeveral: nil, works: true),
        .init(verdict: .split(reason: "no"), outcome: .rejected, endsOne: .failed, endsSeveral: nil, works: true),
        .init(verdict: .reject(reason: "no"), outcome: .rejected, endsOne: .failed, endsSeveral: .failed, works: true),
    ]

    @Test(arguments: rows, CircuitState.allCases) func verdict_settlesItsMessages_andMovesTheCircuit(
        row: Row, state: CircuitState
    ) throws {
        for size in [1, 3] {
            var model = MachineModel()
            if state == .halfOpen {
                model.accept(1, lane: 1)
                model.send()
                model.answer(.retry(after: .seconds(1)))
                model.queue = []
                model.now = model.now + .seconds(2)
            }
            for number in 0..<size { model.accept(10 + number, lane: Int64(10 + number), group: 7) }
            model.send()
            let before = model.machine.health.upstream
            #expect(before.state == (state == .closed ? .closed : .halfOpen))
            let settlement = model.answer(row.verdict)
            let splits = size > 1 && row.verdict == .split(reason: "no")
            #expect(settlement.outcome == (splits ? .split : row.outcome))
            let end = size == 1 ? row.endsOne : row.endsSeveral
            #expect(model.ended.map(\.state) == Array(repeating: end, count: end == nil ? 0 : size).compactMap { $0 })
            // Each message is in exactly one place.
            #expect(model.ended.count + model.queue.count == size)
            #expect(model.machine.inFlight == 0)
            #expect(model.machine.unsettled == 0)
            let after = model.machine.health.upstream
            switch row.works {
            case true?:
                #expect(after.state == .closed)
                #expect(after.failures == 0)
            case false?: #expect(after.failures == before.failures + 1)
            // It says nothing about the upstream, so that a probe is made again.
            case nil: #expect(after.state == (state == .closed ? .closed : .open(until: model.now)))
            }
        }
    }

    @Test func cancelledRequest_isReturned_andCountsAsNoFailure() {
        var model = MachineModel()
        model.accept(1, lane: 1)
        model.send()
        let cancelled = TransferFailure(.cancelled, mayHaveArrived: true, detail: "stopped")
        let settlement = model.answer(.failure(cancelled))
        #expect(settlement.outcome == .cancelled)
        #expect(settlement.isGivenBack && settlement.isAmbiguous)
        #expect(settlement.possiblyArrived == [MachineModel.id(1)])
        #expect(model.machine.health.upstream.failures == 0)
    }

    @Test func recordedRequest_thatIsNotSent_isClosed_andGivenBack() {
        var model = MachineModel()
        model.accept(1, lane: 1)
        model.send()
        let actions = model.machine.unsent(model.flights[0].flight, now: model.now)
        guard case .record(let settlement)? = actions.first else { return #expect(Bool(false)) }
        #expect(settlement.outcome == .cancelled && settlement.isGivenBack && !settlement.isAmbiguous)
        #expect(model.machine.inFlight == 0)
    }

    // MARK: Tokens of endpoints

    @Test func tokenRejectedByOneEndpoint_holdsThatAlone_whileAnotherAcceptsIt() {
        var tokens = TokenCache()
        var meaning: TokenCache.RejectionMeaning
        func fetch() {
            let number = tokens.fetchBegan()
            _ = tokens.fetchEnded(number)
            tokens.fetched(
                Token(value: "t", renewAt: .never, expiresAt: nil), now: Timestamp(milliseconds: 1))
        }
        fetch()
        meaning = tokens.refused(under: tokens.generation, at: "bad", now: Timestamp(milliseconds: 1))
        #expect(meaning == .sendAgain)
        fetch()
        tokens.accepted(under: tokens.generation, at: "good", now: Timestamp(milliseconds: 1))
        meaning = tokens.refused(under: tokens.generation, at: "bad", now: Timestamp(milliseconds: 1))
        #expect(meaning == .endpointRefuses)
        #expect(tokens.token(at: Timestamp(milliseconds: 2)) != nil, "the others go on under it")
    }

    // MARK: All interleavings of small cases

    /// The responses that the model uses.
    fileprivate static let answers: [@Sendable (inout MachineModel, Int) -> Void] = [
        { $0.answer(.delivered(), at: $1) }, { $0.answer(.retry(after: nil), at: $1) },
        { $0.answer(.suspect(after: nil), at: $1) }, { $0.answer(.split(reason: "no"), at: $1) },
        { $0.answer(.holdUpstream(.credentials, detail: "no"), at: $1) }, { $0.answer(.failure(failure), at: $1) },
    ]

    private struct Explorer {
        let count: Int
        var states = 0

        mutating func explore(_ model: MachineModel, depth: Int) {
            states += 1
            check(model)
            guard depth > 0 else { return expectThatAllEnd(model) }
            var isStuck = true
            if model.canSend {
                isStuck = false
                var next = model
                next.send()
                explore(next, depth: depth - 1)
            }
            for index in model.flights.indices {
                isStuck = false
                for answer in MachineTests.answers {
                    var next = model
                    answer(&next, index)
                    explore(next, depth: depth - 1)
                }
            }
            if isStuck, !model.queue.isEmpty {
                var next = model
                let goesOn = next.wait()
                #expect(goesOn, "a lane is stuck")
                explore(next, depth: depth - 1)
            }
        }

        /// Each message is in one place; lanes keep their order; what is counted is what is there.
        private func check(_ model: MachineModel) {
            let inFlight = model.flights.flatMap { $0.entries }
            let all = model.queue.map(\.message.id) + inFlight.map(\.message.id) + model.ended.map(\.id)
            #expect(all.count == count && Set(all).count == count)
            #expect(model.machine.inFlight == model.flights.count)
            #expect(model.machine.unsettled == model.flights.count)
            for entry in inFlight {
                let isOvertaking = model.queue.contains {
                    $0.message.lane == entry.message.lane && $0.message.id < entry.message.id
                }
                #expect(!isOvertaking)
            }
            let lanes = model.flights.map { Set($0.entries.map(\.message.lane)) }
            #expect(lanes.reduce(0) { $0 + $1.count } == Set(lanes.joined()).count, "a lane is in flight twice")
        }

        /// From any state, all messages are settled once the upstream accepts everything.
        private func expectThatAllEnd(_ model: MachineModel) {
            var model = model
            for _ in 0..<200 where model.ended.count < count {
                if model.canSend {
                    model.send()
                } else if !model.flights.isEmpty {
                    model.answer(.delivered())
                } else if !model.wait() {
                    break
                }
            }
            #expect(model.ended.count == count, "not all end: \(model.queue.map(\.dueAt)) at \(model.now)")
        }
    }

    /// Lane, endpoint and group of each message.
    private static let cases: [[(lane: Int64, endpoint: String, group: Int)]] = [
        [(1, "a", 1), (1, "a", 2), (2, "b", 3)],
        [(1, "a", 1), (2, "a", 1), (1, "a", 1)],
        [(1, "a", 1), (1, "b", 2)],
        [(1, "a", 1), (2, "a", 1), (3, "b", 2)],
    ]

    @Test(arguments: cases.indices)
    func anyInterleaving_keepsOrder_losesNothing_andEnds(number: Int) {
        let messages = Self.cases[number]
        var model = MachineModel(most: 2)
        for (index, message) in messages.enumerated() {
            model.accept(index + 1, lane: message.lane, to: message.endpoint, group: message.group)
        }
        var explorer = Explorer(count: messages.count)
        // Where lanes wait for each other there is less to interleave.
        explorer.explore(model, depth: number == 1 || number == 2 ? 11 : 7)
        #expect(explorer.states > 1000)
    }

    // MARK: Doubt

    /// Finding one poison message among n requires at most as many requests as halving.
    @Test(arguments: [2, 3, 8, 31, 100]) func halving_costsTwoLogNPlusOne(count: Int) {
        for position in [0, count / 2, count - 1] {
            var model = MachineModel(most: 1)
            for number in 0..<count { model.accept(number + 1, lane: Int64(number), group: 1) }
            // Its first failure, and a success of something else.
            model.send()
            model.answer(.suspect(after: nil))
            model.accept(1000, lane: 5000)
            model.send()
            model.answer(.delivered())
            _ = model.wait()
            let poison = MachineModel.id(position + 1)
            var requests = 0
            while model.queue.contains(where: { $0.message.id != poison }) {
                if !model.canSend, !model.wait() { break }
                model.send()
                let isPoisoned = model.flights[0].entries.contains { $0.message.id == poison }
                model.answer(isPoisoned ? .suspect(after: nil) : .delivered())
                requests += 1
            }
            let levels = Int(Double(count).logarithmCeiling)
            #expect(requests <= 2 * levels + 1, "\(requests) for \(count) with the poison at \(position)")
        }
    }

    @Test func outageOf500s_costsNoAttempts_evenOfAMessageSentAlone() {
        var model = MachineModel(most: 4)
        for number in 1...6 { model.accept(number, lane: Int64(number)) }
        for _ in 0..<400 {
            if model.canSend {
                model.send()
            } else if !model.flights.isEmpty {
                model.answer(.suspect(after: nil), random: 1)
            } else {
                _ = model.wait()
            }
        }
        #expect(model.ended.isEmpty)
        let waiting = model.queue + model.flights.flatMap { $0.entries }
        #expect(waiting.allSatisfy { $0.message.attempts == 0 })
    }
}

extension Double {
    /// ⌈log₂⌉ of a whole number.
    fileprivate var logarithmCeiling: Double {
        var levels = 0.0
        var reach = 1.0
        while reach < self {
            reach *= 2
            levels += 1
        }
        return levels
    }
}
