public import PosternCore

/// What is fixed about an upstream: facts, and functions that depend on nothing but their arguments and its settings.
public struct Traits: Sendable {
    /// Which messages may join a batch. Fixed for the life of a store, because its tables depend on it.
    public var laneRule = LaneRule.perLane
    /// Whether a request carries messages of one kind only, for example because each kind has its own address. If so,
    /// `plan` never gets messages of two kinds.
    public var sendsKindsApart = false
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
    /// Further members of the problem document of a store that is full, such as `seerCode`.
    public var codesWhenFull: (@Sendable (StoreFullReason) -> [String: Int])?

    public init() {}

    public init(_ set: (inout Traits) -> Void) { set(&self) }
}

extension Traits {
    /// Why the store rejects new messages for an upstream.
    public enum StoreFullReason: Sendable {
        /// The queue is at its cap.
        case queueFull
        case diskFull
    }
}
