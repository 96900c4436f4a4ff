internal import CPosternJSON

/// Finds a few members of a large JSON object without the parser's index of everything else in it, which takes up to
/// five times the memory of the text.
public struct JSONOutline: Sendable {
    /// In the order of the requested names; nil if the object has no such member. Of repeated members, the last one
    /// counts.
    public let values: [Range<Int>?]

    /// Nil if the text is not a JSON object. Nesting may have any depth, and names may repeat.
    public init?(_ text: [UInt8], finding names: StaticString...) {
        guard Self.isWellFormed(text) else { return nil }
        let found = text.withUnsafeBufferPointer { text -> [Range<Int>?]? in
            var walk = Walk(text: text)
            return walk.find(names)
        }
        guard let found else { return nil }
        values = found
    }

    private static func isWellFormed(_ text: [UInt8]) -> Bool {
        let result = text.withUnsafeBufferPointer { postern_json_check($0.baseAddress, $0.count) }
        return result.fault == 0 || result.fault == JSONError.Reason.depth.rawValue
    }

    /// Steps over values of a well-formed text. A value that was too deep to be checked may end anywhere.
    private struct Walk {
        let text: UnsafeBufferPointer<UInt8>
        var index = 0

        mutating func find(_ names: [StaticString]) -> [Range<Int>?]? {
            var found = [Range<Int>?](repeating: nil, count: names.count)
            guard next() == UInt8(ascii: "{") else { return nil }
            index += 1
            while let byte = next(), byte != UInt8(ascii: "}") {
                let name = index
                skipString()
                let nameText = text[min(name + 1, text.count)..<max(min(name + 1, text.count), index - 1)]
                _ = next()
                index += 1
                _ = next()
                let start = index
                skipValue()
                for (position, wanted) in names.enumerated() where nameText.elementsEqual(wanted.utf8Bytes) {
                    found[position] = start..<index
                }
                if next() == UInt8(ascii: ",") { index += 1 }
            }
            return index < text.count ? found : nil
        }

        /// The next byte that is not white space.
        private mutating func next() -> UInt8? {
            while index < text.count, text[index] <= 0x20 { index += 1 }
            return index < text.count ? text[index] : nil
        }

        private mutating func skipString() {
            index += 1
            while index < text.count, text[index] != UInt8(ascii: "\"") {
                index += text[index] == UInt8(ascii: "\\") ? 2 : 1
            }
            index = min(index + 1, text.count)
        }

        private mutating func skipValue() {
            var depth = 0
            repeat {
                guard let byte = next() else { return }
                switch byte {
                case UInt8(ascii: "\""): skipString()
                case UInt8(ascii: "{"), UInt8(ascii: "["):
                    depth += 1
                    index += 1
                case UInt8(ascii: "}"), UInt8(ascii: "]"):
                    depth -= 1
                    index += 1
                case UInt8(ascii: ","), UInt8(ascii: ":"): index += 1
                default: skipScalar()
                }
            } while depth > 0
        }

        private mutating func skipScalar() {
            while index < text.count, text[index] > 0x20, !",:]}".utf8.contains(text[index]) { index += 1 }
        }
    }
}

extension StaticString {
    fileprivate var utf8Bytes: UnsafeBufferPointer<UInt8> {
        UnsafeBufferPointer(start: utf8Start, count: utf8CodeUnitCount)
    }
}
