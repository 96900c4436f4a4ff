import PosternCore

/// The text of an argument's value (the specification's 3.4).
enum StreamOneArgument {
    struct Fault: Equatable {
        /// The element of a list, as a pointer; otherwise empty.
        var pointer = ""
        let detail: String
    }

    /// The text of a value without a fault.
    static func text(of value: JSONValue) -> String {
        guard value.kind == .array else { return scalar(value) }
        var text = ""
        for (index, element) in value.elements.enumerated() {
            if index > 0 { text += "," }
            text += scalar(element)
        }
        return text
    }

    /// Why a value has no text. Nothing of the value is stored, however long a list is.
    static func fault(of value: JSONValue) -> Fault? {
        guard value.kind == .array else { return detail(of: value).map { Fault(detail: $0) } }
        for (index, element) in value.elements.enumerated() {
            if let detail = detail(of: element) { return Fault(pointer: "/\(index)", detail: detail) }
        }
        return nil
    }

    private static func detail(of value: JSONValue) -> String? {
        switch value.kind {
        case .string, .null, .true, .false: nil
        case .number: isInRange(value) ? nil : "must be a number from -2^53 to 2^53"
        case .array, .object: "must be a string, number, boolean, null or a list of those"
        }
    }

    private static func scalar(_ value: JSONValue) -> String {
        switch value.kind {
        case .string: value.string ?? ""
        case .true: "1"
        case .false: "0"
        case .number: number(value)
        case .null, .array, .object: ""
        }
    }

    private static func number(_ value: JSONValue) -> String {
        let literal = String(decoding: value.bytes, as: UTF8.self)
        if value.isIntegerLiteral { return literal == "-0" ? "0" : literal }
        return Double(literal).map(plain) ?? ""
    }

    /// Beyond this, not every whole number can be represented (Assumption of 3.4).
    private static let largest = 9_007_199_254_740_992.0

    /// An integer literal is sent as it is written, however large.
    private static func isInRange(_ value: JSONValue) -> Bool {
        let bytes = value.bytes
        // 15 digits never reach 2^53, wherever the point is.
        if value.isIntegerLiteral || bytes.count <= 15 && !bytes.contains(where: { $0 | 0x20 == UInt8(ascii: "e") }) {
            return true
        }
        let literal = String(decoding: bytes, as: UTF8.self)
        guard let number = Double(literal) else { return false }
        return number.magnitude < largest || number.magnitude == largest && isLargest(literal)
    }

    /// Whether it is 2^53 itself, and not a larger number that is rounded to it.
    private static func isLargest(_ literal: String) -> Bool {
        let digits = literal.prefix { $0 != "e" && $0 != "E" }.filter(\.isNumber)
        return digits.drop { $0 == "0" }.reversed().drop { $0 == "0" }.reversed().elementsEqual("9007199254740992")
    }

    /// The shortest decimal that reads back the same, without an exponent.
    ///
    /// Worked values: 3.14 is `3.14`, 1.0 is `1`, 1e15 is `1000000000000000`, 1.5e-7 is `0.00000015`.
    static func plain(_ number: Double) -> String {
        let parts = "\(number.magnitude)".split(separator: "e")
        let exponent = parts.count == 2 ? Int(parts[1]) ?? 0 : 0
        let halves = parts[0].split(separator: ".", omittingEmptySubsequences: false)
        let fraction = halves.count == 2 && halves[1] != "0" ? halves[1] : ""
        var digits = String(halves[0] + fraction)
        var point = halves[0].count + exponent
        if point <= 0 {
            digits = String(repeating: "0", count: 1 - point) + digits
            point = 1
        }
        if point > digits.count { digits += String(repeating: "0", count: point - digits.count) }
        let sign = number.sign == .minus ? "-" : ""
        let whole = digits.prefix(point)
        let rest = digits.dropFirst(point)
        let trimmed = whole.drop { $0 == "0" }
        return sign + (trimmed.isEmpty ? "0" : String(trimmed)) + (rest.isEmpty ? "" : "." + rest)
    }
}
