import PosternCore

/// A configured `http` or `https` URL, to which an upstream appends its paths.
package struct BaseURL: Equatable {
    /// Scheme and authority, for example `http://127.0.0.1:9000`.
    let origin: String
    /// The path: empty, or `/` and more without a slash at its end.
    package private(set) var path: String
    /// The slashes at its end, without which `path` is.
    private(set) var slashes = ""

    package var isSecure: Bool { origin.lowercased().hasPrefix("https:") }
    /// In lower case; an IPv6 address has its brackets.
    package var host: String { String(authority.host).lowercased() }
    package var port: Int { authority.port.flatMap { Int($0) } ?? (isSecure ? 443 : 80) }

    private var authority: (host: Substring, port: Substring?) {
        let authority = origin[(origin.firstRange(of: "://")?.upperBound ?? origin.startIndex)...]
        let host = authority.first == "[" ? authority.prefix { $0 != "]" } + "]" : authority.prefix { $0 != ":" }
        let port = authority.dropFirst(host.count + 1)
        return (host, port.isEmpty ? nil : port)
    }

    /// What follows the question mark; empty if there is no query.
    package private(set) var query = Secret("")

    /// Without the query.
    package var text: String { origin + path }
    /// As it was written.
    package var spelled: String { text + slashes }

    /// A URL that is a default in the code. Stops the process if it is not valid.
    package init(known text: String) {
        do {
            try self.init(text)
        } catch {
            preconditionFailure("\(text) \(error.details)")
        }
    }

    /// Throws the fault of the URL, which is not shown, because it may contain credentials.
    ///
    /// - Parameter mayHaveQuery: If false, a query is a fault.
    package init(_ text: String, mayHaveQuery: Bool = false) throws(Setting.Mismatch) {
        guard text.utf8.allSatisfy({ (0x21...0x7E).contains($0) }) else {
            throw Setting.Mismatch("must be a URL in ASCII without white space")
        }
        let lowercased = text.lowercased()
        guard let scheme = ["http://", "https://"].first(where: lowercased.hasPrefix) else {
            throw Setting.Mismatch("must begin with http:// or https://")
        }
        let (location, query) = URLQuery.split(text)
        guard mayHaveQuery || location == text, !text.contains("#") else {
            throw Setting.Mismatch(mayHaveQuery ? "must not have a fragment" : "must not have a query or fragment")
        }
        let rest = location.dropFirst(scheme.count)
        let authority = rest.prefix { $0 != "/" }
        guard !authority.contains("@") else { throw Setting.Mismatch("must not contain a user name or password") }
        guard Self.isAuthority(authority) else {
            throw Setting.Mismatch("must name a host, and a port from 1 to 65535 if any")
        }
        origin = scheme + authority
        path = String(rest.dropFirst(authority.count))
        self.query = Secret(query)
        slashes = String(path.reversed().prefix { $0 == "/" })
        cutSlashes()
    }

    /// Removes the first of `suffixes` that the path ends with, and slashes before it.
    package mutating func cut(oneOf suffixes: [String]) {
        guard let suffix = suffixes.first(where: path.hasSuffix) else { return }
        path.removeLast(suffix.count)
        cutSlashes()
    }

    private mutating func cutSlashes() {
        while path.last == "/" { path.removeLast() }
    }

    /// Host or `[IPv6]`, and a port. The transport finds out whether such a host exists.
    private static func isAuthority(_ text: Substring) -> Bool {
        let port: Substring
        if text.first == "[" {
            guard let bracket = text.firstIndex(of: "]") else { return false }
            let address = text[..<bracket].dropFirst()
            guard !address.isEmpty, address.allSatisfy({ $0.isHexDigit || $0 == ":" || $0 == "." }) else {
                return false
            }
            port = text[bracket...].dropFirst()
        } else {
            let host = text.prefix { $0 != ":" }
            guard !host.isEmpty, host.allSatisfy({ $0.isLetter || $0.isNumber || "-._".contains($0) }) else {
                return false
            }
            port = text.dropFirst(host.count)
        }
        guard port.first == ":" else { return port.isEmpty }
        let digits = port.dropFirst()
        return digits.allSatisfy(\.isWholeNumber) && (Int(digits).map { (1...65535).contains($0) } ?? false)
    }
}

extension SettingField {
    /// The URL of the upstream.
    package static func address(
        _ name: String, _ property: Property<BaseURL>, mayHaveQuery: Bool = false, _ summary: String
    ) -> Self {
        Self(name, .url, property, isAddress: true, summary) {
            .text($0.spelled + ($0.query.isEmpty ? "" : "?\($0.query.value)"))
        } decode: { value throws(Setting.Mismatch) in
            guard let text = value.text else { return nil }
            return try BaseURL(text, mayHaveQuery: mayHaveQuery)
        }
    }

    /// A URL that is used exactly as it is configured, with its query; empty if there is none.
    package static func spelledURL(
        _ name: String, _ property: Property<String>, isAddress: Bool = false, _ summary: String
    ) -> Self {
        Self(name, .url, property, isAddress: isAddress, summary, encode: SettingValue.text) {
            (value) throws(Setting.Mismatch) in
            if let text = value.text, !text.isEmpty { _ = try BaseURL(text, mayHaveQuery: true) }
            return value.text
        }
    }
}
