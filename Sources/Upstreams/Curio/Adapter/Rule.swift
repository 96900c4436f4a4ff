import PosternCore
import PosternUpstream

/// The form that a member of a payload must have.
enum Rule: Equatable, Sendable {
    /// A text that is not empty.
    case filled
    case text
    case sessionCode
    /// The caller's code of a screen or an event.
    case code
    /// A session's timeout.
    case minutes
    case timestamp
    /// A time by the clock of any device.
    case anyTime
    /// A size, or a number of milliseconds.
    case count
    case connection
    case bluetooth
    case battery
    case degrees(most: Int)
    case tags
    /// A push payload with the id of the notification.
    case pushPayload

    /// 2010-01-01T00:00:00Z. Earlier times are rejected, which also detects seconds instead of milliseconds.
    static let earliest: Int64 = 1_262_304_000_000
    /// How far a device's clock may be ahead.
    static let furthest = Duration.seconds(86400)

    var sentence: String {
        switch self {
        case .filled: "must be a non-empty string"
        case .text: "must be a string"
        case .sessionCode: "must be a version-1 UUID in lower case"
        case .code: "must be a non-empty string other than NULL, (null), <null>, and UNKNOWN"
        case .minutes: "must be an integer from 1 to 1440"
        case .timestamp: "must be an integer: milliseconds since 1970, from 2010 on and at most 24 h from now"
        case .anyTime: "must be an integer from 0 on: milliseconds since 1970"
        case .count: "must be an integer from 0 on"
        case .connection: "must be wifi, mobile, Offline, other or empty"
        case .bluetooth: "must be on, off or no permission"
        case .battery: "must be an integer from 0 to 100, or unknown"
        case .degrees(let most):
            "must be a decimal number from -\(most) to \(most), of at most \(JSONValue.longestDecimal) characters"
        case .tags: "must be an object of strings with at least one member"
        case .pushPayload: "must be the payload of the notification, an object with pId"
        }
    }

    func allows(_ value: JSONValue, acceptedAt: Timestamp) -> Bool {
        switch self {
        case .filled: value.isFilledString && !value.holdsNUL
        case .text: value.kind == .string && !value.holdsNUL
        case .sessionCode: value.kind == .string && Code.isSession(value.stringBytes ?? [])
        case .code:
            value.isFilledString && !value.holdsNUL && !value.isOne(of: ["NULL", "(null)", "<null>", "UNKNOWN"])
        case .minutes: value.integer.map { (1...1440).contains($0) } ?? false
        case .timestamp:
            value.integer.map { Self.earliest <= $0 && $0 <= (acceptedAt + Self.furthest).milliseconds } ?? false
        case .count, .anyTime: value.integer.map { $0 >= 0 } ?? false
        case .connection: value.isOne(of: ["wifi", "mobile", "Offline", "other", ""])
        case .bluetooth: value.isOne(of: ["on", "off", "no permission"])
        case .battery: Self.isBattery(value)
        case .degrees(let most): Self.isDecimal(value, most: most)
        // Its members are examined one by one.
        case .tags: false
        // So is its `pId`.
        case .pushPayload: false
        }
    }

    private static func isBattery(_ value: JSONValue) -> Bool {
        if value.equals("unknown") { return true }
        guard value.kind == .number || value.kind == .string else { return false }
        if value.kind == .number { return value.integer.map { 0...100 ~= $0 } ?? false }
        guard let text = value.string, (1...3).contains(text.utf8.count), text.utf8.allSatisfy(\.isDigit) else {
            return false
        }
        return Int(text).map { $0 <= 100 } ?? false
    }

    /// `-`, digits, and optionally a point with digits. A text has no exponent, which the server may not accept; that of
    /// a number is written out.
    private static func isDecimal(_ value: JSONValue, most: Int) -> Bool {
        guard value.bytes.count <= JSONValue.longestDecimal, let text = value.plainText else { return false }
        let digits = text.utf8.first == UInt8(ascii: "-") ? text.utf8.dropFirst() : text.utf8[...]
        let parts = digits.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
        guard (1...2).contains(parts.count), parts.allSatisfy({ !$0.isEmpty && $0.allSatisfy(\.isDigit) }) else {
            return false
        }
        guard let whole = Int(Substring(parts[0])) else { return false }
        return whole < most
            || whole == most && parts.dropFirst().allSatisfy { $0.allSatisfy { $0 == UInt8(ascii: "0") } }
    }

}

extension JSONValue {
    fileprivate func isOne(of texts: [StaticString]) -> Bool { kind == .string && texts.contains(where: equals) }

    /// Whether a string contains U+0000, where devices would truncate it.
    var holdsNUL: Bool { hasEscapes && holds(0) }
}
