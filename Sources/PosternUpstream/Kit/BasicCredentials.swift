import PosternCore

/// The credentials of the scheme Basic (RFC 7617, section 2).
public struct BasicCredentials: Sendable, Equatable {
    /// Up to the first colon.
    public let user: [UInt8]
    /// What follows it; it may contain colons.
    public let password: [UInt8]

    /// - Parameter authorization: The value of the header. The case of the scheme does not matter.
    public init?(_ authorization: String) {
        let parts = authorization.split(separator: " ", maxSplits: 1)
        guard parts.count == 2, parts[0].lowercased() == "basic",
            let pair = Base64.decode(parts[1].filter { $0 != " " }), let colon = pair.firstIndex(of: UInt8(ascii: ":"))
        else { return nil }
        user = Array(pair[..<colon])
        password = Array(pair[(colon + 1)...])
    }
}
