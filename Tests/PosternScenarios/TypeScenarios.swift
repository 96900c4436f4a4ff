package import PosternSimulatorKit

/// What the simulated world has to know of a type of upstream: what its users do, and what the world must not expect of
/// every type.
package protocol TypeScenarios: Sendable {
    /// The name of the type.
    var name: String { get }
    /// One of its kinds.
    var kind: String { get }
    var traits: Set<Trait> { get }
    /// Which items its simulator refuses.
    var poisons: [Faults.Poison] { get }
    /// The status with which it refuses credentials.
    var unauthorizedStatus: Int { get }

    /// Members of its configuration, the same for the same seed.
    func settings(sendsGzip: Bool, seed: UInt64) -> [String]
    /// The requests of a kind that are allowed in a second, of kinds with such a limit, the same for the same seed.
    func rates(seed: UInt64) -> [String: Double]
    /// How its simulator begins.
    func opening(_ random: SeededRandom) -> Opening
    /// The users of one caller.
    func scenario(of caller: Int) -> any Scenario
    func asksForToken(_ request: SimulatedRequest) -> Bool
    /// A payload that the gateway has to refuse.
    func invalidPayload(_ mark: String) -> String
    /// Whether taking the item means that its message has been delivered: not a step of it, nor the end of what it began.
    func isDelivery(_ item: [UInt8]) -> Bool
    /// Whether an item that was taken does not show which message it belongs to, so that its request has to.
    func isMarkedByRequest(_ item: [UInt8]) -> Bool
    /// How its tokens die, and those that users have handed in. The larger `share` is, the more of what depends on them is
    /// under way.
    func death(share: Double, of credentials: [String]) -> TokenDeath
    /// A payload that nothing is wrong with, in a lane of its own; nil if no doubtful answer can hold up every lane.
    func filler(_ mark: String) -> String?
    /// The kinds that each go to an endpoint of their own, and are a lane of their own; empty if there are not several.
    var endpoints: [Endpoint] { get }
    /// What its simulator's `/control` is told before it gets what it has, and after; nil if it takes everything again.
    var existing: (begin: String, end: String)? { get }
    /// Members of its setting `sdk`, the same for the same seed; nil if it does not answer the SDK of its platform.
    /// `hasKeys`: whether API keys are configured.
    func sdkSettings(seed: UInt64, hasKeys: Bool) -> [String]?
    /// The SDK of its platform; nil if it does not answer it.
    func sdk(on device: SDKDevice) -> (any SDKModel)?
    /// Whether a gateway may send something wrong after it was restarted, or after its clock was set.
    func forgives(_ violation: String, wasRestarted: Bool, wasClockSet: Bool) -> Bool
}

/// What holds for some types.
package enum Trait: Sendable {
    /// A refusal of credentials, and a wrong URL, show in the status alone.
    case plainStatuses
    /// Each request has messages alone, and all of them go to one URL.
    case oneEndpoint
    /// What can be sent is sent, whatever becomes of other messages.
    case independent
    /// A 422 to a request rejects each message of it.
    case rejectsByStatus
    /// Requests are signed with the time, so a clock that is wrong keeps them from being taken.
    case signedWithTime
    /// The gateway keeps credentials of its users, encrypted.
    case keepsCredentials
    /// Some of its messages are sent once, so no operator queues them again.
    case sendsOnce
    /// It also answers calls that are not stored.
    case answersCalls
    /// Some worlds limit its queue, which then drops the oldest message, or refuses new ones.
    case dropsOldest, refusesMore
}

/// An endpoint, and the kind that goes there.
package struct Endpoint: Sendable {
    package let kind: String
    /// The beginning of the path.
    package let path: String
    /// A payload that nothing is wrong with, with a mark.
    package let payload: @Sendable (String) -> String

    package init(_ kind: String, path: String, payload: @escaping @Sendable (String) -> String) {
        (self.kind, self.path, self.payload) = (kind, path, payload)
    }
}

/// How a simulator begins.
package struct Opening {
    /// What its `/control` is told.
    package var control: [String]
    /// How long its tokens live.
    package var tokenLife: Duration

    package init(_ control: [String] = [], tokenLife: Duration = .seconds(3600)) {
        (self.control, self.tokenLife) = (control, tokenLife)
    }
}

package enum TokenDeath {
    /// What `/control` is told at once.
    case now([String])
    /// What it is told while several requests that carry the token are under way.
    case whenBusy(String)
}

extension TypeScenarios {
    package var traits: Set<Trait> { [] }
    package var poisons: [Faults.Poison] { [] }
    package var unauthorizedStatus: Int { 403 }

    package func settings(sendsGzip: Bool, seed: UInt64) -> [String] { [] }
    package func rates(seed: UInt64) -> [String: Double] { [:] }
    package func opening(_ random: SeededRandom) -> Opening { Opening() }
    package func asksForToken(_ request: SimulatedRequest) -> Bool { false }
    package func invalidPayload(_ mark: String) -> String { #"["\#(mark)"]"# }
    package func isDelivery(_ item: [UInt8]) -> Bool { true }
    package func isMarkedByRequest(_ item: [UInt8]) -> Bool { false }
    package func death(share: Double, of credentials: [String]) -> TokenDeath { .now([]) }
    package func filler(_ mark: String) -> String? { nil }
    package var endpoints: [Endpoint] { [] }
    package var existing: (begin: String, end: String)? { nil }
    package func sdkSettings(seed: UInt64, hasKeys: Bool) -> [String]? { nil }
    package func sdk(on device: SDKDevice) -> (any SDKModel)? { nil }
    package func forgives(_ violation: String, wasRestarted: Bool, wasClockSet: Bool) -> Bool { false }
}
