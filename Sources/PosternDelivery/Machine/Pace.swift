import Foundation
import PosternCore

/// How fast requests are sent to one upstream: not above what is configured and, if that is adaptive, not above what the
/// upstream seems to bear. A plain value; times are arguments.
///
/// Requests are spaced evenly, without bursts. A request may carry as many messages as one second permits; the next one
/// waits until they are paid for. So batches grow where requests are limited more than messages.
struct Pace: Equatable {
    /// Per second; 0 means no limit.
    struct Limits: Equatable {
        var requests = 0.0
        var messages = 0.0
        var isAdaptive = false
    }

    /// How far a request that is sent late may be caught up with. A timer is late by a few milliseconds.
    private static let slack = 10.0

    /// When the next request may be sent as far as requests, and messages, are limited. Milliseconds since 1970, with a
    /// fraction: requests may be less than one apart.
    private var requestsFreeAt = -Double.infinity
    private var messagesFreeAt = -Double.infinity
    /// What the upstream seems to bear.
    private(set) var adaptive = AdaptivePace()

    /// When the next request may be sent; nil if it may be sent now.
    func wait(now: Timestamp) -> Timestamp? {
        let freeAt = max(requestsFreeAt, messagesFreeAt, adaptive.pausedUntil)
        guard freeAt > Double(now.milliseconds) else { return nil }
        return Timestamp(milliseconds: Int64(freeAt.rounded(.up)))
    }

    /// The most messages of one request; nil if they are not limited.
    static func batchLimit(_ limits: Limits) -> Int? {
        limits.messages > 0 ? max(1, Int(min(limits.messages, 1e9))) : nil
    }

    /// Requests per second; nil if they are not limited.
    func rate(_ limits: Limits) -> Double? {
        [limits.requests > 0 ? limits.requests : nil, limits.isAdaptive ? adaptive.rate : nil].compactMap(\.self).min()
    }

    /// The most requests in flight.
    func maxInFlight(_ most: Int, _ limits: Limits) -> Int {
        limits.isAdaptive ? adaptive.maxInFlight(most) : most
    }

    mutating func sent(_ messages: Int, _ limits: Limits, now: Timestamp) {
        let now = Double(now.milliseconds)
        if limits.isAdaptive { adaptive.grow(now: now) }
        if let rate = rate(limits) { requestsFreeAt = max(requestsFreeAt, now - Self.slack) + 1000 / rate }
        if limits.messages > 0 {
            messagesFreeAt = max(messagesFreeAt, now - Self.slack) + Double(messages) * 1000 / limits.messages
        }
    }

    /// - Parameters:
    ///   - number: of the request; `latest`: of the latest one that was sent.
    ///   - status: nil if there was no response.
    mutating func answered(
        number: Int, latest: Int, status: Int?, took latency: Duration, _ limits: Limits, inFlight: Int, now: Timestamp
    ) {
        guard limits.isAdaptive else { return }
        adaptive.answered(
            number: number, latest: latest, status: status, took: latency.inSeconds * 1000, inFlight: inFlight,
            now: Double(now.milliseconds))
    }

    /// The clock was set back, or the limits have changed: what was measured before says nothing.
    mutating func reset() { self = Pace() }
}

/// What an upstream seems to bear: a rate that falls with 429 and 503 and grows again, and a number of requests in flight
/// that falls when they begin to take longer.
///
/// The rate is searched between one that was borne and one that was refused, by halves, until they are close. Then it stays
/// a little below the refused one, and exceeds it after a while, first by one percent a second, and faster the longer nothing
/// is refused. So an upstream that allows so much a second refuses a few requests a minute, and one that allows more again
/// is found out within minutes. A rate counts as borne only if that much was sent. Times are milliseconds.
struct AdaptivePace: Equatable {
    /// The rate below one that was refused, and how close to it one that was borne has to be.
    private static let share = 0.985
    private static let closeness = 0.95
    /// How long a rate has to be borne.
    private static let trial = 2500.0
    /// When the refused rate is tried again.
    private static let patience = 90_000.0
    private static let least = 0.2
    private static let pause = 100.0
    /// The shortest time between two falls. What is refused meanwhile is refused for the same reason.
    private static let second = 1000.0
    /// A fall after less than this is due to a rate that is much too high.
    private static let soon = 3500.0
    /// The number of responses between two changes of what may be in flight.
    private static let round = 10

    /// Requests per second; nil until the upstream has refused one.
    private(set) var rate: Double?
    /// The rates that were borne, and refused, last.
    private var borne = 0.0
    private var refused = Double.infinity
    /// When the rate was last changed, other than by growing slowly.
    private var changedAt = 0.0
    private var grownAt = 0.0
    private var fellAt = -Double.infinity
    /// Refusals of requests up to this one belong to a fall that has happened.
    private var fellAfter = 0
    /// Nothing is sent right after a refusal: what is counted by the second is refused until the next one begins.
    private(set) var pausedUntil = -Double.infinity
    /// The requests that were accepted lately.
    private var accepted = RecentCount()

    // In flight.
    private var inFlight: Double?
    private var usual = 0.0
    private var responses = 0
    /// The shortest latency of this minute, and of the one before.
    private var shortest = Double.infinity
    private var formerShortest = Double.infinity
    private var minute = 0.0

    func maxInFlight(_ most: Int) -> Int { max(1, min(most, Int(inFlight ?? Double(most)))) }

    /// Whether as much is sent as the rate permits.
    private func isUsed(_ rate: Double, now: Double) -> Bool {
        let ticks = rate < 20 ? 25 : 10
        return Double(accepted.count(last: ticks, at: now)) >= 0.7 * rate * Double(ticks) / 10
    }

    mutating func grow(now: Double) {
        guard let known = rate, now > grownAt else { return }
        let passed = now - grownAt
        grownAt = now
        guard now - changedAt > (known < borne ? Self.second : Self.trial), isUsed(known, now: now) else { return }
        if known < borne {
            set(min(borne, 2 * known), now: now)
        } else if refused == .infinity {
            borne = known
            set(2 * known, now: now)
        } else if known < Self.closeness * refused {
            borne = known
            set(min((borne + refused) / 2, Self.share * refused), now: now)
        } else if now - changedAt > Self.patience {
            borne = max(borne, Self.closeness * refused)
            let excess = (now - changedAt - Self.patience) / 1000
            let next = known * exp((0.01 + 0.002 * excess) * passed / 1000)
            rate = next
            // It bears much more than before.
            if next > 1.3 * refused { (borne, refused) = (next, .infinity) }
        }
    }

    private mutating func set(_ new: Double, now: Double) {
        rate = max(Self.least, new)
        (changedAt, grownAt) = (now, now)
    }

    mutating func answered(
        number: Int, latest: Int, status: Int?, took latency: Double, inFlight current: Int, now: Double
    ) {
        switch status {
        case 429?, 503?:
            pausedUntil = now + Self.pause
            if number > fellAfter, now - fellAt >= Self.second {
                fall(isLimit: status == 429, now: now)
                (fellAt, fellAfter) = (now, latest)
            }
        case nil: break
        default:
            accepted.add(at: now)
            measure(latency, inFlight: current, now: now)
        }
    }

    /// `isLimit`: whether the upstream says that there were too many, rather than that it is in trouble.
    private mutating func fall(isLimit: Bool, now: Double) {
        guard let known = rate else {
            // A burst says little about the rate.
            if isLimit { set(max(1, Double(accepted.count(last: 10, at: now))), now: now) }
            return
        }
        // An outage is the matter of the circuit.
        guard isLimit else { return set(max(known / 2, borne / 8), now: now) }
        refused = known
        // It bears less than before, or that was a guess.
        if borne == 0 || borne > 0.999 * known { borne = known / 2 }
        if now - fellAt < Self.soon {
            set(borne, now: now)
        } else {
            set(borne < Self.closeness * known ? (borne + known) / 2 : Self.share * known, now: now)
        }
    }

    private mutating func measure(_ latency: Double, inFlight current: Int, now: Double) {
        if now - minute > 60_000 { (minute, formerShortest, shortest) = (now, shortest, .infinity) }
        shortest = min(shortest, latency)
        usual += (latency - usual) / (responses == 0 ? 1 : 8)
        responses += 1
        guard responses % Self.round == 0 else { return }
        let least = min(shortest, formerShortest)
        if usual > 3 * least + 30 {
            inFlight = max(1, min(inFlight ?? .infinity, Double(max(1, current + 1))) * 0.8)
        } else if let known = inFlight {
            inFlight = known + 1
        }
    }
}

/// How often something happened in the last ten seconds, by tenths of a second.
private struct RecentCount: Equatable {
    static let tick = 100.0
    private var counts = [Int](repeating: 0, count: 100)
    private var latest = 0

    mutating func add(at now: Double) {
        let tick = Int(now / Self.tick)
        if tick > latest {
            for old in max(latest + 1, tick - counts.count + 1)...tick { counts[old % counts.count] = 0 }
            latest = tick
        }
        counts[tick % counts.count] += 1
    }

    func count(last ticks: Int, at now: Double) -> Int {
        let first = Int(now / Self.tick) - ticks + 1
        guard first <= latest else { return 0 }
        return (max(first, latest - counts.count + 1)...latest).reduce(0) { $0 + counts[$1 % counts.count] }
    }
}
