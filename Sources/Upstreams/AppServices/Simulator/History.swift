import PosternCore
import PosternSimulatorKit

/// What the gateway knows so far, and so what it must not send next (specification, sections 3.4, 5, and 6).
///
/// Responses that were lost on purpose do not count, because the gateway cannot know them. It is assumed to have known
/// nothing at the beginning.
struct History: Sendable {
    private struct Device: Sendable {
        /// By an answer, or by the control.
        var isRegistered = false
        var wasRegistered = false
        /// The newest last, at most eight.
        var registrations: [(token: String, at: MonotonicInstant, turn: Int)] = []
        /// Tokens of registrations whose connect has not been answered permanently, at most eight.
        var unfinished: [String] = []
        var connected: (user: String, turn: Int)?
        var disconnects: [String: Int] = [:]
        /// Users whose connect was answered with not found, until the device is registered again.
        var missed: Set<String> = []
        var notifier: String?
        /// Steps and users with a refused token; refused again with a fresh one they are given up.
        var refused: Set<String> = []
    }
    private enum AfterMiss: Sendable { case mustLookUp, lookedUp }

    private var devices: [String: Device] = [:]
    /// Looked up and not found, ever.
    private var groupsEverMissing: Set<String> = []
    /// Looked up and not found, and not created since.
    private var groupsMissing: Set<String> = []
    /// By group and user: an addition was answered with not found.
    private var additionsMissed: [String: [String: AfterMiss]] = [:]
    /// Digests of metrics that were sent and not acknowledged.
    private var unclearMetrics: Set<UInt64> = []
    /// Files of crashes that metrics have named.
    private var reportedCrashes: Set<String> = []
    private var turn = 0

    // MARK: Before the answer

    /// What the gateway should not have sent.
    mutating func objections(
        to call: Call, _ step: Call.Step, _ tokens: Tokens,
        _ settings: AppServicesSettings, now: MonotonicInstant
    ) -> [String] {
        turn += 1
        let grace = Duration.milliseconds(settings.graceMilliseconds)
        var objections: [String] = []
        if let token = call.auth.flatMap({ tokens[$0.token] }) {
            if let refusal = token.refusal {
                let isUnderWay = refusal.lane != Self.lane(of: call, step, token) && now - refusal.at <= grace
                if !isUnderWay { objections.append("a refused token is sent again") }
            }
            if let user = call.user?.lowercased(), let owner = token.owner, user != owner {
                objections.append("one user's token for another user")
            }
        }
        switch step {
        case .connect: objections += objectionsToConnect(call)
        case .savePreferences: objections += objectionsToPreferences(call, tokens)
        case .unregisterDevice: objections += objectionsToBlanking(call, tokens, now: now, grace: grace)
        case .createGroup, .addUser, .removeUser: objections += objectionsToGroup(call, step, settings)
        case .metrics:
            if unclearMetrics.contains(Self.digest(of: call)) { objections.append("metrics are sent again") }
        default: break
        }
        return objections.map { "\(step.rawValue): \($0)" }
    }

    /// The crashes that metrics name. `texts`: the files that the platform holds.
    mutating func objectionsToCrashes(in call: Call, texts: Set<String>) -> [String] {
        var objections: [String] = []
        for log in call.json?["logs"]?.elements ?? [] where log["tag"]?.string == "CRASH" {
            let file = log["logMessage"]?.string ?? ""
            if log["logLevel"]?.string != "A" { objections.append("a crash that is not logged with level A") }
            if !texts.contains(file) { objections.append("a crash whose text was not uploaded before") }
            if !reportedCrashes.insert(file).inserted { objections.append("a crash is reported again") }
        }
        return objections.map { "\(Call.Step.metrics.rawValue): \($0)" }
    }

    private func objectionsToConnect(_ call: Call) -> [String] {
        let device = devices[call.device ?? ""] ?? Device()
        var objections: [String] = []
        if !device.isRegistered { objections.append("the device is not registered") }
        if device.missed.contains(call.user?.lowercased() ?? "") {
            objections.append("not found before, and the device was not registered again")
        }
        return objections
    }

    private func objectionsToPreferences(_ call: Call, _ tokens: Tokens) -> [String] {
        let id = call.device ?? ""
        guard let device = devices[id], device.wasRegistered else { return ["the device was never registered"] }
        guard let token = call.auth?.token else { return [] }
        let user = tokens[token]?.user
        let isOurs = device.unfinished.contains { $0 == token || user != nil && tokens[$0]?.user == user }
        return isOurs ? ["the registration of \(id) is not connected yet"] : []
    }

    private func objectionsToBlanking(
        _ call: Call, _ tokens: Tokens, now: MonotonicInstant, grace: Duration
    ) -> [String] {
        guard let device = devices[call.device ?? ""] else { return ["the user was not disconnected before"] }
        var objections: [String] = []
        let lastLeft = device.disconnects.max { $0.value < $1.value }?.key
        let user = call.auth.flatMap { tokens[$0.token]?.user } ?? lastLeft
        let own = device.registrations.last { user == nil || tokens[$0.token]?.user == user }?.turn ?? 0
        if device.disconnects[user ?? ""] ?? -1 < own { objections.append("the user was not disconnected before") }
        if let notifier = device.notifier, notifier != call.notifier {
            objections.append("another notifier than the device is registered with")
        }
        if let last = device.registrations.last {
            let isConnected = device.connected.map { $0.turn > last.turn } ?? false
            let holder = tokens[last.token]?.user ?? (isConnected ? device.connected?.user : nil)
            if let user, let holder, holder != user, isConnected || now - last.at > grace {
                objections.append("another user has registered the device since")
            }
        }
        return objections
    }

    private func objectionsToGroup(
        _ call: Call, _ step: Call.Step, _ settings: AppServicesSettings
    ) -> [String] {
        let group = call.group?.lowercased() ?? ""
        switch step {
        case .createGroup where settings.onlyExistingGroups: return ["only existing groups are to be used"]
        case .createGroup:
            return groupsEverMissing.contains(group) ? [] : ["no look-up said that the group is missing"]
        case .addUser where additionsMissed[group]?[call.user?.lowercased() ?? ""] == .mustLookUp:
            return ["not found before, and the group was not looked up again"]
        default: return groupsMissing.contains(group) ? ["the group is missing"] : []
        }
    }

    // MARK: After the answer

    /// Records what a response that arrives tells the gateway.
    mutating func learn(
        _ told: KnownResult, _ call: Call, _ step: Call.Step,
        _ tokens: inout Tokens, now: MonotonicInstant
    ) {
        if told == .refusedToken, !step.isMonitoring, let text = call.auth?.token, let token = tokens[text] {
            tokens.recordRefusal(of: text, at: now, lane: Self.lane(of: call, step, token))
        }
        let user = call.user?.lowercased() ?? ""
        let isFinal = settle(told, call, "\(step.rawValue) \(user)")
        let group = call.group?.lowercased() ?? ""
        switch step {
        case .registerDevice:
            if told == .ok { registered(call, now) }
        case .unregisterDevice:
            if told == .ok { devices[call.device ?? "", default: Device()].isRegistered = false }
        case .connect:
            if isFinal { connected(call, user, told, tokens) }
        case .disconnect:
            if isFinal { devices[call.device ?? "", default: Device()].disconnects[user] = turn }
        case .getGroup: lookedUp(group, told)
        case .createGroup:
            if told == .ok || told == .done { groupsMissing.remove(group) }
        case .addUser:
            guard isFinal else { break }
            let isFirstMiss = told == .notFound && additionsMissed[group]?[user] == nil
            additionsMissed[group, default: [:]][user] = isFirstMiss ? .mustLookUp : nil
        default: break
        }
    }

    /// Whether the gateway continues, whatever the outcome of the step was.
    private mutating func settle(_ told: KnownResult, _ call: Call, _ key: String) -> Bool {
        switch told {
        case .retry, .configuration: return false
        case .ok, .done, .notFound, .permanent, .unreadable:
            if let id = call.device { devices[id]?.refused.remove(key) }
            return true
        case .refusedToken:
            guard let id = call.device else { return false }
            if devices[id, default: Device()].refused.insert(key).inserted { return false }
            devices[id]?.refused.remove(key)
            return true
        }
    }

    private mutating func registered(_ call: Call, _ now: MonotonicInstant) {
        guard let id = call.device, let token = call.auth?.token else { return }
        var device = devices[id] ?? Device()
        (device.isRegistered, device.wasRegistered) = (true, true)
        device.registrations = device.registrations.suffix(7) + [(token, now, turn)]
        device.unfinished = device.unfinished.filter { $0 != token }.suffix(7) + [token]
        device.missed = []
        device.notifier = call.notifier
        devices[id] = device
    }

    private mutating func connected(
        _ call: Call, _ user: String, _ told: KnownResult, _ tokens: Tokens
    ) {
        guard let id = call.device else { return }
        var device = devices[id] ?? Device()
        device.unfinished.removeAll { $0 == call.auth?.token || tokens[$0]?.user == user }
        if told == .ok { device.connected = (user, turn) }
        if told == .notFound { device.missed.insert(user) }
        devices[id] = device
    }

    private mutating func lookedUp(_ group: String, _ told: KnownResult) {
        guard told == .ok || told == .notFound else { return }
        additionsMissed[group] = additionsMissed[group]?.mapValues { _ in .lookedUp }
        if told == .ok {
            groupsMissing.remove(group)
        } else {
            groupsMissing.insert(group)
            groupsEverMissing.insert(group)
        }
    }

    /// Remembers metrics that were written to the connection and not acknowledged.
    mutating func learnUnclear(_ call: Call) { unclearMetrics.insert(Self.digest(of: call)) }

    /// The gateway is supposed to know this device.
    mutating func know(device id: String, notifier: String?) {
        var device = devices[id] ?? Device()
        (device.isRegistered, device.wasRegistered) = (true, true)
        device.notifier = notifier
        devices[id] = device
    }

    // MARK: Parts

    /// Requests of one lane never overlap: those for a device, those about groups.
    private static func lane(
        of call: Call, _ step: Call.Step, _ token: Tokens.Token
    ) -> String {
        if call.group != nil || step == .createGroup { return "groups" }
        // An SDK's user names no device, so the gateway sends it next to what does.
        return step == .registerUser ? "users" : call.device ?? token.lastDevice ?? "users"
    }

    private static func digest(of call: Call) -> UInt64 {
        PosternSimulatorKit.digest(of: call.json?.canonical ?? "")
    }
}
