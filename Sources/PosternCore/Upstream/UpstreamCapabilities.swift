// What an upstream can do besides the least. A type opts in by conforming.

/// Sends several messages in one request. Any other upstream sends each alone, in lanes of their own.
public protocol BatchingUpstream: Upstream {
    /// Separate unless it says otherwise.
    var laneRule: LaneRule { get }
    /// What one request may carry, given what the configuration allows.
    func limits(_ configured: BatchLimits) -> BatchLimits
    /// The same for requests of one named lane; never more than the above.
    func limits(_ configured: BatchLimits, ofLane name: String) -> BatchLimits
}

extension BatchingUpstream {
    public var laneRule: LaneRule { .separate }
    public func limits(_ configured: BatchLimits) -> BatchLimits { configured }
    public func limits(_ configured: BatchLimits, ofLane name: String) -> BatchLimits { limits(configured) }
}

/// Looks at each message a second time when it is stored.
public protocol AcceptingUpstream: Upstream {
    /// Called inside the transaction that stores the message, with the upstream's state before it. Refuses the message
    /// by throwing a `Refusal`, or changes the state. Runs on the writer's thread: quick, and no I/O but `state`.
    func accept(_ candidate: Candidate, in state: any UpstreamState) throws -> [StateChange]
}

/// Keeps what became of its messages in the store.
public protocol StatefulUpstream: Upstream {
    /// Returns what changes in the state by the result of a request. Called once, inside the transaction that settles
    /// the batch: `context` holds the state as that transaction has left it, with all that was accepted since the
    /// verdict. An error fails the transaction, which is tried again.
    func changes(after result: TransferResult, to batch: Batch, in context: PlanContext) throws -> [StateChange]
    /// As above for messages that a plan settles as `end` without a request.
    func changes(settling messages: [Message], as end: MessageState, in context: PlanContext) throws -> [StateChange]
}

extension StatefulUpstream {
    public func changes(
        settling messages: [Message], as end: MessageState, in context: PlanContext
    ) throws -> [StateChange] { [] }
}

/// Judges requests that got no response, where sending the batch again later does not suit all of them.
public protocol FailureJudgingUpstream: Upstream {
    /// Nil sends the batch again later.
    func judge(_ failure: TransferFailure, to batch: Batch, in context: PlanContext) throws -> Judgement?
}

/// Knows something for the time of this run only, such as a cache.
public protocol CachingUpstream: Upstream {
    /// Called once after the result of a request is on disk, with the changes it made. Runs on the worker's thread.
    func settled(_ batch: Batch, by result: TransferResult, with changes: [StateChange])
}

/// Has lanes that may not be in flight side by side, besides those of one group.
public protocol ExclusiveLanesUpstream: Upstream {
    /// What such lanes have in common; nil for nothing.
    func exclusion(ofLane name: String) -> String?
}

/// Sends with a token that it has to ask for.
public protocol TokenUpstream: Upstream {
    var tokenSource: (any TokenSource)? { get }
}

/// Answers more than posts of messages: paths of its own below `/v1/{upstream}/`.
public protocol ResourceUpstream: Upstream {
    var resources: [Resource] { get }
}

/// Has codes of its own for a store that is full, e.g. `seerCode`.
public protocol RefusalCodesUpstream: Upstream {
    /// Further members of the problem document.
    func codes(for refusal: StoreRefusal) -> [String: Int]
}

/// Has clients that call events by names, under which they are counted and logged.
public protocol EventNamingUpstream: Upstream {
    func name(of event: UpstreamEvent) -> String?
}

/// Has kinds whose order and time is part of their meaning, so that `notBefore` would falsify it.
public protocol TimedKindsUpstream: Upstream {
    /// Kinds that refuse `notBefore`.
    var timedKinds: Set<Kind> { get }
}

/// Knows sessions, named by the header `Postern-Session`. What is queued is in none, so a message that comes with one is
/// refused rather than sent as another user.
public protocol SessionUpstream: Upstream {
    var hasSessions: Bool { get }
}

extension SessionUpstream {
    public var hasSessions: Bool { true }
}

/// Is made from settings, some of which are secret or cannot be left empty.
public protocol SettingsHoldingUpstream: Upstream {
    /// Settings without which nothing can be sent, and which are empty: its messages wait for `credentials`.
    var missingSettings: [String] { get }
    /// Texts that are shown nowhere: keys, passwords, credentials in headers.
    var secrets: [String] { get }
}
