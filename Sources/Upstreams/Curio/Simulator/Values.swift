import PosternCore

/// The rules of sections 3, 4.3, and 7 for single values.
struct Values {
    /// Parameters whose texts are encoded twice.
    static let twiceEncoded: Set = ["pageTitle", "path", "eventKey", "eventValue"]

    private static let codes: Set = [
        "visitorCode", "sessionCode", "hitCode", "eventCode", "pushToken", "pushId", "customId",
    ]
    private static let mayBeEmpty: Set = [
        "pushId", "simOperator", "simOpCountry", "networkOpName", "connType", "pageTitle", "path", "eventKey",
        "eventValue",
    ]

    static func check(_ name: String, _ value: String, _ findings: inout Findings) {
        if value.isEmpty, !mayBeEmpty.contains(name) { findings.record("\(name) is empty") }
        if codes.contains(name), isPlaceholder(value, for: name) {
            findings.record("\(name) is a placeholder")
        }
        switch name {
        case "sessionCode":
            if !isUUID(value, version: "1") { findings.record("a sessionCode that is not a lower-case version-1 UUID") }
        case "sessionTimeout":
            guard isNumber(value), let minutes = Int(value), minutes > 0 else {
                return findings.refuse("a sessionTimeout that is not a number of minutes from 1")
            }
            if minutes > 1440 { findings.record("a sessionTimeout of more than a day") }
        case "screenWidth", "screenHeight", "activityWidth", "activityHeight", "storage", "eventDuration":
            if !isNumber(value) { findings.refuse("\(name) is not a whole number from 0") }
        case "connType":
            if !["wifi", "mobile", "Offline", "other", ""].contains(value) { findings.record("an unknown connType") }
        case "bluetooth":
            if !["on", "off", "no permission"].contains(value) { findings.record("an unknown bluetooth") }
        case "batteryLevel":
            if value != "unknown", !(isNumber(value) && (Int(value) ?? 101) <= 100) {
                findings.record("a batteryLevel outside 0 to 100 that is not unknown")
            }
        case "lat": checkDegrees(name, value, upTo: 90, &findings)
        case "long": checkDegrees(name, value, upTo: 180, &findings)
        default: break
        }
    }

    /// `timestamp` of a record: milliseconds, from 2010 to a day ahead.
    static func timestamp(_ value: String, nowMs: Int64, _ findings: inout Findings) -> Int64? {
        guard isNumber(value), let milliseconds = Int64(value) else {
            findings.refuse("a timestamp that is not a number of milliseconds")
            return nil
        }
        if !(1_262_304_000_000...(nowMs + 86_400_000)).contains(milliseconds) {
            findings.record("a timestamp outside 2010 to tomorrow")
        }
        return milliseconds
    }

    private static func isPlaceholder(_ value: String, for name: String) -> Bool {
        value == "NULL" || value == "(null)"
            || value == "UNKNOWN" && (name == "hitCode" || name == "eventCode")
    }

    private static func checkDegrees(
        _ name: String, _ value: String, upTo limit: Double, _ findings: inout Findings
    ) {
        let digits = value.hasPrefix("-") ? value.dropFirst() : value[...]
        let parts = digits.split(separator: ".", omittingEmptySubsequences: false)
        let isDecimal = (1...2).contains(parts.count) && parts.allSatisfy { isDigits($0) }
        guard isDecimal, let degrees = Double(value), abs(degrees) <= limit else {
            return findings.refuse("\(name) is not a decimal number of degrees")
        }
    }
}

func isDigits(_ text: some StringProtocol) -> Bool {
    !text.isEmpty && text.utf8.allSatisfy(\.isDigit)
}

/// Decimal digits as a program writes them, within 63 bits.
func isNumber(_ text: some StringProtocol) -> Bool {
    isDigits(text) && (text.utf8.count == 1 || text.utf8.first != 0x30) && Int64(text) != nil
}

/// Lower case, with the variant of RFC 4122.
func isUUID(_ text: String, version: Character) -> Bool {
    let groups = text.split(separator: "-", omittingEmptySubsequences: false)
    return groups.map(\.utf8.count) == [8, 4, 4, 4, 12] && groups[2].first == version
        && "89ab".contains(groups[3].first ?? "-")
        && groups.joined().utf8.allSatisfy { (0x30...0x39).contains($0) || (0x61...0x66).contains($0) }
}
