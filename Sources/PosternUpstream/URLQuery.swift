/// The query of a URL or of a path. Its values may be secrets, such as a signature or a key.
package enum URLQuery {
    /// `text` up to its question mark, and what follows that; the query is empty if there is none.
    package static func split(_ text: String) -> (path: String, query: String) {
        guard let mark = text.firstIndex(of: "?") else { return (text, "") }
        return (String(text[..<mark]), String(text[text.index(after: mark)...]))
    }

    /// The values, decoded. A part without `=` is a value.
    package static func values(of url: String) -> [String] {
        parts(of: split(url).query).map { decoded($0.value) }.filter { !$0.isEmpty }
    }

    /// `url` with those values of its query masked that `isSecret` returns true for.
    ///
    /// Worked values: `/a?v=1&sig=x` becomes `/a?v=***&sig=***`, `/a?token` becomes `/a?***`.
    package static func masked(_ url: String, where isSecret: (String) -> Bool = { _ in true }) -> String {
        let (path, query) = split(url)
        guard !query.isEmpty else { return url }
        let shown = parts(of: query).map { name, value in
            name + (!value.isEmpty && isSecret(decoded(value)) ? SecretMask.mask : String(value))
        }
        return "\(path)?\(shown.joined(separator: "&"))"
    }

    /// Names with their `=`.
    private static func parts(of query: String) -> [(name: String, value: Substring)] {
        query.split(separator: "&", omittingEmptySubsequences: false).map { part in
            guard let equals = part.firstIndex(of: "=") else { return ("", part) }
            let start = part.index(after: equals)
            return (String(part[..<start]), part[start...])
        }
    }

    /// Without percent-encoding; as it is if that is not valid.
    private static func decoded(_ text: some StringProtocol) -> String {
        var bytes: [UInt8] = []
        var rest = text.utf8[...]
        while let byte = rest.popFirst() {
            guard byte == UInt8(ascii: "%") else {
                bytes.append(byte)
                continue
            }
            guard let value = UInt8(String(decoding: rest.prefix(2), as: UTF8.self), radix: 16), rest.count >= 2 else {
                return String(text)
            }
            bytes.append(value)
            rest = rest.dropFirst(2)
        }
        return String(validating: bytes, as: UTF8.self) ?? String(text)
    }
}
