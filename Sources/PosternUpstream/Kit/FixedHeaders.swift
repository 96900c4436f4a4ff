import PosternCore

/// Headers from the configuration, sent with every request, for example for a proxy in front of an upstream.
enum FixedHeaders {
    /// Names that the transport or the protocol of any upstream sets itself.
    private static let taken: Set<String> = [
        "accept", "connection", "content-encoding", "content-length", "content-type", "expect", "host", "te",
        "trailer", "transfer-encoding", "upgrade",
    ]

    /// The faults of `headers`, without their values. `own`: names that the type sets, in lower case.
    package static func problems(in headers: [String: String], besides own: Set<String> = []) -> [String] {
        var problems: [String] = []
        var seen: Set<String> = []
        for (name, value) in headers.sorted(by: { $0.key < $1.key }) {
            let lowercased = name.lowercased()
            if name.isEmpty || !name.utf8.allSatisfy(\.isTokenCharacter) {
                problems.append("'\(name)' is not a header name")
            } else if taken.contains(lowercased) || own.contains(lowercased) {
                problems.append("\(name) is set by Postern itself")
            } else if !seen.insert(lowercased).inserted {
                problems.append("\(name) is given twice")
            }
            if !value.utf8.allSatisfy({ $0 >= 0x20 && $0 != 0x7F || $0 == 0x09 }) {
                problems.append("the value of \(name) contains a control character")
            }
        }
        return problems
    }
}

extension SettingField {
    /// Headers of every request. They may contain credentials.
    package static func headers(
        _ name: String, _ property: Property<[String: String]>, besides own: Set<String>, _ summary: String
    ) -> Self {
        strings(
            name, property, rule: Setting.Rule { FixedHeaders.problems(in: $0, besides: own) }, secret: true, summary)
    }

    /// The same, with values that cannot be shown.
    package static func secretHeaders(
        _ name: String, _ property: Property<[String: Secret]>, besides own: Set<String>, _ summary: String
    ) -> Self {
        Self(name, .strings, property, secret: true, summary) {
            .strings($0.mapValues(\.value))
        } decode: { value throws(Setting.Mismatch) in
            guard let headers = value.strings else { return nil }
            let problems = FixedHeaders.problems(in: headers, besides: own)
            guard problems.isEmpty else { throw Setting.Mismatch(details: problems) }
            return headers.mapValues { Secret($0) }
        }
    }
}
