/// What an upstream makes of a payload that it accepts.
public struct Admission: Sendable, Equatable {
    public var lane: Lane
    /// The text to store instead of the one received; nil when that is stored as it came.
    public var rewritten: [UInt8]?

    public init(lane: Lane = .none, rewritten: [UInt8]? = nil) {
        self.lane = lane
        self.rewritten = rewritten
    }
}

/// What is known of a payload besides its text when an upstream admits it.
public struct AdmissionContext: Sendable {
    public let acceptedAt: Timestamp
    /// For values that must be unique, e.g. a version-4 UUID: 128 fresh random bits.
    public let random: @Sendable () -> (UInt64, UInt64)

    public init(
        acceptedAt: Timestamp,
        random: @escaping @Sendable () -> (UInt64, UInt64) = {
            (.random(in: .min ... .max), .random(in: .min ... .max))
        }
    ) {
        self.acceptedAt = acceptedAt
        self.random = random
    }
}

/// Why an otherwise valid payload cannot be taken given what was accepted before it.
public struct Refusal: Error, Sendable, Equatable {
    public enum Reason: Sendable, Equatable {
        /// Something has to be sent first (409).
        case unknownSession
        /// In conflict with what is stored (409).
        case conflict
        /// A cap of the upstream's own is reached; try again later (503).
        case full
    }
    public let reason: Reason
    public let detail: String

    public init(_ reason: Reason, _ detail: String) {
        self.reason = reason
        self.detail = detail
    }
}
