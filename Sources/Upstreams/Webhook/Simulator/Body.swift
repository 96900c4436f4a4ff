import PosternSimulatorKit

/// The items of a request's body.
struct Body {
    private(set) var items: [Range<Int>] = []
    /// Why it is not a body of the expected form.
    private(set) var refusal: String?

    init(_ text: UnsafeBufferPointer<UInt8>, isLines: Bool, _ settings: WebhookSettings) {
        // The scanner does not check the bytes of strings.
        guard !text.contains(where: { $0 >= 0x80 }) || String(validating: text, as: UTF8.self) != nil else {
            refusal = "a body that is not UTF-8"
            return
        }
        switch settings.batch {
        case .ndjson where !isLines: refusal = "a body that is not NDJSON"
        case .none where isLines, .array where isLines, .wrapped where isLines: refusal = "a body that is NDJSON"
        case .any where isLines, .ndjson: readLines(text)
        case .any, .none: readValue(text)
        case .array: readArray(text)
        case .wrapped: readWrapped(text, in: settings.wrapIn)
        }
        if refusal == nil, items.isEmpty { refusal = "a body without items" }
    }

    private static let noJSON = "a body that is not JSON"

    private mutating func readValue(_ text: UnsafeBufferPointer<UInt8>) {
        var scanner = JSONScanner(text)
        guard let value = scanner.value(), isAtEnd(&scanner) else { return refusal = Self.noJSON }
        items = [value.range]
    }

    /// Every line is one value and ends with a line feed.
    private mutating func readLines(_ text: UnsafeBufferPointer<UInt8>) {
        guard text.last == UInt8(ascii: "\n") else {
            return refusal = "NDJSON whose last line does not end with a line feed"
        }
        var start = 0
        while start < text.count {
            let end = text[start...].firstIndex(of: UInt8(ascii: "\n")) ?? text.count
            var scanner = JSONScanner(UnsafeBufferPointer(rebasing: text[start..<end]))
            guard let value = scanner.value(), isAtEnd(&scanner) else { return refusal = "a line that is not JSON" }
            items.append(start + value.range.lowerBound..<start + value.range.upperBound)
            start = end + 1
        }
    }

    private mutating func readArray(_ text: UnsafeBufferPointer<UInt8>) {
        var scanner = JSONScanner(text)
        guard scanner.peek() == UInt8(ascii: "[") else { return refusal = "a body that is not an array" }
        guard scanner.elements({ items.append($0.range) }), isAtEnd(&scanner) else { return refusal = Self.noJSON }
    }

    private mutating func readWrapped(_ text: UnsafeBufferPointer<UInt8>, in name: String) {
        var scanner = JSONScanner(text)
        guard scanner.peek() == UInt8(ascii: "{") else { return refusal = "a body that is not an object" }
        var members: [(name: String, value: JSONScanner.Value)] = []
        guard scanner.members({ members.append(($0.name, $1)) }), isAtEnd(&scanner) else {
            return refusal = Self.noJSON
        }
        guard members.count == 1, members[0].name == name, members[0].value.kind == .array else {
            return refusal = "an object without exactly one array called \(name)"
        }
        var elements = JSONScanner(text)
        elements.position = members[0].value.range.lowerBound
        _ = elements.elements { items.append($0.range) }
    }

    private func isAtEnd(_ scanner: inout JSONScanner) -> Bool { scanner.peek() == nil && !scanner.sawControlCharacter }
}
