/// A status in the header of an answer; 0 is success. Any number is possible; only those that the simulator gives
/// by itself have a message of their own.
struct Status: RawRepresentable, Hashable, Sendable {
    let rawValue: Int

    static let ok = Self(rawValue: 0)
    static let timestampOutOfRange = Self(rawValue: 2)
    static let authenticationFailed = Self(rawValue: 3)
    static let accessDenied = Self(rawValue: 4)
    static let invalidAction = Self(rawValue: 5)
    static let inputError = Self(rawValue: 6)
    static let unknownParameter = Self(rawValue: 7)
    static let rateLimited = Self(rawValue: 8)
    static let invalidTimezone = Self(rawValue: 9)
    static let readOnlyMode = Self(rawValue: 10)
    static let itemNotFound = Self(rawValue: 120)
    static let customerNotFound = Self(rawValue: 250)
    static let applicationNotFound = Self(rawValue: 260)
    static let sessionNeedsV2Hash = Self(rawValue: 280)
    static let sessionInvalid = Self(rawValue: 281)
    static let sessionNotFound = Self(rawValue: 282)
    static let accountNotFound = Self(rawValue: 290)

    /// For people.
    var message: String { Self.messages[self] ?? "Status \(rawValue)" }

    private static let messages = [
        ok: "OK", timestampOutOfRange: "Timestamp out of range", authenticationFailed: "Authentication failed",
        accessDenied: "Access denied", invalidAction: "Invalid action", inputError: "Input error",
        unknownParameter: "Unknown parameter", rateLimited: "Rate limited", invalidTimezone: "Invalid timezone",
        readOnlyMode: "Api in readonly mode", itemNotFound: "Item not found", customerNotFound: "Customer not found",
        applicationNotFound: "Application not found", sessionNeedsV2Hash: "Session needs v2 hash",
        sessionInvalid: "Session invalid", sessionNotFound: "Session not found", accountNotFound: "Account not found",
    ]
}
