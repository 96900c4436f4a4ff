public import PosternCore

/// What is fixed about an upstream: facts, and functions that depend on nothing but their arguments and its settings.
public struct Traits: Sendable {
    /// Which messages may join a batch. Fixed for the life of a store, because its tables depend on it.
    public var laneRule = LaneRule.perLane
    /// Whether a request carries messages of one kind only, for example because each kind has its own address. If so,
    /// `plan` never gets messages of two kinds.
    public var sendsKindsApart = false
    /// The kinds that the configuration defines, with the JSON Schema of their payloads, which is `{}` for any. The
    /// description of the API has an operation for each.
    public var documentedKinds: [Kind: [UInt8]] = [:]
    /// How much may be sent of a kind, in addition to the limits of the upstream. Only for a type that sends kinds
    /// apart.
    public var rates: [Kind: Rate] = [:]
    /// Kinds whose order and time are part of their meaning, so that `notBefore` would distort it, and is rejected.
    public var timedKinds: Set<Kind> = []
    /// The names of the steps of its sequences, for their metrics; empty if a message is one request.
    public var steps: [String] = []
    /// Whether it has sessions, named by the header `Postern-Session`. A queued message belongs to none, so a message with
    /// that header is rejected rather than sent as another user.
    public var hasSessions = false
    /// Its routes below `/v1/{upstream}/`, besides those of its kinds.
    public var routes: [UpstreamRoute] = []
    /// A key that lanes share that may not be in flight side by side, besides those of one group; nil for a lane without
    /// one.
    public var exclusion: (@Sendable (_ lane: String) -> String?)?
    /// For mixed lanes whose names are parts of the payload, so that operators can be told whose messages wait: the text
    /// whose digest is the lane of an accepted message; nil if it has none.
    public var laneName: (@Sendable (_ payload: JSONValue, Kind) -> String?)?
    /// Kinds that have no messages of their own: a payload of such a kind becomes a message of each of its legs.
    public var fanOuts: [Kind: [Leg]] = [:]
    /// Further members of the problem document of a store that is full, such as `seerCode`.
    public var codesWhenFull: (@Sendable (StoreFullReason) -> [String: Int])?

    public init() {}

    public init(_ set: (inout Traits) -> Void) { set(&self) }
}

extension Traits {
    /// A kind that gets the payloads of a fan-out.
    public struct Leg: Sendable, Hashable, CustomStringConvertible {
        /// The name of its upstream.
        public let upstream: String
        public let kind: String

        /// - Parameters:
        ///   - text: The name of a kind, or `upstream/kind`.
        ///   - upstream: That of the fan-out, which a kind without an upstream belongs to.
        public init(_ text: String, of upstream: UpstreamName) {
            let parts = text.split(separator: "/", maxSplits: 1, omittingEmptySubsequences: false).map(String.init)
            self.upstream = parts.count == 2 ? parts[0] : upstream.description
            kind = parts[parts.count - 1]
        }

        public var description: String { "\(upstream)/\(kind)" }
    }

    /// How much may be sent in a second; 0 means no limit.
    public struct Rate: Sendable, Equatable {
        public var requests: Double
        public var messages: Double

        public init(requests: Double = 0, messages: Double = 0) {
            self.requests = requests
            self.messages = messages
        }
    }

    /// Why the store rejects new messages for an upstream.
    public enum StoreFullReason: Sendable {
        /// The queue is at its cap.
        case queueFull
        case diskFull
    }
}
