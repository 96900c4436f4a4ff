import PosternCore
import Testing

@testable import PosternDelivery

/// A sender that always has something to send, in virtual time of a millisecond, against a receiver with a limit.
struct Race {
    /// How a receiver counts what it accepts.
    enum Counting: CaseIterable {
        /// So many in each second.
        case window
        /// A bucket that holds a tenth of a second.
        case bucket
    }

    var limits: Pace.Limits
    var capacity: Double
    var counting = Counting.window
    /// In milliseconds; grows with what is in flight, if the receiver queues.
    var latency = 20
    /// How long nothing is sent after a refusal, as `Retry-After` asks; 0 for none.
    var retryAfter = 0
    var most = 16
    /// Whether it answers 503.
    var isOut = false

    private(set) var pace = Pace()
    private(set) var now = 1_000_000
    /// The times at which requests were sent, and those of accepted ones.
    private(set) var sent: [Int] = []
    private(set) var accepted: [Int] = []
    private(set) var refused: [Int] = []
    private var flights: [(number: Int, sentAt: Int, landsAt: Int, isAccepted: Bool)] = []
    private var level = 0.0
    private var window = 0
    private var waitsUntil = 0

    init(_ limits: Pace.Limits, capacity: Double) {
        self.limits = limits
        self.capacity = capacity
        level = max(1, capacity / 10)
    }

    private mutating func takes() -> Bool {
        switch counting {
        case .window:
            if now / 1000 != window { (window, level) = (now / 1000, capacity) }
        case .bucket: break
        }
        guard level >= 1, !isOut else { return false }
        level -= 1
        return true
    }

    mutating func run(seconds: Int, messages: Int = 1, demand: Double = .infinity) {
        var left = demand == .infinity ? Double.infinity : 0
        for _ in 0..<seconds * 1000 {
            now += 1
            if demand != .infinity { left += demand / 1000 }
            if counting == .bucket { level = min(max(1, capacity / 10), level + capacity / 1000) }
            while let index = flights.firstIndex(where: { $0.landsAt <= now }) {
                let flight = flights.remove(at: index)
                if flight.isAccepted { accepted.append(now) } else { refused.append(now) }
                if !flight.isAccepted, retryAfter > 0 { waitsUntil = now + retryAfter }
                pace.answered(
                    number: flight.number, latest: sent.count, status: flight.isAccepted ? 200 : isOut ? 503 : 429,
                    took: .milliseconds(now - flight.sentAt), limits, inFlight: flights.count,
                    now: Timestamp(milliseconds: Int64(now)))
            }
            let moment = Timestamp(milliseconds: Int64(now))
            while now >= waitsUntil, left >= 1, flights.count < pace.maxInFlight(most, limits),
                pace.wait(now: moment) == nil
            {
                left -= 1
                sent.append(now)
                pace.sent(messages, limits, now: moment)
                flights.append((sent.count, now, now + latency, takes()))
            }
        }
    }

    func count(_ times: [Int], last seconds: Int) -> Int { times.count { $0 > now - seconds * 1000 } }
    /// The most in any second.
    func most(_ times: [Int]) -> Int {
        var first = 0
        return times.indices.map { index in
            while times[first] <= times[index] - 1000 { first += 1 }
            return index - first + 1
        }.max() ?? 0
    }
}

@Suite struct PaceTests {
    @Test(arguments: [0.5, 3, 50, 333, 2000])
    func requests_areSpaced_andTheLimitIsUsed(limit: Double) {
        var race = Race(.init(requests: limit), capacity: .infinity)
        race.most = 256
        race.run(seconds: 60)
        #expect(Double(race.sent.count) >= 60 * limit * 0.98)
        #expect(Double(race.sent.count) <= 60 * limit * 1.001 + 1)
        #expect(Double(race.most(race.sent)) <= limit * 1.01 + 1)
    }

    @Test func messages_areCounted_andARequestCarriesWhatASecondPermits() {
        let limits = Pace.Limits(messages: 500)
        #expect(Pace.batchLimit(limits) == 500)
        #expect(Pace.batchLimit(.init(messages: 0.2)) == 1)
        #expect(Pace.batchLimit(.init()) == nil)
        var race = Race(limits, capacity: .infinity)
        race.run(seconds: 60, messages: 200)
        #expect((149...151).contains(race.sent.count), "30 000 messages")
    }

    @Test func sender_thatWasIdle_hasNoBurst() {
        var race = Race(.init(requests: 100), capacity: .infinity)
        race.run(seconds: 10, demand: 5)
        let before = race.sent.count
        race.run(seconds: 1)
        #expect(race.sent.count - before <= 102)
    }

    @Test func clockThatIsSetBack_stopsNothing() {
        var pace = Pace()
        let limits = Pace.Limits(requests: 1)
        let now = Timestamp(milliseconds: 1_000_000)
        pace.sent(1, limits, now: now)
        #expect(pace.wait(now: now) != nil)
        pace.reset()
        #expect(pace.wait(now: now - .seconds(3600)) == nil)
    }

    // MARK: Adaptive

    private func race(_ capacity: Double, _ counting: Race.Counting, retryAfter: Int) -> Race {
        var race = Race(.init(isAdaptive: true), capacity: capacity)
        (race.counting, race.retryAfter) = (counting, retryAfter)
        return race
    }

    @Test(arguments: [20.0, 200], Race.Counting.allCases)
    func adaptiveSender_usesTheCapacity_andIsHardlyRefused(capacity: Double, counting: Race.Counting) {
        for retryAfter in [0, 1000] {
            var race = race(capacity, counting, retryAfter: retryAfter)
            race.run(seconds: 60)
            race.run(seconds: 300)
            let accepted = race.count(race.accepted, last: 300)
            let refused = race.count(race.refused, last: 300)
            #expect(Double(accepted) >= 0.95 * 300 * capacity, "Retry-After \(retryAfter): \(refused) refused")
            #expect(refused * 100 <= accepted, "Retry-After \(retryAfter)")
        }
    }

    @Test func adaptiveSender_neverExceedsTheLimit() {
        var race = Race(.init(requests: 50, isAdaptive: true), capacity: 1000)
        race.run(seconds: 300)
        #expect(race.most(race.sent) <= 52)
        #expect(race.refused.isEmpty)
    }

    @Test func capacityThatGrows_isUsed_withinMinutes() {
        var race = race(50, .window, retryAfter: 0)
        race.run(seconds: 120)
        race.capacity = 200
        race.run(seconds: 240)
        #expect(race.count(race.accepted, last: 60) > 60 * 180)
    }

    @Test func capacityThatFalls_isFoundAtOnce() {
        var race = race(400, .window, retryAfter: 0)
        race.run(seconds: 120)
        race.capacity = 40
        race.run(seconds: 30)
        let before = race.refused.count
        race.run(seconds: 60)
        #expect(race.count(race.accepted, last: 60) > 60 * 36)
        #expect(race.refused.count - before < 40)
    }

    @Test func outageWith503_isOver_withinSeconds() {
        var race = race(200, .window, retryAfter: 0)
        race.run(seconds: 120)
        let before = race.pace.rate(race.limits) ?? 0
        race.isOut = true
        race.run(seconds: 20)
        #expect(race.count(race.refused, last: 10) < 150, "it is asked less")
        race.isOut = false
        race.run(seconds: 12)
        #expect((race.pace.rate(race.limits) ?? 0) > 0.9 * before)
    }

    @Test func fewRequests_takeNothingFromTheRate() {
        var race = race(100, .window, retryAfter: 0)
        race.run(seconds: 600, demand: 20)
        #expect(race.refused.isEmpty)
        #expect(race.count(race.accepted, last: 60) >= 60 * 20 - 2)
    }

    @Test func latencyThatGrows_lowersWhatIsInFlight_andTheUsualOneRaisesItAgain() {
        var pace = Pace()
        let limits = Pace.Limits(isAdaptive: true)
        func answer(_ count: Int, _ latency: Int) {
            for number in 0..<count {
                pace.answered(
                    number: number, latest: number, status: 200, took: .milliseconds(latency), limits, inFlight: 15,
                    now: Timestamp(milliseconds: 1_000_000))
            }
        }
        answer(100, 20)
        #expect(pace.maxInFlight(16, limits) == 16)
        answer(300, 200)
        #expect(pace.maxInFlight(16, limits) <= 4)
        answer(400, 20)
        #expect(pace.maxInFlight(16, limits) == 16)
        #expect(pace.maxInFlight(16, .init()) == 16)
    }
}
