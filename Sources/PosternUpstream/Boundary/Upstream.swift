public import PosternCore

/// One remote API that Postern forwards to.
///
/// An implementation only translates: it owns no clock, no socket and no store, so its tests need none. All its
/// methods may be called from any thread, `validate` from many at once.
///
/// Its settings contain secrets, so its description shows only its name.
///
/// These are the requirements for every type. `traits` says what is fixed about it. For what it does besides, it conforms
/// to protocols of `UpstreamCapabilities.swift`, which `AnyUpstream` looks up once.
public protocol Upstream: Sendable, CustomStringConvertible {
    var name: UpstreamName { get }
    /// The kinds of payloads that it accepts.
    var kinds: [Kind] { get }
    /// By default, those of a type that sends each message alone, in an order of its own.
    var traits: Traits { get }

    /// Checks a payload and says how it is to be stored. Runs before anything is stored, on the write path.
    func validate(_ payload: JSONValue, of kind: Kind, in context: ValidationContext) throws(InvalidPayload)
        -> ValidPayload

    /// What to do next with the oldest messages of a lane (or, with mixed lanes, of the queue). Pure: the same
    /// messages and context always give the same plan.
    func plan(for messages: [Message], in context: PlanContext) -> Plan

    /// Returns what `response` means for `batch`. An unreadable response has a verdict, too. Pure, like `plan`: it
    /// reads a snapshot of the state, and may be called more than once.
    func judge(_ response: UpstreamResponse, to batch: Batch, in context: PlanContext) -> Decision

    /// The same for a request that got no response. By default, the batch is sent again later.
    func judge(_ failure: TransferFailure, to batch: Batch, in context: PlanContext) -> Decision
}

extension Upstream {
    public var description: String { name.description }
    public var traits: Traits { Traits() }

    public func judge(_ failure: TransferFailure, to batch: Batch, in context: PlanContext) -> Decision {
        Decision(.retry(after: nil))
    }
}

/// What a plan may depend on.
public struct PlanContext {
    /// Wall-clock time of the send.
    public let now: Timestamp
    /// The current token; never nil for an upstream with a `tokenSource`.
    public let token: Token?
    /// One consistent snapshot.
    public let state: any UpstreamState
    /// The last message that an operator's latest flush covers. Messages up to that one do not wait for a schedule.
    let flushedThrough: MessageID?

    public init(now: Timestamp, token: Token?, state: any UpstreamState, flushedThrough: MessageID? = nil) {
        self.now = now
        self.token = token
        self.state = state
        self.flushedThrough = flushedThrough
    }

    /// Whether a flush covers the message.
    public func isFlushed(_ message: Message) -> Bool { flushedThrough.map { message.id <= $0 } ?? false }
}

/// Events of an upstream, for types whose clients define names for them.
public enum UpstreamEvent: Sendable, Equatable {
    case tokenFetched
    /// A token is available again, for the first time since the start or since there was none.
    case ready
    /// A request that carried messages has ended.
    case batchEnded
    /// A message of that kind was delivered or rejected.
    case settled(Kind)
    case flushFinished
}

/// What to do next with the oldest messages.
public enum Plan: Sendable {
    /// Send `request`, which carries the first `count` of them.
    case send(UpstreamRequest, count: Int)
    /// Nothing has to be sent for the first `count` of them. `steps`: see `Judgement.steps`; `changes`: see
    /// `Decision.changes`.
    case settle(
        count: Int, as: MessageState, reason: String, steps: [StepResult] = [], changes: StateChanges? = nil)
    /// Not yet.
    case wait(WaitReason, until: Timestamp)
    /// Wait until a caller hands in a credential for the lane's group.
    case park
}
