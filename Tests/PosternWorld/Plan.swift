/// What is going to happen to a gateway from outside: drawn from a seed, and a plain list of parts, so that a failure can
/// be repeated with fewer of them.
public struct Plan: Sendable, CustomStringConvertible {
    public let seed: UInt64
    /// How long callers, faults and the operator are at work. What happens then is not counted.
    public var hours: Double
    public var callers: [CallerPlan] = []
    public var faults: [FaultPlan] = []
    public var actions: [ActionPlan] = []
    var settings = SettingsPlan()

    public init(seed: UInt64) {
        self.seed = seed
        let dice = Dice(seed: seed, for: "plan")
        hours = 6 + 18 * dice.fraction()
        settings = SettingsPlan(dice)
        var types = UpstreamKind.allCases
        // Half of the worlds have all types, so that the others can be looked at closely.
        while dice.chance(0.35), types.count > 1 { types.remove(at: dice.below(types.count)) }
        for number in 0..<dice.from(types.count...8) {
            callers.append(CallerPlan(number, number < types.count ? types[number] : dice.pick(types), hours, dice))
        }
        for _ in 0..<dice.from(0...Int(hours / 3)) { faults.append(FaultPlan(dice.pick(types), hours, dice)) }
        for _ in 0..<dice.from(0...Int(hours / 3)) { actions.append(ActionPlan(types, hours, dice)) }
        actions.sort { $0.atHour < $1.atHour }
    }

    public var description: String {
        let lines = ["\(oneDigit(hours)) hours, \(settings)"] + callers.map(\.description) + faults.map(\.description)
        return (lines + actions.map(\.description)).joined(separator: "\n")
    }
}

enum UpstreamKind: String, CaseIterable, Sendable {
    case samsara, seer, curio, appservices, streamone
}

public struct CallerPlan: Sendable, CustomStringConvertible {
    let number: Int
    let upstream: UpstreamKind
    /// Seconds between two requests, on average.
    let pause: Double
    let startHour: Double
    /// Of the requests, how many hold several messages.
    let bulk: Double
    /// Of the messages.
    let poison: Double
    let scheduled: Double
    let waits: Double
    let hangsUp: Double

    init(_ number: Int, _ upstream: UpstreamKind, _ hours: Double, _ dice: Dice) {
        self.number = number
        self.upstream = upstream
        pause = 200 + 4000 * dice.fraction()
        startHour = hours / 4 * dice.fraction()
        bulk = dice.chance(0.6) ? dice.fraction() / 2 : 0
        poison = dice.chance(0.4) ? 0.06 * dice.fraction() : 0
        scheduled = dice.chance(0.3) ? 0.2 * dice.fraction() : 0
        waits = dice.chance(0.3) ? 0.3 * dice.fraction() : 0
        hangsUp = dice.chance(0.3) ? 0.1 * dice.fraction() : 0
    }

    public var description: String {
        "caller \(number) posts to \(upstream.rawValue) every \(Int(pause)) s from hour \(oneDigit(startHour)) on"
            + (poison > 0 ? ", sometimes poison" : "")
    }
}

public struct FaultPlan: Sendable, CustomStringConvertible {
    enum Kind: String, CaseIterable, Sendable {
        /// Connections are refused.
        case outage
        /// Nothing answers.
        case hang
        /// 503 with `Retry-After`.
        case maintenance
        /// A status that an upstream gives while it is overloaded, or resets.
        case flaky
        case slow
        /// One path fails.
        case endpoint
        case rateLimit
        /// Credentials are refused.
        case unauthorized
        case tokensDie
    }
    let upstream: UpstreamKind
    let kind: Kind
    let fromHour: Double
    let toHour: Double
    /// Of the requests, for what does not concern all of them.
    let share: Double

    init(_ upstream: UpstreamKind, _ hours: Double, _ dice: Dice) {
        self.upstream = upstream
        kind = dice.pick(Kind.allCases)
        fromHour = hours * dice.fraction()
        let length = 0.01 + (dice.chance(0.1) ? hours : 2) * dice.fraction()
        toHour = min(hours, fromHour + length)
        share = 0.05 + 0.6 * dice.fraction()
    }

    public var description: String {
        "\(upstream.rawValue): \(kind.rawValue) from hour \(oneDigit(fromHour)) to \(oneDigit(toHour))"
    }
}

public struct ActionPlan: Sendable, CustomStringConvertible {
    enum Kind: String, CaseIterable, Sendable {
        case pause, resume, flush, retry, cancel, reload, removeUpstream, stop, kill, killInside, clockBack,
            clockForward
        case suspend, stall
    }
    let kind: Kind
    let atHour: Double
    let upstream: UpstreamKind
    /// What it needs of chance.
    let draw: UInt64

    init(_ upstreams: [UpstreamKind], _ hours: Double, _ dice: Dice) {
        kind = dice.pick(Kind.allCases)
        atHour = hours * dice.fraction()
        upstream = dice.pick(upstreams)
        draw = dice.next()
    }

    public var description: String { "hour \(oneDigit(atHour)): \(kind.rawValue) (\(upstream.rawValue))" }
}

/// The gateway's settings.
struct SettingsPlan: Sendable, CustomStringConvertible {
    var maxInFlight = 4
    var batchMaxMessages = 500
    var batchMaxWait = 0.05
    var hasEncryptionKey = true
    var sendsGzip = true
    var idleFactor = 60
    /// Whether the log is written to the last detail, which takes time.
    var logsAll = true

    init() {}

    init(_ dice: Dice) {
        maxInFlight = dice.pick([1, 2, 4, 16])
        batchMaxMessages = dice.pick([1, 3, 10, 500])
        batchMaxWait = dice.pick([0, 0.05, 2])
        hasEncryptionKey = dice.chance(0.8)
        sendsGzip = dice.chance(0.5)
        idleFactor = dice.pick([15, 120, 120, 120])
        logsAll = dice.chance(0.25)
    }

    var description: String {
        "maxInFlight \(maxInFlight), batchMaxMessages \(batchMaxMessages), batchMaxWait \(batchMaxWait)"
    }
}

func oneDigit(_ number: Double) -> String { "\((number * 10).rounded() / 10)" }
