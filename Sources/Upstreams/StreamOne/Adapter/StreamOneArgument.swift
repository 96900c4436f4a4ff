import PosternCore

/// The text of an argument's value (the specification's 3.4).
enum StreamOneArgument {
    struct Fault: Error, Equatable {
        /// Which element of a list, as a pointer; else empty.
        var place = ""
        let detail: String
    }

    static func text(of value: JSONValue) -> Result<String, Fault> {
        guard value.kind == .array else { return scalar(value) }
        var texts: [String] = []
        for (place, element) in value.elements.enumerated() {
            switch scalar(element) {
            case .success(let text): texts.append(text)
            case .failure(let fault): return .failure(Fault(place: "/\(place)", detail: fault.detail))
            }
        }
        return .success(texts.joined(separator: ","))
    }

    private static func scalar(_ value: JSONValue) -> Result<String, Fault> {
        switch value.kind {
        case .string, .key: .success(value.string ?? "")
        case .null: .success("")
        case .true: .success("1")
        case .false: .success("0")
        case .number: number(value)
        case .array, .object:
            .failure(Fault(detail: "must be a string, number, boolean, null or a list of those"))
        }
    }

    /// Beyond this not every whole number is one (Assumption of 3.4).
    private static let largest = 9_007_199_254_740_992.0

    private static func number(_ value: JSONValue) -> Result<String, Fault> {
        let literal = String(decoding: value.bytes, as: UTF8.self)
        if value.isIntegerLiteral { return .success(literal == "-0" ? "0" : literal) }
        guard let number = Double(literal), number.magnitude <= largest,
            number.magnitude < largest || isLargest(literal)
        else { return .failure(Fault(detail: "must be a number from -2^53 to 2^53")) }
        return .success(plain(number))
    }

    /// Whether it is 2^53 itself, and not one of the numbers beyond that are read as it.
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
