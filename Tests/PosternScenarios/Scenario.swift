package import PosternCore

/// What one caller has to tell its upstream.
package protocol Scenario: AnyObject {
    var mayBeScheduled: Bool { get }
    /// Whether what comes later stays valid if something is refused.
    var mayBeRefused: Bool { get }
    /// Of the requests, those that follow the response to the one before at once.
    var haste: Double { get }
    /// A secret that a user has handed in.
    var credential: String? { get }

    func next(_ count: Int, _ stage: Stage, poison: Double) -> [ScenarioItem]
    /// The last request was refused permanently.
    func refused(_ status: Int)
    /// A message that has to be refused for what was not said before it.
    func stray(_ stage: Stage) -> ScenarioItem?
    /// A message about something that went wrong for the user, besides all others.
    func report(_ stage: Stage) -> ScenarioItem?
    /// A call that is answered and not stored.
    func call(_ stage: Stage, isRead: Bool) -> ScenarioItem?
    /// Hands in a credential that was not used before.
    func freshCredential() -> ScenarioItem?
}

extension Scenario {
    package var mayBeScheduled: Bool { true }
    package var mayBeRefused: Bool { true }
    package var haste: Double { 0 }
    package var credential: String? { nil }
    package func refused(_ status: Int) {}
    package func stray(_ stage: Stage) -> ScenarioItem? { nil }
    package func report(_ stage: Stage) -> ScenarioItem? { nil }
    package func call(_ stage: Stage, isRead: Bool) -> ScenarioItem? { nil }
    package func freshCredential() -> ScenarioItem? { nil }
}

/// A payload, and what the world expects of it.
package struct ScenarioItem {
    /// The path of a request that is no message, with its method.
    package var kind: String
    package var payload: String
    package var entry: Expectations.Entry?
    package var method: String?
    /// A time of its own, whatever its caller schedules.
    package var notBefore: Timestamp?

    package init(_ kind: String, _ payload: String, _ entry: Expectations.Entry?, method: String? = nil) {
        (self.kind, self.payload, self.entry, self.method) = (kind, payload, entry, method)
        entry?.kind = kind
    }
}

/// Where a scenario is played: one moment at one upstream.
package struct Stage {
    package let upstream: String
    package let expectations: Expectations
    /// By the clock of the upstream.
    package let now: Timestamp
    package let random: SeededRandom

    package init(_ upstream: String, _ expectations: Expectations, now: Timestamp, _ random: SeededRandom) {
        (self.upstream, self.expectations, self.now, self.random) = (upstream, expectations, now, random)
    }

    package func begin(
        lane: String?, isPoison: Bool = false, leavesMark: Bool = true, isExempt: Bool = false
    ) -> Expectations.Entry {
        expectations.begin(upstream, lane: lane, isPoison: isPoison, leavesMark: leavesMark, isExempt: isExempt)
    }
}

extension Stage {
    /// Messages in lanes that are drawn, each of which may be poison.
    package func messages(
        _ count: Int, _ kind: String, in lanes: [String], poison: Double,
        payload: (String, Expectations.Entry) -> String
    ) -> [ScenarioItem] {
        (0..<count).map { _ in
            let lane = random.pick(lanes)
            let entry = begin(lane: lane, isPoison: random.chance(poison))
            return ScenarioItem(kind, payload(lane, entry), entry)
        }
    }

    /// A member that makes the simulator refuse poison, clearly, in doubt, or as if the credentials or the URL were wrong;
    /// empty for any other message.
    package func poisonMember(of entry: Expectations.Entry) -> String {
        let how = random.pick(["clear", "doubt", "401", "403", "404"])
        return entry.isPoison ? #","poison":"\#(how)""# : ""
    }
}

/// What no response, log line and metric may show begins with this.
package let secretPrefix = "PiTok-"

/// In as many digits as that.
package func hexadecimal(_ number: Int, _ digits: Int) -> String {
    let text = String(number, radix: 16)
    return String(repeating: "0", count: max(0, digits - text.count)) + text
}
