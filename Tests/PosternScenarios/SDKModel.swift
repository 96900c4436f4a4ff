package import PosternCore

/// A vendor's SDK in one app, as a value: what it keeps, the requests that it makes, and what it makes of their answers. It
/// posts to whatever has the place of its platform: the gateway in the simulated world, or the platform's simulator.
package protocol SDKModel {
    /// Whether it keeps nothing that it sends again, and waits for no answer.
    var isEmpty: Bool { get }
    /// The tokens of its users.
    var credentials: [String] { get }

    /// The app reports something, or makes a call.
    mutating func use(_ stage: Stage, poison: Double)
    /// The requests that it makes now, all at once. Called after each use and each answer, and when its timer fires, which it
    /// does as long as the SDK is not empty.
    mutating func calls(at now: Timestamp, timerFired: Bool) -> [SDKCall]
    /// Takes the answer to one of its requests; nil if none arrived in time.
    mutating func take(_ reply: SDKReply?, to call: SDKCall) -> SDKVerdict
    /// The faults have ended, and the app is not used any more. What its SDK has is still sent.
    mutating func finish()
    /// Whether the platform's complaint is about what the SDK has done, or lost, by its own defects.
    func explains(_ violation: String) -> Bool
    /// What its calls should have left otherwise in the state that its platform shows; nil if nothing.
    func mismatch(with platform: String) -> String?
}

extension SDKModel {
    package var credentials: [String] { [] }
    package mutating func finish() {}
    package func explains(_ violation: String) -> Bool { false }
    package func mismatch(with platform: String) -> String? { nil }
}

/// A request of an SDK.
package struct SDKCall {
    /// Unique among the requests of its SDK.
    package let number: Int
    package let method: String
    /// Below the SDK's base URL, with the query.
    package let path: String
    package let headers: [(name: String, value: String)]
    package let body: String
    /// What it carries.
    package let entries: [Expectations.Entry]
    package var isCompressed = false
    /// How long the SDK waits for the answer.
    package var timeout = Duration.seconds(30)

    package init(
        _ number: Int, _ path: String, method: String = "POST", headers: [(name: String, value: String)],
        body: String = "", _ entries: [Expectations.Entry] = []
    ) {
        (self.number, self.method, self.path, self.headers) = (number, method, path, headers)
        (self.body, self.entries) = (body, entries)
    }
}

package struct SDKReply {
    package let status: Int
    package let text: String

    package init(_ status: Int, _ text: String) { (self.status, self.text) = (status, text) }
}

/// What an answer means to an SDK.
package enum SDKVerdict {
    /// All that the request carried is accepted: the SDK forgets it.
    case accepted
    /// The SDK keeps it, or tells its app that the call has failed. The platform might have answered so, too.
    case kept
    /// The SDK tells its app that the call has failed, but it is made all the same, once a token is there that is good.
    case postponed
    /// The SDK keeps it. The gateway must not answer so while it knows, by its clock, what it has told the SDK.
    case forgotten(String)
    /// The gateway must not answer so.
    case unexpected(String)
}

/// Where an SDK is installed.
package struct SDKDevice {
    package let number: Int
    /// Of the world.
    package let seed: UInt64
    package let random: SeededRandom
    /// An API key of the gateway, for an SDK that can be given one.
    package let key: String
    /// Whether the app reports what breaks the rules of its kind. An operator who retries that makes the gateway send it.
    package let reportsInvalid: Bool

    package init(_ number: Int, seed: UInt64, key: String = "", reportsInvalid: Bool = false) {
        (self.number, self.seed, self.key, self.reportsInvalid) = (number, seed, key, reportsInvalid)
        random = SeededRandom(seed: seed, for: "device \(number)")
    }
}

extension Stage {
    /// What an app reports to its SDK.
    package func beginOfSDK(_ kind: String, lane: String?, isPoison: Bool = false) -> Expectations.Entry {
        let entry = begin(lane: lane, isPoison: isPoison)
        (entry.kind, entry.isFromSDK) = (kind, true)
        return entry
    }
}
