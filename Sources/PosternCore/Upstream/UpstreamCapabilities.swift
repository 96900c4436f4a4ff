// Optional capabilities of an upstream. A type opts in by conforming.

/// Sends several messages in one request. Any other upstream sends each message alone, and each is a lane of its own.
public protocol BatchingUpstream: Upstream {
    /// Separate by default.
    var laneRule: LaneRule { get }
    /// Whether a request carries messages of one kind only, for example because each kind has its own address. If so,
    /// `plan` never gets messages of two kinds. False by default.
    var sendsKindsApart: Bool { get }
    /// The endpoint of all requests that carry messages of `kind`; nil if it depends on more than the kind, or if there is
    /// only one.
    func endpoint(of kind: Kind) -> String?
    /// What one request may carry, given what the configuration allows.
    func limits(_ configured: BatchLimits) -> BatchLimits
    /// The same for requests of one named lane; never more than the above.
    func limits(_ configured: BatchLimits, ofLane name: String) -> BatchLimits
}

extension BatchingUpstream {
    public var laneRule: LaneRule { .separate }
    public var sendsKindsApart: Bool { false }
    public func endpoint(of kind: Kind) -> String? { nil }
    /// The configured limits by default.
    public func limits(_ configured: BatchLimits) -> BatchLimits { configured }
    /// The same for every lane by default.
    public func limits(_ configured: BatchLimits, ofLane name: String) -> BatchLimits { limits(configured) }
}

/// Validates each message a second time when it is stored.
public protocol AcceptingUpstream: Upstream {
    /// Called inside the transaction that stores the message, with the upstream's state before it. Rejects the message
    /// by throwing, or changes the state. Runs on the writer's thread: it must be quick and do no
    /// I/O except through `state`.
    func accept(_ candidate: PendingMessage, in state: any UpstreamState) throws(AcceptanceError) -> [StateChange]
}

/// Has lanes that may not be in flight side by side, besides those of one group.
public protocol ExclusiveLanesUpstream: Upstream {
    /// A key that such lanes share; nil for a lane without one.
    func exclusion(ofLane name: String) -> String?
}

/// Has mixed lanes whose names are parts of the payload, so that operators can be told whose messages wait.
public protocol LaneNamingUpstream: Upstream {
    /// The text whose digest is the lane of an accepted message; nil if it has none.
    func laneName(of payload: JSONValue, of kind: Kind) -> String?
}

/// Sends a sequence of requests for a message.
public protocol SequencingUpstream: Upstream {
    /// The names of all steps, for their metrics.
    var steps: [String] { get }
}

/// Sends with a token that it has to request.
public protocol TokenUpstream: Upstream {
    var tokenSource: (any TokenSource)? { get }
    /// Whether the first token is fetched at the start and after a change of the settings, even if there is no message,
    /// so that wrong credentials are known before the first one.
    var verifiesAtStart: Bool { get }
}

extension TokenUpstream {
    /// True by default.
    public var verifiesAtStart: Bool { true }
}

/// Can be tried without a message. A type with a token needs this only if fetching one is not the way to try it.
public protocol ProbingUpstream: Upstream {
    /// Makes the cheapest request that shows whether the upstream accepts the credentials. The request must change
    /// nothing at the upstream. A type without such a request does not conform, and is only connected to.
    func probe(in context: any UpstreamRouteContext) async -> ProbeReport
}

/// Has further routes below `/v1/{upstream}/`.
public protocol RoutingUpstream: Upstream {
    var resources: [UpstreamRoute] { get }
}

/// Has its own error codes for a store that is full, for example `seerCode`.
public protocol RejectionCodesUpstream: Upstream {
    /// Further members of the problem document.
    func codes(for refusal: StoreFullReason) -> [String: Int]
}

/// Has clients that define names for events, under which they are counted, logged, and shown in the event stream.
public protocol EventNamingUpstream: Upstream {
    func name(of event: UpstreamEvent) -> String?
    /// The clients' error for an event that is a failure.
    func failure(of event: UpstreamEvent) -> NamedEvent.Failure?
}

/// Has kinds whose order and time are part of their meaning, so that `notBefore` would distort it.
public protocol TimedKindsUpstream: Upstream {
    /// Kinds for which `notBefore` is rejected.
    var timedKinds: Set<Kind> { get }
}

/// Knows sessions, named by the header `Postern-Session`. A queued message belongs to none, so a message with that
/// header is rejected rather than sent as another user.
public protocol SessionUpstream: Upstream {
    var hasSessions: Bool { get }
}

extension SessionUpstream {
    public var hasSessions: Bool { true }
}

/// Is created from settings, some of which are secret or must not be empty.
public protocol SettingsHoldingUpstream: Upstream {
    /// Its URL, to which a probe connects.
    var address: String { get }
    /// Required settings that are empty: messages wait for `credentials` until they are set.
    var missingSettings: [String] { get }
    /// Values that must not be shown anywhere: keys, passwords, credentials in headers.
    var secrets: [String] { get }
}
