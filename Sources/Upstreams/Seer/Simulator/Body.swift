import PosternSimulatorKit

/// The contents of a report's body, and how it differs from what a gateway writes.
struct Body {
    /// The payloads in their order, of any type.
    private(set) var items: [JSONScanner.Value] = []
    /// Why it is not a report.
    private(set) var refusal: String?
    private(set) var violations: [String] = []

    private static let head: StaticString = #"{"activities":["#

    init(_ text: UnsafeBufferPointer<UInt8>, isBatch: Bool) {
        // The scanner does not check the bytes of strings.
        guard !text.contains(where: { $0 >= 0x80 }) || String(validating: text, as: UTF8.self) != nil else {
            refusal = "a body that is not UTF-8"
            return
        }
        var scanner = JSONScanner(text)
        if isBatch { readBatch(&scanner) } else { readSingle(&scanner) }
        if refusal == nil, scanner.peek() != nil || scanner.sawControlCharacter { refusal = Self.noJSON }
        if refusal != nil { violations = [] }
    }

    private static let noJSON = "a body that is not JSON"

    private mutating func readSingle(_ scanner: inout JSONScanner) {
        guard let value = scanner.value() else { return refusal = Self.noJSON }
        items = [value]
        if value.range != 0..<scanner.text.count { violations.append("white space around the object") }
    }

    /// `{"activities":[item,item…]}`, the member's name the same for every kind.
    private mutating func readBatch(_ scanner: inout JSONScanner) {
        guard scanner.peek() == UInt8(ascii: "{") else {
            refusal = scanner.value() == nil ? Self.noJSON : "a batch that is not an object"
            return
        }
        var arrays: [JSONScanner.Value] = []
        var others = 0
        let isWhole = scanner.members { key, value in
            if key.equals("activities") { arrays.append(value) } else { others += 1 }
        }
        guard isWhole else { return refusal = Self.noJSON }
        if others > 0 { violations.append("a member next to activities in a batch") }
        guard arrays.count == 1, arrays[0].kind == .array else {
            return refusal = "a batch without exactly one array called activities"
        }
        var elements = JSONScanner(scanner.text)
        elements.position = arrays[0].range.lowerBound
        guard elements.elements({ items.append($0) }), !items.isEmpty else { return refusal = "an empty batch" }
        if others == 0, !isTight(scanner.text) { violations.append("bytes in a batch besides items and wrapper") }
    }

    /// Whether the text is exactly as long as wrapper, items, and the commas between them.
    private func isTight(_ text: UnsafeBufferPointer<UInt8>) -> Bool {
        let head = UnsafeBufferPointer(start: Self.head.utf8Start, count: Self.head.utf8CodeUnitCount)
        return text.starts(with: head)
            && text.count == head.count + items.reduce(0) { $0 + $1.range.count } + items.count - 1 + 2
    }
}
