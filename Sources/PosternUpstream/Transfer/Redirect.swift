extension UpstreamResponse {
    /// Where a redirect (3xx) leads, for people: scheme, host and path of its `Location`. A user name, a password, a
    /// query and a fragment may be secret and are left out. Nil if the response is not a redirect, or if its `Location`
    /// is neither an `http` or `https` URL nor a path.
    ///
    /// Worked values: `https://user:pw@h.example/a?sig=1` is `https://h.example/a`, `/a?b#c` is `/a`, `a@b` is nil.
    public var redirectTarget: String? {
        guard (300..<400).contains(status), let location = header("Location"),
            location.utf8.allSatisfy({ (0x21...0x7E).contains($0) && $0 != UInt8(ascii: "\\") })
        else { return nil }
        let shown = location.prefix { $0 != "?" && $0 != "#" }
        if shown.hasPrefix("/"), !shown.hasPrefix("//") { return String(shown) }
        let lowercased = shown.lowercased()
        guard let scheme = ["https://", "http://", "//"].first(where: lowercased.hasPrefix) else { return nil }
        let authority = shown.dropFirst(scheme.count).prefix { $0 != "/" }
        let host = authority.split(separator: "@", omittingEmptySubsequences: false).last ?? ""
        guard !host.isEmpty else { return nil }
        return scheme + host + shown.dropFirst(scheme.count + authority.count)
    }

    /// The status, what it is for, and where a redirect leads.
    public func outline(for purpose: String = "") -> String {
        "HTTP \(status)\(purpose)" + (redirectTarget.map { ": redirected to \($0), which is not followed" } ?? "")
    }
}
