/// A parsed JSON value. Members are in the order of their names, which are compared byte by byte, because the upstreams
/// normalize nothing.
package enum JSONTree: Sendable, Equatable {
    case object([Member])
    case array([Self])
    case string(String)
    /// The number as it was spelled.
    case number(String)
    case bool(Bool)
    case null

    package struct Member: Sendable, Equatable {
        package let name: String
        package let value: JSONTree

        package init(name: String, value: JSONTree) { (self.name, self.value) = (name, value) }
    }

    /// The value of a text, and the deviations that the server tolerates.
    package struct Document {
        package let value: JSONTree
        /// Without the white space around it.
        package let range: Range<Int>
        package let hasRepeatedNames: Bool
        package let hasTrailingBytes: Bool
    }

    /// Nil if the text is not JSON in UTF-8, has a raw control character in a string, or is nested deeper than 128.
    package static func read(_ text: some Sequence<UInt8>) -> Document? {
        let text = Array(text)
        guard String(validating: text, as: UTF8.self) != nil else { return nil }
        return text.withUnsafeBufferPointer { text in
            var scanner = JSONScanner(text)
            guard let found = scanner.value(), !scanner.sawControlCharacter else { return nil }
            var reader = Reader(text: text)
            return reader.tree(of: found, depth: 0).map { value in
                Document(
                    value: value, range: found.range, hasRepeatedNames: reader.sawRepeatedName,
                    hasTrailingBytes: scanner.peek() != nil)
            }
        }
    }

    /// An object of `members`. If several have the same name, the last one counts.
    package static func object(of members: [Member]) -> Self {
        let sorted = members.enumerated().sorted { left, right in
            if left.element.name.utf8.elementsEqual(right.element.name.utf8) { return left.offset < right.offset }
            return left.element.name.utf8.lexicographicallyPrecedes(right.element.name.utf8)
        }
        var unique: [Member] = []
        for (_, member) in sorted {
            if let last = unique.last, last.name.utf8.elementsEqual(member.name.utf8) { unique.removeLast() }
            unique.append(member)
        }
        return .object(unique)
    }

    // MARK: Access

    package subscript(_ name: String) -> Self? { members?.first { $0.name.utf8.elementsEqual(name.utf8) }?.value }

    package var members: [Member]? { if case .object(let members) = self { members } else { nil } }
    package var elements: [Self]? { if case .array(let elements) = self { elements } else { nil } }
    package var string: String? { if case .string(let text) = self { text } else { nil } }

    /// The members ordered by name, without white space and unnecessary escapes.
    package var canonical: String {
        switch self {
        case .object(let members):
            "{\(members.map { "\(quoted($0.name)):\($0.value.canonical)" }.joined(separator: ","))}"
        case .array(let elements): "[\(elements.map(\.canonical).joined(separator: ","))]"
        case .string(let string): quoted(string)
        case .number(let number): number
        case .bool(let value): value ? "true" : "false"
        case .null: "null"
        }
    }

    /// Builds the trees of values that the scanner has accepted.
    private struct Reader {
        let text: UnsafeBufferPointer<UInt8>
        var sawRepeatedName = false

        private static let maxDepth = 128

        /// Nil if it is nested too deep.
        mutating func tree(of value: JSONScanner.Value, depth: Int) -> JSONTree? {
            guard depth <= Self.maxDepth else { return nil }
            let raw = text[value.range]
            var scanner = JSONScanner(text)
            scanner.position = value.range.lowerBound
            switch value.kind {
            case .object:
                var values: [(name: String, value: JSONScanner.Value)] = []
                _ = scanner.members { values.append(($0.name, $1)) }
                var members: [Member] = []
                for (name, value) in values {
                    guard let child = tree(of: value, depth: depth + 1) else { return nil }
                    members.append(Member(name: name, value: child))
                }
                let object = JSONTree.object(of: members)
                if object.members?.count != members.count { sawRepeatedName = true }
                return object
            case .array:
                var values: [JSONScanner.Value] = []
                _ = scanner.elements { values.append($0) }
                var elements: [JSONTree] = []
                for value in values {
                    guard let child = tree(of: value, depth: depth + 1) else { return nil }
                    elements.append(child)
                }
                return .array(elements)
            case .string: return .string(unescaped(raw.dropFirst().dropLast()))
            case .integer, .decimal: return .number(String(decoding: raw, as: UTF8.self))
            case .true: return .bool(true)
            case .false: return .bool(false)
            case .null: return .null
            }
        }
    }
}
