public import PosternCore

// Optional capabilities of an upstream. A type opts in by conforming.

/// Sends several messages in one request. Any other upstream sends each message alone.
public protocol BatchingUpstream: Upstream {
    /// The endpoint of all requests that carry messages of `kind`; nil if it depends on more than the kind, or if there is
    /// only one.
    func endpoint(of kind: Kind) -> String?
    /// What one request may carry, given what the configuration allows.
    func limits(_ configured: BatchLimits) -> BatchLimits
    /// The same for requests of one named lane; never more than the above.
    func limits(_ configured: BatchLimits, ofLane name: String) -> BatchLimits
}

extension BatchingUpstream {
    public func endpoint(of kind: Kind) -> String? { nil }
    /// The configured limits by default.
    public func limits(_ configured: BatchLimits) -> BatchLimits { configured }
    /// The same for every lane by default.
    public func limits(_ configured: BatchLimits, ofLane name: String) -> BatchLimits { limits(configured) }
}

/// Validates each message a second time when it is stored.
public protocol StateValidatingUpstream: Upstream {
    /// Called inside the transaction that stores the message, with the upstream's state before it. Rejects the message
    /// by throwing, or changes the state. Runs on the writer's thread: it must be quick and do no
    /// I/O except through `state`.
    func validate(_ candidate: PendingMessage, against state: any UpstreamState) throws(AcceptanceError)
        -> [StateChange]
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

/// Has clients that define names for events, under which they are counted, logged, and shown in the event stream.
public protocol EventNamingUpstream: Upstream {
    func name(of event: UpstreamEvent) -> String?
    /// The clients' error for an event that is a failure.
    func failure(of event: UpstreamEvent) -> NamedEvent.Failure?
}

/// Serves the SDKs of its platform in the platform's place.
public protocol SDKServingUpstream: Upstream {
    /// Nil unless the setting `sdk.enabled` is true.
    var sdk: SDKEndpoints? { get }
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
