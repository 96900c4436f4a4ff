/// An optional that is shown as null when it is nil.
@propertyWrapper struct OrNull<Value: Codable & Sendable>: Codable, Sendable {
    var wrappedValue: Value?

    init(wrappedValue: Value?) { self.wrappedValue = wrappedValue }

    init(from decoder: any Decoder) throws {
        let container = try decoder.singleValueContainer()
        wrappedValue = container.decodeNil() ? nil : try container.decode(Value.self)
    }

    func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(wrappedValue)
    }
}

/// A value of `/control` that is a string of a certain form.
protocol ControlText: Codable, LosslessStringConvertible, Sendable {
    /// What the strings look like.
    static var form: String { get }
}

extension ControlText {
    init(from decoder: any Decoder) throws { self = try .read(from: decoder) }
    func encode(to encoder: any Encoder) throws { try write(to: encoder) }

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
protocol ControlChoice: ControlText, CaseIterable, RawRepresentable<String> {}

extension ControlChoice {
    // Again, because those above and those of `RawRepresentable` would be ambiguous.
    init(from decoder: any Decoder) throws { self = try .read(from: decoder) }
    func encode(to encoder: any Encoder) throws { try write(to: encoder) }

    init?(_ text: String) { self.init(rawValue: text) }
    var description: String { rawValue }
    static var form: String { "one of \(allCases.map(\.rawValue).joined(separator: ", "))" }
}

/// One value, or several in an array.
struct OneOrMany<Value: Codable & Sendable>: Codable, Sendable {
    let values: [Value]
    private let isOne: Bool

    init(from decoder: any Decoder) throws {
        isOne = (try? decoder.unkeyedContainer()) == nil
        let container = try decoder.singleValueContainer()
        values = isOne ? [try container.decode(Value.self)] : try container.decode([Value].self)
    }

    func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        if isOne, let value = values.first { try container.encode(value) } else { try container.encode(values) }
    }
}

extension JSONTree: Codable {
    init(from decoder: any Decoder) throws {
        let container = try decoder.singleValueContainer()
        guard let document = Self.read(try container.decode(String.self).utf8) else {
            throw DecodingError.dataCorruptedError(in: container, debugDescription: "must be JSON")
        }
        self = document.value
    }

    func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(canonical)
    }
}

/// What is wrong with a number outside its range; nil for one that is inside.
func problem<Number: Comparable>(_ name: String, _ value: Number?, _ range: ClosedRange<Number>) -> String? {
    guard let value, !range.contains(value) else { return nil }
    return "\(name): must be from \(range.lowerBound) to \(range.upperBound)"
}
