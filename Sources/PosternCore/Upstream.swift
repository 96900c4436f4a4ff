/// One remote API that Postern forwards to.
///
/// An implementation only translates: it owns no clock, no socket and no store, so its tests need none. All its
/// methods may be called from any thread, `admit` from many at once.
///
/// Its settings hold secrets: printed, it shows its name and no more.
public protocol Upstream: Sendable, CustomStringConvertible {
    var name: UpstreamName { get }
    /// What may be posted to it.
    var kinds: [Kind] { get }
    var laneRule: LaneRule { get }

    /// Checks a payload and says how it is to be stored. Runs before anything is stored, on the write path.
    func admit(_ payload: JSONValue, of kind: Kind, in context: AdmissionContext) throws(InvalidPayload) -> Admission

    /// Does `accept` have anything to say? When not, the write path leaves it out.
    var acceptsByState: Bool { get }
    /// A second look inside the transaction that stores the message, with the upstream's state before it; may refuse
    /// the message by throwing a `Refusal`, or change the state. Runs on the writer's thread: quick, and no I/O but
    /// `state`.
    func accept(_ candidate: Candidate, in state: any UpstreamState) throws -> [StateChange]

    /// What one request may carry, given what the configuration allows.
    func limits(_ configured: BatchLimits) -> BatchLimits
    /// The same for requests of one named lane; never more than the above.
    func limits(_ configured: BatchLimits, ofLane name: String) -> BatchLimits

    /// What to do next with the oldest messages of a lane (or, with mixed lanes, of the queue). Pure: the same
    /// messages and context always give the same plan. Throws only if the state cannot be read, as do the four below.
    func plan(for messages: [Message], in context: PlanContext) throws -> Plan

    /// Returns what `response` means for `batch`. An unreadable response is a verdict too. Pure, like `plan`: it reads a
    /// snapshot of the state, and may be called more than once.
    func judge(_ response: UpstreamResponse, to batch: Batch, in context: PlanContext) throws -> Judgement

    /// As above if there was no response. Nil sends the batch again later, which suits all that may be sent twice.
    func judge(_ failure: TransferFailure, to batch: Batch, in context: PlanContext) throws -> Judgement?

    /// Returns what changes in the state by the result of a request. Called once, inside the transaction that settles
    /// the batch: `context` holds the state as that transaction has left it, with all that was accepted since the
    /// verdict. An error fails the transaction, which is tried again.
    func changes(after result: TransferResult, to batch: Batch, in context: PlanContext) throws -> [StateChange]

    /// As above for messages that a plan settles as `end` without a request.
    func changes(settling messages: [Message], as end: MessageState, in context: PlanContext) throws -> [StateChange]

    /// Called once after the result of a request is on disk, with the changes it made, for what only this run knows,
    /// such as a cache. Runs on the worker's thread.
    func settled(_ batch: Batch, by result: TransferResult, with changes: [StateChange])

    /// What lanes have in common whose messages are never to be under way side by side, besides their group; nil for
    /// nothing.
    func exclusion(ofLane name: String) -> String?

    /// How to get a token, for upstreams that want one.
    var tokenSource: (any TokenSource)? { get }

    /// What can be asked of it besides messages: paths of its own below `/v1/{upstream}/`.
    var resources: [Resource] { get }

    /// Further members for the problem document when the store takes nothing more, e.g. `seerCode`.
    func codes(for refusal: StoreRefusal) -> [String: Int]

    /// What its own clients call an event, where they know it; it is counted and logged under that name then.
    func name(of event: UpstreamEvent) -> String?

    /// Settings without which nothing can be sent, and which are empty: its messages wait for `credentials`.
    var missingSettings: [String] { get }

    /// Texts that must not be shown where a request is: keys, passwords, credentials in headers.
    var secrets: [String] { get }
    /// Does it know sessions, named by the header `Postern-Session`? What is queued is in none, so a message that comes
    /// with one is refused rather than sent as somebody else.
    var hasSessions: Bool { get }
}

/// What a plan may depend on.
public struct PlanContext {
    /// Wall-clock time of the send.
    public let now: Timestamp
    /// The current token of an upstream with a `tokenSource`; never nil there.
    public let token: Token?
    public let state: any UpstreamState
    /// What an operator's latest flush covers: messages up to that one are not to wait for a schedule.
    public let flushedThrough: MessageID?

    public init(now: Timestamp, token: Token?, state: any UpstreamState, flushedThrough: MessageID? = nil) {
        self.now = now
        self.token = token
        self.state = state
        self.flushedThrough = flushedThrough
    }

    /// Does a flush cover the message?
    public func isFlushed(_ message: Message) -> Bool { flushedThrough.map { message.id <= $0 } ?? false }
}

/// What happens around an upstream, for those whose clients know it by name.
public enum UpstreamEvent: Sendable, Equatable {
    case tokenFetched
    /// There is a token again, for the first time since the start or since there was none.
    case ready
    /// A request that carried messages came to an end.
    case batchEnded
    /// A message of that kind was delivered or refused.
    case settled(Kind)
    case flushFinished
}

/// What to do with messages whose turn it is.
public enum Plan: Sendable, Equatable {
    /// Send `request`, which carries the first `count` of them.
    case send(UpstreamRequest, count: Int)
    /// Nothing has to be sent for the first `count` of them.
    case settle(count: Int, as: MessageState, reason: String)
    /// Not yet.
    case wait(WaitingFor, until: Timestamp)
    /// Not before a caller hands in a credential for the lane's group.
    case park
}

extension Upstream {
    public var description: String { name.description }
    public var acceptsByState: Bool { false }
    public func accept(_ candidate: Candidate, in state: any UpstreamState) throws -> [StateChange] { [] }
    public func limits(_ configured: BatchLimits) -> BatchLimits { configured }
    public func limits(_ configured: BatchLimits, ofLane name: String) -> BatchLimits { limits(configured) }
    public func judge(_ failure: TransferFailure, to batch: Batch, in context: PlanContext) -> Judgement? { nil }
    public func changes(
        after result: TransferResult, to batch: Batch, in context: PlanContext
    ) throws -> [StateChange] { [] }
    public func changes(
        settling messages: [Message], as end: MessageState, in context: PlanContext
    ) throws -> [StateChange] { [] }
    public func settled(_ batch: Batch, by result: TransferResult, with changes: [StateChange]) {}
    public func exclusion(ofLane name: String) -> String? { nil }
    public var resources: [Resource] { [] }
    public func codes(for refusal: StoreRefusal) -> [String: Int] { [:] }
    public func name(of event: UpstreamEvent) -> String? { nil }
    public var tokenSource: (any TokenSource)? { nil }
    public var missingSettings: [String] { [] }
    public var secrets: [String] { [] }
    public var hasSessions: Bool { false }
}

/// The state of an upstream that keeps none.
public struct NoState: UpstreamState {
    public init() {}
    public func value(of key: String) -> [UInt8]? { nil }
    public func values(below key: String, atMost most: Int) -> [(key: String, value: [UInt8])] { [] }
}
