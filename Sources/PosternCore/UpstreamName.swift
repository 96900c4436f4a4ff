/// Name of a configured upstream: `[a-z][a-z0-9-]{0,30}`, and none of the words the API needs for itself.
public struct UpstreamName: Hashable, Comparable, Sendable, CustomStringConvertible {
    /// 1 to 31 characters.
    public let description: String

    /// Path segments below `/v1/` that have another meaning.
    public static let reserved: Set<String> = [
        "messages", "cloudevents", "events", "upstreams", "stream", "keys", "gateway", "history", "operations", "nodes",
        "api-status",
    ]

    /// Nil if `text` breaks the rule above.
    public init?(_ text: String) {
        guard !Self.reserved.contains(text) else { return nil }
        self.init(stored: text)
    }

    /// The name of an upstream in a store. It may be one that was not reserved when the upstream was configured.
    public init?(stored text: String) {
        let bytes = text.utf8
        guard (1...31).contains(bytes.count) else { return nil }
        guard bytes.first?.isLowercaseLetter == true,
            bytes.allSatisfy({ $0.isLowercaseLetter || $0.isDigit || $0 == UInt8(ascii: "-") })
        else { return nil }
        description = text
    }

    public static func < (left: Self, right: Self) -> Bool { left.description < right.description }
}

/// Number of an upstream inside one store, 1 to 255; given out once per name and never reused.
public struct UpstreamNumber: Hashable, Sendable {
    /// 1 to 255.
    public let rawValue: UInt8
    @inlinable public init(rawValue: UInt8) { self.rawValue = rawValue }
}
