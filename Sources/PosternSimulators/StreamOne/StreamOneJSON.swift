/// A piece of checked JSON text, taken apart only as far as it is asked.
struct StreamOneJSON: Sendable, Equatable {
    let kind: JSONScanner.Kind
    /// As it came.
    let text: [UInt8]

    /// Nil when the text is no JSON in UTF-8.
    init?(_ text: [UInt8]) {
        guard String(validating: text, as: UTF8.self) != nil else { return nil }
        let found = text.withUnsafeBufferPointer { text -> JSONScanner.Value? in
            var scanner = JSONScanner(text)
            guard let value = scanner.value(), scanner.peek() == nil else { return nil }
            return value
        }
        guard let found else { return nil }
        self.init(found, in: text)
    }

    private init(_ value: JSONScanner.Value, in text: [UInt8]) {
        kind = value.kind
        self.text = Array(text[value.range])
    }

    /// Of an object, in their order; empty for anything else.
    var members: [(name: String, value: StreamOneJSON)] {
        guard kind == .object else { return [] }
        var members: [(name: String, value: StreamOneJSON)] = []
        text.withUnsafeBufferPointer { bytes in
            var scanner = JSONScanner(bytes)
            _ = scanner.members { key, value in members.append((key.name, .init(value, in: text))) }
        }
        return members
    }

    /// Of an array; nil for anything else.
    var elements: [StreamOneJSON]? {
        guard kind == .array else { return nil }
        var elements: [StreamOneJSON] = []
        text.withUnsafeBufferPointer { bytes in
            var scanner = JSONScanner(bytes)
            _ = scanner.elements { elements.append(.init($0, in: text)) }
        }
        return elements
    }

    var string: String? { kind == .string ? unescaped(text.dropFirst().dropLast()) : nil }
    var flag: Bool? { kind == .true ? true : kind == .false ? false : nil }
    var integer: Int? { kind == .integer ? Int(String(decoding: text, as: UTF8.self)) : nil }
    var number: Double? {
        kind == .integer || kind == .decimal ? Double(String(decoding: text, as: UTF8.self)) : nil
    }
    var raw: String { String(decoding: text, as: UTF8.self) }
}
