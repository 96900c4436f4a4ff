import PosternCore
import PosternStore
import PosternTestKit
import PosternUpstream
import Synchronization
import Testing

@testable import PosternDelivery

/// Doubtful responses: one poison message stops only those behind it, and an outage makes no message fail.
@Suite(.timeLimit(.minutes(10))) struct SuspectTests {
    private static let poison = #"{"n":"poison"}"#

    private func lane(_ source: Int) -> Lane { .digest(Int64(source + 100)) }

    private func isPoison(_ request: UpstreamRequest) -> Bool { request.text.contains("poison") }

    /// One poison event, 31 more of its source, 28 of others, 4 more of its source, and traffic of the others.
    @Test func poisonMessage_amongManySources_failsAlone_andTheOthersAreDelivered() throws {
        let harness = try DeliveryHarness(settings: DeliverySettings())
        harness.transport.answerAll { request in self.isPoison(request) ? .status(500) : .status(200) }
        let poison = try harness.accept([Self.poison], lane: lane(-1))[0]
        try harness.accept(31, lane: lane(-1))
        for number in 0..<28 { try harness.accept(1, lane: lane(number % 13)) }
        try harness.accept(4, lane: lane(-1))
        var others = 28
        for round in 0..<40 {
            try harness.accept(1, lane: lane(round % 13))
            others += 1
            try harness.run(for: .seconds(2))
        }
        #expect(try harness.state(poison) == .failed)
        #expect(harness.ledger.failed == 1)
        #expect(harness.ledger.delivered == others + 35)
        #expect(try harness.outbox.audit().isBalanced)
    }

    @Test func othersAreDelivered_withinSeconds_whilePoisonIsLookedFor() throws {
        let harness = try DeliveryHarness(settings: DeliverySettings())
        harness.transport.answerAll { request in self.isPoison(request) ? .status(500) : .status(200) }
        try harness.accept([Self.poison], lane: lane(-1))
        let ids = try (0..<28).flatMap { try harness.accept(1, lane: lane($0 % 13)) }
        try harness.run(for: .seconds(12))
        #expect(try ids.allSatisfy { try harness.state($0) == .delivered })
    }

    @Test func lane_isBlockedByASuspectMessage_forHalfAnHour() throws {
        let harness = try DeliveryHarness(settings: DeliverySettings())
        harness.transport.answerAll { request in self.isPoison(request) ? .status(500) : .status(200) }
        try harness.accept(10, lane: lane(0))
        let poison = try harness.accept([Self.poison], lane: lane(0))[0]
        try harness.accept(30, lane: lane(0))
        try harness.run(for: .seconds(1700))
        #expect(harness.ledger.delivered == 10)
        #expect(try harness.state(poison) == .queued, "nothing else could be sent: it gets half an hour")
        try harness.run(for: .seconds(1200))
        #expect(try harness.state(poison) == .failed)
        #expect(harness.ledger.delivered == 40)
        #expect(harness.sent.count < 60)
    }

    @Test func clockSetForward_doesNotFailWhatBlocksItsLane() throws {
        let harness = try DeliveryHarness(settings: DeliverySettings())
        harness.transport.answerAll { _ in .status(500) }
        let ids = try harness.accept(2, lane: lane(0))
        try harness.run(for: .seconds(600))
        harness.time.setWallClock(back: .seconds(-7200))
        try harness.run(for: .seconds(1000))
        #expect(try ids.allSatisfy { try harness.state($0) == .queued }, "the outage has lasted less than half an hour")
        try harness.run(for: .seconds(1200))
        #expect(try harness.state(ids[0]) == .failed)
    }

    @Test func tenSuspects_delayNoOtherMessage() throws {
        let harness = try DeliveryHarness(settings: DeliverySettings())
        harness.transport.answerAll { request in self.isPoison(request) ? .status(500) : .status(200) }
        let suspects = try (0..<10).flatMap { try harness.accept([Self.poison], lane: lane(1000 + $0)) }
        try harness.run(for: .seconds(1))
        for number in 0..<260 {
            let id = try harness.accept(1, lane: lane(number))[0]
            try harness.run(for: .milliseconds(100))
            #expect(try harness.state(id) == .delivered)
        }
        try harness.run(for: .seconds(3600))
        for round in 0..<200 where harness.ledger.queued > 0 {
            try harness.accept(1, lane: lane(round))
            try harness.run(for: .seconds(10))
        }
        #expect(try suspects.allSatisfy { try harness.state($0) == .failed })
        #expect(harness.ledger.failed == 10)
    }

    @Test func loneSuspects_areInFlightOneAtATime_andLeaveRoomForOthers() throws {
        let settings = DeliverySettings.with {
            ($0.maxInFlight, $0.retry, $0.suspectTries) = (2, RetryPolicy(longest: .seconds(10)), 1000)
        }
        let harness = try DeliveryHarness(settings: settings)
        harness.transport.answerAll { request in self.isPoison(request) ? .status(500) : .status(200) }
        for number in 0..<10 { try harness.accept([Self.poison], lane: lane(1000 + number)) }
        // Until each of them is sent alone, and the slow start is over.
        for number in 0..<40 {
            try harness.accept(1, lane: lane(number))
            try harness.run(for: .seconds(1))
        }
        // From here on, the upstream does not respond to these messages.
        harness.transport.answerAll { request in self.isPoison(request) ? nil : .status(200) }
        try harness.run(for: .seconds(60))
        #expect(harness.open.count == 1)
        let id = try harness.accept(1)[0]
        try harness.run(for: .milliseconds(100))
        #expect(try harness.state(id) == .delivered)
    }

    /// After an outage each batch holds a message that is to blame: a batch alone could never show that the upstream
    /// works.
    @Test func poisonInEveryBatch_isFound_afterAnOutage() throws {
        let settings = DeliverySettings.with {
            ($0.batchMaxMessages, $0.retry) = (20, RetryPolicy(longest: .seconds(2)))
        }
        let harness = try DeliveryHarness(settings: settings)
        harness.transport.answerAll { _ in .status(500) }
        for number in 0..<400 {
            if number % 10 == 5 {
                try harness.accept([Self.poison], lane: lane(5000 + number))
            } else {
                try harness.accept(1, lane: lane(number))
            }
        }
        try harness.run(for: .seconds(60))
        harness.transport.answerAll { request in self.isPoison(request) ? .status(500) : .status(200) }
        try harness.run(for: .seconds(600))
        #expect(harness.ledger.delivered == 360)
    }

    /// An answer in the middle of an outage says nothing about the message, even if it is the first.
    @Test(arguments: [false, true]) func messageAlone_failsAfterFiveAnswers_notCountingThoseOfAnOutage(
        startsInAnOutage: Bool
    ) throws {
        let harness = try DeliveryHarness(
            settings: DeliverySettings.with {
                ($0.maxInFlight, $0.batchMaxMessages, $0.batchMaxWait) = (1, 1, .zero)
                $0.retry = RetryPolicy(longest: .seconds(2))
            })
        func requests() -> Int { harness.sent.count { $0.contains("poison") } }
        harness.transport.answerAll { _ in .status(500) }
        try harness.accept(1, lane: lane(0))
        let id = try harness.accept([Self.poison], lane: lane(-1))[0]
        if startsInAnOutage { try harness.run(for: .seconds(3)) }
        let before = requests()
        #expect(startsInAnOutage == (before > 0))
        harness.transport.answerAll { request in self.isPoison(request) ? .status(500) : .status(200) }
        for number in 0..<100 {
            try harness.accept(1, lane: lane(number % 13))
            try harness.run(for: .seconds(1))
        }
        #expect(try harness.state(id) == .failed)
        #expect(requests() - before == 5)
    }

    /// 3 s of plain 500s, then some at random.
    @Test(arguments: 1...12, [10, 30]) func random500s_failNoMessage(seed: UInt64, percent: Int) throws {
        let harness = try DeliveryHarness(settings: DeliverySettings.with { $0.batchMaxMessages = 32 })
        let random = Mutex(SplitMix64(state: seed &* 1_000_003 &+ UInt64(percent)))
        harness.transport.answerAll { _ in .status(500) }
        for number in 0..<400 {
            try harness.accept(["{\"n\":\(number)}"], lane: lane(number % 40))
            if number == 150 {
                try harness.run(for: .seconds(3))
                harness.transport.answerAll { _ in
                    random.withLock { $0.below(100) } < percent ? .status(500) : .status(200)
                }
            }
            if number % 10 == 0 { try harness.run(for: .milliseconds(100)) }
        }
        try harness.run(for: .seconds(1200))
        #expect(harness.ledger.failed == 0)
        #expect(harness.ledger.delivered == 400)
    }

    @Test func anotherOutcome_startsTheCountAgain() throws {
        let harness = try DeliveryHarness(settings: DeliverySettings())
        let isAway = SharedValue(false)
        harness.transport.answerAll { request in
            guard self.isPoison(request) else { return .status(200) }
            return isAway.value ? .status(503) : .status(500)
        }
        let poison = try harness.accept([Self.poison])[0]
        for round in 1...12 {
            isAway.set(round % 3 == 0)
            try harness.accept(1)
            try harness.run(for: .seconds(301))
        }
        #expect(try harness.state(poison) == .queued)
    }
}
