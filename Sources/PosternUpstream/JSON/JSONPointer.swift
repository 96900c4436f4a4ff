/// JSON Pointers (RFC 6901), for naming the member that is wrong.
public enum JSONPointer {
    /// The reference token of a member (RFC 6901, section 3): `/a~1b` for `a/b`.
    public static func member(_ name: String) -> String {
        "/"
            + name.split(separator: "~", omittingEmptySubsequences: false).joined(separator: "~0")
            .split(separator: "/", omittingEmptySubsequences: false).joined(separator: "~1")
    }

    /// The same for a member's key. A very long name is cut.
    public static func member(_ key: JSONValue) -> String {
        guard key.rawString.count > longestName else { return member(key.string ?? "") }
        return member(String(decoding: key.rawString.prefix(longestName), as: UTF8.self) + "…")
    }

    private static let longestName = 200
}
