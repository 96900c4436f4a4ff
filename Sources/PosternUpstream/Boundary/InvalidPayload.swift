/// Something wrong with one member of a payload.
public struct PayloadError: Sendable, Equatable, CustomStringConvertible {
    /// The member, as a JSON Pointer (RFC 6901); empty for the payload itself.
    public let pointer: String
    /// The rule that it breaks, e.g. `must be a non-empty string`; never the value.
    public let detail: String

    public init(_ pointer: String, _ detail: String) {
        self.pointer = pointer
        self.detail = detail
    }

    public var description: String { pointer.isEmpty ? detail : "\(pointer): \(detail)" }
}

/// The faults of one payload, as they are found.
///
/// Only the first ones are kept and the rest counted, so that a payload cannot cost more memory or time than its text.
public struct PayloadErrors: Sendable, Equatable {
    /// The number of faults that one response shows.
    public static let most = 100

    /// The first faults, at most `limit`.
    public private(set) var kept: [PayloadError] = []
    /// Faults that were found and not kept.
    public private(set) var omitted = 0
    private let limit: Int

    public init(atMost limit: Int = most) { self.limit = limit }

    public var isEmpty: Bool { kept.isEmpty && omitted == 0 }
    /// All faults, including those that were not kept.
    public var count: Int { kept.count + omitted }
    /// Whether any further fault is only counted.
    var isFull: Bool { kept.count >= limit }

    /// The arguments are evaluated only if the fault is kept.
    public mutating func add(_ pointer: @autoclosure () -> String, _ detail: @autoclosure () -> String) {
        if isFull {
            omitted += 1
        } else {
            kept.append(PayloadError(pointer(), detail()))
        }
    }

    /// Adds faults that were found elsewhere, with `prefix` before their pointers.
    public mutating func add(_ others: PayloadErrors, below prefix: String = "") {
        for fault in others.kept { add(prefix + fault.pointer, fault.detail) }
        omitted += others.omitted
    }

    /// All of them, for people.
    public var text: String {
        let texts = kept.map(\.description) + (omitted > 0 ? ["and \(omitted) more"] : [])
        return texts.joined(separator: "; ")
    }

    public static func == (left: Self, right: Self) -> Bool {
        left.kept == right.kept && left.omitted == right.omitted
    }
}

extension PayloadErrors: ExpressibleByArrayLiteral {
    public init(arrayLiteral faults: PayloadError...) {
        self.init()
        for fault in faults { add(fault.pointer, fault.detail) }
    }
}

/// A payload that its upstream would never accept, with at least one fault.
public struct InvalidPayload: Error, Sendable, Equatable {
    /// At least one.
    public let faults: PayloadErrors
    /// Further members for the problem document, e.g. `seerCode`.
    public let codes: [String: Int]

    public init(_ faults: PayloadErrors, codes: [String: Int] = [:]) {
        precondition(!faults.isEmpty, "a refusal names its reason")
        self.faults = faults
        self.codes = codes
    }
}
