public import PosternCore

/// How an upstream stores a payload that it accepts.
public struct ValidPayload: Sendable, Equatable {
    /// The unit of order to which the message belongs.
    public var lane: Lane
    /// The text to store instead of the one received; nil to store that unchanged.
    public var rewritten: [UInt8]?
    /// What the lane waits for from the start if the message is its first. A plan would return the same.
    public var waitsFor: WaitReason?
    /// A secret that was part of the payload, to be stored for the lane's group; `rewritten` is the text without it.
    public var credential: Credential?
    /// The time at which the message expires, unless the caller gave one.
    public var expiresAt: Timestamp?

    public init(
        lane: Lane = .none, rewritten: [UInt8]? = nil, waitsFor: WaitReason? = nil, credential: Credential? = nil,
        expiresAt: Timestamp? = nil
    ) {
        self.lane = lane
        self.rewritten = rewritten
        self.waitsFor = waitsFor
        self.credential = credential
        self.expiresAt = expiresAt
    }
}

/// The context in which an upstream validates a payload.
public struct ValidationContext: Sendable {
    /// The time that is stored with the message; use it rather than a clock.
    public let acceptedAt: Timestamp
    /// Whether the caller waits for the message to be delivered (`Prefer: wait`).
    public let isAwaited: Bool
    /// The maximum number of faults that are kept; more are only counted.
    public let maxFaults: Int
    /// For values that must be unique, e.g. a version-4 UUID: 128 fresh random bits.
    public let random: @Sendable () -> (UInt64, UInt64)

    /// The system's generator, for everything but tests.
    public static let systemRandom: @Sendable () -> (UInt64, UInt64) = {
        (.random(in: .min ... .max), .random(in: .min ... .max))
    }

    public init(
        acceptedAt: Timestamp, isAwaited: Bool = false, maxFaults: Int = PayloadErrors.most,
        random: @escaping @Sendable () -> (UInt64, UInt64) = systemRandom
    ) {
        self.acceptedAt = acceptedAt
        self.isAwaited = isAwaited
        self.maxFaults = maxFaults
        self.random = random
    }
}

/// A message about to be stored, as an upstream sees it inside that transaction.
public struct PendingMessage: Sendable {
    public let id: MessageID
    public let kind: Kind
    public let lane: Lane
    /// That of the `ValidationContext`.
    public let acceptedAt: Timestamp
    /// The payload as it will be stored.
    public let payload: [UInt8]
    /// The owner of the credential that was handed in with the message. The credential is stored already.
    let credentialOwner: String?
    /// Whether it is not to be sent before a time of its own.
    public let isScheduled: Bool

    public init(
        id: MessageID, kind: Kind, lane: Lane, acceptedAt: Timestamp, payload: [UInt8], credentialOwner: String? = nil,
        isScheduled: Bool = false
    ) {
        self.id = id
        self.kind = kind
        self.lane = lane
        self.acceptedAt = acceptedAt
        self.payload = payload
        self.credentialOwner = credentialOwner
        self.isScheduled = isScheduled
    }
}

/// Why an otherwise valid payload cannot be taken given what was accepted before it.
public struct AcceptanceError: Error, Sendable, Equatable {
    /// The status of the response follows from it.
    public enum Reason: Sendable, Equatable {
        /// Another message has to be sent first (409).
        case unknownSession
        /// The message conflicts with what is stored (409).
        case conflict
        /// The payload is not valid given what is stored (422).
        case invalidPayload
        /// A limit of the upstream's type is reached; try again later (503).
        case full
    }
    public let reason: Reason
    /// The member that is not acceptable, as a JSON Pointer; empty for the payload itself.
    public let pointer: String
    /// A sentence for the caller, without its full stop; never a payload or a secret.
    public let detail: String

    public init(_ reason: Reason, _ detail: String, at pointer: String = "") {
        self.reason = reason
        self.detail = detail
        self.pointer = pointer
    }
}
