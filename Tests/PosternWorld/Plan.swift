import PosternCore
import PosternScenarios
import PosternStore
import PosternUpstream

@testable import PosternGateway

/// What is going to happen to a gateway from outside: drawn from a seed, and a plain list of parts, so that a failure can
/// be repeated with fewer of them.
public struct Plan: Sendable, CustomStringConvertible {
    public let seed: UInt64
    /// How long callers, faults and the operator are at work. What happens then is not counted.
    public var hours: Double
    /// The types of upstream that the gateway is configured with.
    private(set) var types: [any TypeScenarios]
    public var callers: [CallerPlan] = []
    public var devices: [DevicePlan] = []
    public var faults: [FaultPlan] = []
    public var actions: [ActionPlan] = []
    public var diskFaults: [DiskPlan] = []
    var settings = SettingsPlan()

    public init(seed: UInt64) {
        self.seed = seed
        let random = SeededRandom(seed: seed, for: "plan")
        hours = 6 + 18 * random.fraction()
        settings = SettingsPlan(random)
        types = Array(ScenarioRegistry.all.prefix(Self.drawnTogether))
        var drawn = types
        // Half of the worlds have all types, so that the others can be looked at closely.
        while random.chance(0.35), drawn.count > 1 { drawn.remove(at: random.below(drawn.count)) }
        for number in 0..<random.from(drawn.count...8) {
            callers.append(CallerPlan(number, number < drawn.count ? drawn[number] : random.pick(drawn), hours, random))
        }
        for _ in 0..<random.from(0...Int(hours / 3)) {
            faults.append(FaultPlan(FaultPlan.Kind.first, random.pick(drawn), hours, random))
        }
        for _ in 0..<random.from(0...Int(hours / 3)) {
            actions.append(ActionPlan(ActionPlan.Kind.first, drawn, hours, random))
        }
        let later = SeededRandom(seed: seed, for: "later plan")
        for _ in 0..<later.from(0...3) { actions.append(ActionPlan(ActionPlan.Kind.later, drawn, hours, later)) }
        actions.sort { $0.atHour < $1.atHour }
        // The other types give the status a meaning of its own.
        let withURLs = drawn.filter { $0.traits.contains(.plainStatuses) }
        if later.chance(0.3), !withURLs.isEmpty {
            faults.append(FaultPlan([.wrongURL], later.pick(withURLs), hours, later))
        }
        if later.chance(0.4) {
            for _ in 0..<later.from(1...4) { diskFaults.append(DiskPlan(hours, later)) }
        }
        if seed.isMultiple(of: 3) { addMore(of: drawn) }
        addSequences(drawn)
        for type in ScenarioRegistry.all.dropFirst(Self.drawnTogether) { add(type) }
        addCoincidences(of: drawn)
        addCallbacks()
        addProbes()
        addBackups()
        addDoubts()
        addMuteness(of: drawn)
        addWrongEndpoints()
        addMoves()
        addMassRejections()
        addFloods()
        addErasures()
        settings.limitRates(SeededRandom(seed: seed, for: "rates"))
        admitLate()
        addAlerts()
        addReplays()
        addTurns()
        addDevices()
    }

    /// The types that there were when seeds were first recorded. Each later one takes part by chance of its own, so that
    /// the worlds of known seeds without it stay as they were.
    private static let drawnTogether = 5

    private mutating func add(_ type: any TypeScenarios) {
        let random = SeededRandom(seed: seed, for: "plan of \(type.name)")
        guard random.chance(0.5) else { return }
        types.append(type)
        for _ in 0..<random.from(1...2) { callers.append(CallerPlan(callers.count, type, hours, random)) }
        let kinds = FaultPlan.Kind.allCases.filter {
            ![.mute, .wrongEndpoint, .rejectsAll].contains($0)
                && ($0 != .wrongURL || type.traits.contains(.plainStatuses))
        }
        for _ in 0..<random.from(0...Int(hours / 6)) { faults.append(FaultPlan(kinds, type, hours, random)) }
        for _ in 0..<random.from(0...3) { actions.append(ActionPlan(ActionPlan.Kind.drawn, [type], hours, random)) }
        actions.sort { $0.atHour < $1.atHour }
    }

    private mutating func addMuteness(of types: [any TypeScenarios]) {
        let random = SeededRandom(seed: seed, for: "muteness")
        guard random.chance(0.5) else { return }
        for _ in 0..<random.from(1...6) {
            let start = hours * random.fraction()
            faults.append(FaultPlan(.mute, random.pick(types), fromHour: start, toHour: start + 0.2))
        }
    }

    private mutating func addCallbacks() {
        let takers = UpstreamRegistry.all.filter(\.takesCallbacks).map(\.name)
        let random = SeededRandom(seed: seed, for: "callbacks")
        guard let type = types.first(where: { takers.contains($0.name) }), random.chance(0.6) else { return }
        settings.callbacks = CallbackPlan(to: type, random)
    }

    private mutating func addAlerts() {
        let takers = UpstreamRegistry.all.filter(\.takesCallbacks).map(\.name)
        let random = SeededRandom(seed: seed, for: "alerts")
        guard let type = types.first(where: { takers.contains($0.name) }), random.chance(0.8) else { return }
        var callbacks = settings.callbacks ?? CallbackPlan(to: type)
        callbacks.addEvents(random)
        settings.callbacks = callbacks
        settings.queueOld = random.pick([60, 900, 7200])
        // Soon, and for longer than it takes to look at it.
        if random.chance(0.3) {
            let start = hours * 0.7 * random.fraction()
            let end = start + 0.5 + 1.5 * random.fraction()
            var full: DiskPlan
            repeat {
                full = DiskPlan(.full, fromHour: start, toHour: end, draw: random.next())
            } while full.room.map { $0 > 10_000 } ?? true
            diskFaults.append(full)
        }
    }

    /// Lanes are admitted by the owner of their queue, as where several processes write: at once, or some time later.
    private mutating func admitLate() {
        let random = SeededRandom(seed: seed, for: "admission")
        if random.chance(0.3) { settings.admitsLanesAfter = random.pick([0, 0, 2, 60, 600]) }
    }

    /// Callers have keys, and their messages take turns, at least until the next reload.
    private mutating func addTurns() {
        let random = SeededRandom(seed: seed, for: "turns")
        guard random.chance(0.5) else { return }
        // With `/id`, each message of a webhook has a turn of its own, and lanes have messages of many.
        settings.turns = random.pick([
            ["caller"], ["caller", "none"], ["/id", "caller", "none"], ["none", "caller"], ["/id", "key"],
        ])
    }

    /// Every third world is a busy one, in which more happens at the same time.
    private mutating func addMore(of types: [any TypeScenarios]) {
        let random = SeededRandom(seed: seed, for: "busy plan")
        for _ in 0..<random.from(8...24) { actions.append(ActionPlan(ActionPlan.Kind.drawn, types, hours, random)) }
        for _ in 0..<random.from(4...12) {
            faults.append(FaultPlan(FaultPlan.Kind.first, random.pick(types), hours, random))
        }
        actions.sort { $0.atHour < $1.atHour }
    }

    /// What takes several parts in the right order, or is rare.
    private mutating func addSequences(_ types: [any TypeScenarios]) {
        let random = SeededRandom(seed: seed, for: "sequences")
        // What a full queue dropped is queued again once there is room.
        if let capped = types.first(where: { settings.dropsOldest(of: $0.name) }), random.chance(0.7) {
            let start = hours * 0.5 * random.fraction()
            let end = start + hours * (0.2 + 0.2 * random.fraction())
            faults.append(FaultPlan(.outage, capped, fromHour: start, toHour: end))
            actions.append(ActionPlan(.retryDropped, capped, atHour: end + 0.5 + random.fraction()))
        }
        // The former key is gone while messages still wait with credentials that it encrypted.
        if settings.changesKey, let keeper = types.first(where: { $0.traits.contains(.keepsCredentials) }),
            random.chance(0.15)
        {
            let start = hours * 0.8 * random.fraction()
            for (kind, after) in [(ActionPlan.Kind.pause, 0), (.changeKey, 0.6), (.stop, 1.2), (.resume, 1.4)] {
                actions.append(ActionPlan(kind, keeper, atHour: start + after))
            }
        }
        if random.chance(0.1) { actions.append(ActionPlan([.flipBit], types, hours, random)) }
        actions.sort { $0.atHour < $1.atHour }
    }

    /// Leaves out all syncs, and cuts the power every two hours.
    public func withoutSyncs() -> Plan {
        var plan = self
        plan.diskFaults = [DiskPlan(withoutSyncsFor: hours)]
        plan.actions += stride(from: 2, to: hours, by: 2).map { ActionPlan(.powerCut, types[0], atHour: $0) }
        plan.actions.sort { $0.atHour < $1.atHour }
        return plan
    }

    public var description: String {
        let lines =
            ["\(oneDigit(hours)) hours, \(settings)"] + callers.map(\.description)
            + devices.map(\.description) + faults.map(\.description) + diskFaults.map(\.description)
        return (lines + actions.map(\.description)).joined(separator: "\n")
    }
}

public struct CallerPlan: Sendable, CustomStringConvertible {
    let number: Int
    let type: any TypeScenarios
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
    /// Of the requests, those with an `Idempotency-Key`, with a compressed body, and with something that is not valid.
    let keyed: Double
    let compressed: Double
    let invalid: Double
    /// Of the requests to a type that has them, calls that are not stored.
    let proxied: Double
    /// Of the requests, those that consist of events, and those that were accepted before.
    let events: Double
    let repeats: Double
    /// Of the requests, those with a report.
    let reports: Double

    init(_ number: Int, _ type: any TypeScenarios, _ hours: Double, _ random: SeededRandom) {
        self.number = number
        self.type = type
        pause = 200 + 4000 * random.fraction()
        startHour = hours / 4 * random.fraction()
        bulk = random.chance(0.6) ? random.fraction() / 2 : 0
        poison = random.chance(0.4) ? 0.06 * random.fraction() : 0
        scheduled = random.chance(0.3) ? 0.2 * random.fraction() : 0
        waits = random.chance(0.3) ? 0.3 * random.fraction() : 0
        hangsUp = random.chance(0.3) ? 0.1 * random.fraction() : 0
        let later = SeededRandom(seed: random.seed, for: "later caller \(number)")
        keyed = later.chance(0.5) ? later.fraction() : 0
        compressed = later.chance(0.5) ? later.fraction() / 2 : 0
        invalid = later.chance(0.5) ? 0.1 * later.fraction() : 0
        proxied = later.chance(0.7) ? 0.2 * later.fraction() : 0
        let repeating = SeededRandom(seed: random.seed, for: "repeating caller \(number)")
        events = repeating.chance(0.4) ? repeating.fraction() : 0
        repeats = repeating.chance(0.6) ? 0.3 * repeating.fraction() : 0
        let reporting = SeededRandom(seed: random.seed, for: "reporting caller \(number)")
        reports = reporting.chance(0.5) ? 0.3 * reporting.fraction() : 0
    }

    public var description: String {
        "caller \(number) posts to \(type.name) every \(Int(pause)) s from hour \(oneDigit(startHour)) on"
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
        /// Nothing takes requests at this URL.
        case wrongURL
        /// 500 for requests with nothing wrong, at most a few times for the same message.
        case hiccups
        /// Connections that are open when it begins get no response any more; new ones do.
        case mute
        /// One of several endpoints does not exist.
        case wrongEndpoint
        /// 422 for all messages.
        case rejectsAll

        static let first = Array(allCases.prefix { $0 != .wrongURL })
    }
    let type: any TypeScenarios
    let kind: Kind
    let fromHour: Double
    let toHour: Double
    /// Of the requests, for what does not concern all of them.
    let share: Double

    init(_ kinds: [Kind], _ type: any TypeScenarios, _ hours: Double, _ random: SeededRandom) {
        self.type = type
        kind = random.pick(kinds)
        fromHour = hours * random.fraction()
        let length = 0.01 + (random.chance(0.1) ? hours : 2) * random.fraction()
        toHour = min(hours, fromHour + length)
        share = 0.05 + 0.6 * random.fraction()
    }

    init(_ kind: Kind, _ type: any TypeScenarios, fromHour: Double, toHour: Double, share: Double = 1) {
        (self.kind, self.type, self.fromHour, self.toHour, self.share) = (kind, type, fromHour, toHour, share)
    }

    /// The endpoint that does not exist, and the status that says so, both by `share`; nil for other faults.
    var wrongEndpoint: (endpoint: Endpoint, status: Int)? {
        guard kind == .wrongEndpoint else { return nil }
        let number = Int(share * 3 * Double(type.endpoints.count))
        return (type.endpoints[number / 3], [404, 405, 406][number % 3])
    }

    public var description: String {
        let path = wrongEndpoint.map { " (\($0.status) from \($0.endpoint.path))" } ?? ""
        return "\(type.name): \(kind.rawValue)\(path) from hour \(oneDigit(fromHour)) to \(oneDigit(toHour))"
    }
}

public struct ActionPlan: Sendable, CustomStringConvertible {
    enum Kind: String, CaseIterable, Sendable {
        case pause, resume, flush, retry, cancel, reload, removeUpstream, stop, kill, killInside, clockBack,
            clockForward
        case suspend, stall
        case powerCut, powerCutInside, killInsideDisk, powerCutInsideDisk, purge, changeKey, retryDropped
        /// A bit of what was synced flips while the gateway is down.
        case flipBit
        /// By hours, so that a wait that does not notice it is longer than any may be.
        case clockFarBack
        /// The credentials are tried without a message.
        case probe
        /// The store is copied next to the gateway; the latest copy takes its place.
        case backup, restore
        /// As soon as something is under way that may be sent once only.
        case killWhileUncertain
        /// A message for an endpoint that does not exist is the first one after a start or a reload.
        case wrongEndpointFirst
        /// Another worker takes the queue over.
        case moveQueue
        /// Many messages at once.
        case flood
        /// What was delivered is queued again.
        case replay
        /// A message, with all that the store has of it.
        case erase

        static let drawn = Array(allCases.prefix { $0 != .flipBit })
        static let first = Array(drawn.prefix { $0 != .powerCut })
        static let later = Array(drawn.drop { $0 != .powerCut })
    }
    let kind: Kind
    let atHour: Double
    let type: any TypeScenarios
    /// What it needs of chance.
    let draw: UInt64

    init(_ kinds: [Kind], _ types: [any TypeScenarios], _ hours: Double, _ random: SeededRandom) {
        kind = random.pick(kinds)
        atHour = hours * random.fraction()
        type = random.pick(types)
        draw = random.next()
    }

    init(_ kind: Kind, _ type: any TypeScenarios, atHour: Double, draw: UInt64 = 0) {
        (self.kind, self.type, self.atHour, self.draw) = (kind, type, atHour, draw)
    }

    public var description: String { "hour \(oneDigit(atHour)): \(kind.rawValue) (\(type.name))" }
}

/// The gateway's settings.
struct SettingsPlan: Sendable, CustomStringConvertible {
    var maxInFlight = 4
    var batchMaxMessages = 500
    var batchMaxWait = 0.05
    /// Whether the operator may change the encryption key.
    var changesKey = true
    var sendsGzip = true
    var idleFactor = 60
    /// Whether the log is written to the last detail, which takes time.
    var logsAll = true
    /// Seconds that settled messages are kept.
    var retention = Self.longestRetention
    /// Seconds that the payloads of delivered messages are kept.
    var payloadRetention = 0
    var caps: [Cap] = []
    /// The events about settled messages.
    var callbacks: CallbackPlan?
    /// Seconds until the owner of a queue admits the lanes of what was stored; nil: that is part of storing it.
    var admitsLanesAfter: Double?
    /// Requests, and messages, to one upstream in a second; 0: no limit.
    var maxRequestsPerSecond = 0.0
    var maxMessagesPerSecond = 0.0
    var isAdaptive = false
    /// Seconds until a message that is due is old.
    var queueOld = 900
    /// The values of `delivery.fairBy`, each until the next reload; empty if callers have no keys.
    var turns: [String] = []
    static func weight(ofCaller number: Int) -> Int { 1 + number % maxWeight }
    static let maxWeight = 3

    static let longestRetention = 315_360_000

    /// How many messages of an upstream may wait, and what happens to more.
    struct Cap: Sendable {
        /// The name of its type.
        let upstream: String
        let messages: Int
        let drops: Bool

        var json: String {
            #""queue":{"maxMessages":\#(messages),"whenFull":"\#(drops ? "dropOldest" : "reject")"}"#
        }
    }

    init() {}

    init(_ random: SeededRandom) {
        maxInFlight = random.pick([1, 2, 4, 16])
        batchMaxMessages = random.pick([1, 3, 10, 500])
        batchMaxWait = random.pick([0, 0.05, 2])
        changesKey = random.chance(0.8)
        sendsGzip = random.chance(0.5)
        idleFactor = random.pick([15, 120, 120, 120])
        logsAll = random.chance(0.25)
        let later = SeededRandom(seed: random.seed, for: "later settings")
        if later.chance(0.2) { retention = 3600 }
        for type in ScenarioRegistry.all {
            let drops = type.traits.contains(.dropsOldest)
            guard drops || type.traits.contains(.refusesMore), later.chance(0.15) else { continue }
            caps.append(Cap(upstream: type.name, messages: later.from(15...40), drops: drops))
        }
    }

    mutating func limitRates(_ random: SeededRandom) {
        isAdaptive = random.chance(0.3)
        if random.chance(0.25) { maxRequestsPerSecond = random.pick([0.5, 3, 20]) }
        if random.chance(0.25) { maxMessagesPerSecond = random.pick([2, 10, 100]) }
    }

    func dropsOldest(of upstream: String) -> Bool { caps.contains { $0.upstream == upstream && $0.drops } }

    var description: String {
        let capped = caps.map { ", at most \($0.messages) of \($0.upstream)\($0.drops ? ", then the oldest go" : "")" }
        return "maxInFlight \(maxInFlight), batchMaxMessages \(batchMaxMessages), batchMaxWait \(batchMaxWait), "
            + "retention \(retention), of payloads \(payloadRetention)" + capped.joined()
            + (callbacks.map { ", \($0)" } ?? "")
            + (maxRequestsPerSecond > 0 ? ", \(maxRequestsPerSecond) requests a second" : "")
            + (maxMessagesPerSecond > 0 ? ", \(maxMessagesPerSecond) messages a second" : "")
            + (isAdaptive ? ", adaptive" : "")
            + (turns.isEmpty ? "" : ", turns by \(turns.joined(separator: ", then "))")
            + (admitsLanesAfter.map { ", lanes are admitted after \($0) s" } ?? "")
    }
}

/// The events about settled messages, which an upstream gets.
struct CallbackPlan: Sendable, CustomStringConvertible {
    /// The name of the type that gets them.
    let upstream: String
    let kind: String
    let states: [String]
    let includesPayload: Bool
    /// The alerts that the upstream gets, too.
    private(set) var events: [String] = []

    private static let allStates = ["delivered", "failed", "expired", "dropped"]

    init(to type: any TypeScenarios, _ random: SeededRandom) {
        (upstream, kind) = (type.name, type.kind)
        let some = Self.allStates.filter { _ in random.chance(0.6) }
        states = some.isEmpty || random.chance(0.5) ? Self.allStates : some
        includesPayload = random.chance(0.5)
    }

    /// Without events about messages.
    init(to type: any TypeScenarios) {
        (upstream, kind, states, includesPayload) = (type.name, type.kind, [], false)
    }

    mutating func addEvents(_ random: SeededRandom) {
        let all = AlertEvent.allCases.map(\.rawValue)
        let some = all.filter { _ in random.chance(0.7) }
        events = some.isEmpty || random.chance(0.7) ? all : some
    }

    var json: String {
        let quoted = states.map { "\"\($0)\"" }.joined(separator: ",")
        let told = events.map { "\"\($0)\"" }.joined(separator: ",")
        return #"{"upstream":"\#(upstream)","kind":"\#(kind)","states":[\#(quoted)],"events":[\#(told)],"#
            + #""includePayload":\#(includesPayload)}"#
    }

    var description: String { "\(upstream) is told what is \((states + events).joined(separator: ", "))" }
}

func oneDigit(_ number: Double) -> String { "\((number * 10).rounded() / 10)" }
