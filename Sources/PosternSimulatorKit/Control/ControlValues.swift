/// An optional that is shown as null when it is nil.
@propertyWrapper package struct OrNull<Value: Codable & Sendable>: Codable, Sendable {
    package var wrappedValue: Value?

    package init(wrappedValue: Value?) { self.wrappedValue = wrappedValue }

    package init(from decoder: any Decoder) throws {
        let container = try decoder.singleValueContainer()
        wrappedValue = container.decodeNil() ? nil : try container.decode(Value.self)
    }

    package func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(wrappedValue)
    }
}

/// A value of `/control` that is a string of a certain form.
package protocol ControlText: Codable, LosslessStringConvertible, Sendable {
    /// The form of the strings, in words.
    static var form: String { get }
}

extension ControlText {
    package init(from decoder: any Decoder) throws { self = try .read(from: decoder) }
    package func encode(to encoder: any Encoder) throws { try write(to: encoder) }

    fileprivate static func read(from decoder: any Decoder) throws -> Self {
        let container = try decoder.singleValueContainer()
        if let value = Self(try container.decode(String.self)) { return value }
        throw DecodingError.dataCorruptedError(in: container, debugDescription: "must be \(form)")
    }

    fileprivate func write(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(description)
    }
}

/// A string of a fixed list.
package protocol ControlChoice: ControlText, CaseIterable, RawRepresentable<String> {}

extension ControlChoice {
    // Repeated here because those above and those of `RawRepresentable` would be ambiguous.
    package init(from decoder: any Decoder) throws { self = try .read(from: decoder) }
    package func encode(to encoder: any Encoder) throws { try write(to: encoder) }

    package init?(_ text: String) { self.init(rawValue: text) }
    package var description: String { rawValue }
    package static var form: String { "one of \(allCases.map(\.rawValue).joined(separator: ", "))" }
}

extension JSONTree: Codable {
    package init(from decoder: any Decoder) throws {
        let container = try decoder.singleValueContainer()
        guard let document = Self.read(try container.decode(String.self).utf8) else {
            throw DecodingError.dataCorruptedError(in: container, debugDescription: "must be JSON")
        }
        self = document.value
    }

    package func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(canonical)
    }
}

/// The fault of a number outside its range; nil for one that is inside.
package func problem<Number: Comparable>(_ name: String, _ value: Number?, _ range: ClosedRange<Number>) -> String? {
    guard let value, !range.contains(value) else { return nil }
    return "\(name): must be from \(range.lowerBound) to \(range.upperBound)"
}
