public import PosternCore

/// What a request of an SDK brings.
public struct SDKSubmission: Sendable {
    /// The texts of the items: usually the request's body, which is not copied.
    public var bytes: [UInt8]
    public var items: [SDKItem]
    /// What is decided about the request as a whole, in the transaction that stores its items and before the first of them, also
    /// if there are none, or all of them repeat others.
    public var admission: SDKAdmission?
    /// The answer to what was stored.
    public var answer: @Sendable (SDKReceipt) -> SDKAnswer
    /// The answer if items are refused given the state of the upstream, by their indices; then none is stored. Nil: the refused
    /// ones are stored as failed, and the others as usual.
    public var refusal: (@Sendable ([Int: AcceptanceError]) -> SDKAnswer)?

    public init(
        _ bytes: [UInt8], _ items: [SDKItem], refusal: (@Sendable ([Int: AcceptanceError]) -> SDKAnswer)? = nil,
        answer: @escaping @Sendable (SDKReceipt) -> SDKAnswer
    ) {
        self.bytes = bytes
        self.items = items
        self.refusal = refusal
        self.answer = answer
    }
}

/// Whether a request of an SDK is admitted, given the state of the upstream.
public struct SDKAdmission: Sendable {
    /// Returns how the state changes; a draft among these changes is seen by the second validation of the items. Throws if the
    /// request is refused; nothing of it is stored then.
    public let decide: @Sendable (any UpstreamState) throws(AcceptanceError) -> [StateChange]
    /// The answer to a request that is refused, unless there is no room for it.
    public let refusal: @Sendable (AcceptanceError) -> SDKAnswer

    public init(
        decide: @escaping @Sendable (any UpstreamState) throws(AcceptanceError) -> [StateChange],
        refusal: @escaping @Sendable (AcceptanceError) -> SDKAnswer
    ) {
        self.decide = decide
        self.refusal = refusal
    }
}

/// One message of an SDK.
public struct SDKItem: Sendable {
    public var kind: Kind
    /// Where its payload is in the submission's `bytes`, unless `validation` has a rewritten one.
    public var range: Range<Int>
    /// How it is stored. A failure is stored as a message that has failed.
    public var validation: Result<ValidPayload, InvalidPayload>
    /// What a repeat of it is recognized by, in 32 bytes; nil if nothing can be.
    public var identity: [UInt8]?

    public init(
        _ kind: Kind, _ range: Range<Int>, _ validation: Result<ValidPayload, InvalidPayload>,
        identity: [UInt8]? = nil
    ) {
        self.kind = kind
        self.range = range
        self.validation = validation
        self.identity = identity
    }
}

/// What has become of a submission.
public struct SDKReceipt: Sendable {
    /// The ids of its messages, in their order. A repeat has that of the message that it repeats.
    public let ids: [MessageID]
    /// The indices of those that had been stored before.
    public let repeated: Set<Int>

    public init(ids: [MessageID], repeated: Set<Int> = []) {
        self.ids = ids
        self.repeated = repeated
    }

    /// That of the answer, if it is a success.
    public var outcome: SDKAnswer.Outcome { ids.isEmpty || repeated.count < ids.count ? .accepted : .repeated }
}
