/// Something wrong with one member of a payload.
public struct PayloadFault: Sendable, Equatable, CustomStringConvertible {
    /// Which member, as a JSON Pointer (RFC 6901); empty for the payload itself.
    public let pointer: String
    /// The rule that it breaks, e.g. `must be a non-empty string`; never the value.
    public let detail: String

    public init(_ pointer: String, _ detail: String) {
        self.pointer = pointer
        self.detail = detail
    }

    public var description: String { pointer.isEmpty ? detail : "\(pointer): \(detail)" }
}

/// A payload that its upstream would never accept: every fault found, at least one.
public struct InvalidPayload: Error, Sendable, Equatable {
    public let faults: [PayloadFault]
    /// Further members for the problem document, e.g. `seerCode`.
    public let codes: [String: Int]

    public init(_ faults: [PayloadFault], codes: [String: Int] = [:]) {
        precondition(!faults.isEmpty, "a refusal names its reason")
        self.faults = faults
        self.codes = codes
    }
}
