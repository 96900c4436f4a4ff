/// What a response means for the batch that got it. The upstream decides it; only the worker acts on it.
public enum Verdict: Sendable, Equatable {
    /// Delivered. `result` is kept with the message if the response is useful to the caller.
    case delivered(result: [UInt8]? = nil)
    /// A step of a sequence is done: keep `progress` with the first message and plan it again at once.
    case proceed(progress: [UInt8])
    /// One verdict per message, in batch order.
    case each([Item])
    /// An outage or a rate limit: the same messages again later. `after` is the upstream's own `Retry-After`.
    case retry(after: Duration?)
    /// The upstream works, but not yet for this lane: the same messages again, later each time. Other lanes do not
    /// wait, and nothing counts against these messages.
    case backOff
    /// As `retry`, but the messages may be the cause. The worker looks for the one that is: a batch is halved once the
    /// upstream has taken something else, and a message alone fails as `rule` says.
    case suspect(after: Duration?, rule: SuspectRule = .ifOthersSucceed)
    /// The token is stale: fetch a new one, then send the batch again.
    case refreshToken
    /// The address or the credentials are wrong, or the upstream gives this response to one of the messages. The endpoint
    /// waits, an error is logged, and other messages probe it. If it accepts one of them, the worker looks for the cause
    /// as after `suspect`. Otherwise, it costs no message an attempt, and the endpoint is probed slowly.
    case holdUpstream(HoldReason, detail: String)
    /// Sends nothing more for this lane's group until a caller hands in a new token. If one has arrived meanwhile, the
    /// batch is sent again at once.
    case park
    /// At least one message in the batch is rejected: halve the batch to find it. A single message is rejected itself.
    case split(reason: String)
    /// Never send these messages again.
    case reject(reason: String)
}

/// What follows from a response: for the messages and the endpoint, and for the upstream's state.
public struct Decision: Sendable {
    public var judgement: Judgement
    /// Nil if the state stays as it is.
    public var changes: StateChanges?
    /// For what is kept in memory, such as a cache. Called once after the result is on disk, with the changes that were
    /// made, on the worker's thread. Returns changes of what is also kept in the store: they are written without waiting,
    /// and lost if the process stops before.
    public var afterwards: (@Sendable ([StateChange]) -> [StateChange])?

    public init(_ judgement: Judgement, changes: StateChanges? = nil) {
        self.judgement = judgement
        self.changes = changes
    }

    public init(_ verdict: Verdict, holdsAll: Bool = false) { self.init(Judgement(verdict, holdsAll: holdsAll)) }
}

/// Computes the changes of the state that follow from what was decided on a snapshot. Called inside the transaction that
/// settles the messages: that state has all that was accepted since.
public typealias StateChanges = @Sendable (any UpstreamState) -> [StateChange]

/// A verdict and what explains it.
public struct Judgement: Sendable, Equatable {
    /// What follows for the messages and the endpoint.
    public var verdict: Verdict
    /// Whether a hold begins with every endpoint, because all have the credentials or the address that were rejected.
    public var holdsAll: Bool
    /// Something an operator should read once, e.g. a warning inside a success.
    public var notice: UpstreamNotice?
    /// The messages' last error, if neither the verdict nor the HTTP status explains it.
    public var reason: String?
    /// Whether the upstream clearly processed nothing, although the messages have to be sent again. If so,
    /// `Message.mayHaveArrived` is not changed.
    public var tookNothing: Bool
    /// The upstream's response, kept with the messages that it makes fail, if it is useful to the caller.
    public var refusal: [UInt8]?
    /// The steps of the only message's sequence, kept as its result if the verdict ends it; empty without a sequence.
    public var steps: [StepResult]

    public init(
        _ verdict: Verdict, holdsAll: Bool = false, notice: UpstreamNotice? = nil, reason: String? = nil,
        tookNothing: Bool = false, refusal: [UInt8]? = nil, steps: [StepResult] = []
    ) {
        self.verdict = verdict
        self.holdsAll = holdsAll
        self.notice = notice
        self.reason = reason
        self.tookNothing = tookNothing
        self.refusal = refusal
        self.steps = steps
    }
}

extension Verdict {
    /// The verdict on one message, from a response that reports each.
    public enum Item: Sendable, Equatable {
        case delivered
        /// Send again at once, in the same order; nothing counts against it.
        case again
        case reject(reason: String)
    }

    /// When to fail a message that is sent alone and gets only doubtful responses.
    public enum SuspectRule: Sendable, Equatable {
        /// After `delivery.suspectTries` of them in a row, each with a success of something else at its endpoint after the one
        /// before.
        case ifOthersSucceed
        /// After that many tries, whatever happens to others, since further ones could do harm.
        case afterTries(Int)
    }

    /// Why an endpoint, or the whole upstream, waits until an operator intervenes or it accepts another message.
    public enum HoldReason: String, Sendable {
        /// Shown as health `unauthorized`; messages wait for `credentials`.
        case credentials
        /// Wrong URL, wrong headers, a proxy in between.
        case configuration
    }
}
