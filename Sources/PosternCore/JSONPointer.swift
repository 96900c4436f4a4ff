/// JSON Pointers (RFC 6901), for naming the member that is wrong.
public enum JSONPointer {
    /// `/` + the name with `~` and `/` escaped.
    public static func member(_ name: String) -> String {
        "/"
            + name.split(separator: "~", omittingEmptySubsequences: false).joined(separator: "~0")
            .split(separator: "/", omittingEmptySubsequences: false).joined(separator: "~1")
    }
}
