/// Headers from the configuration, sent with every request: what a proxy in front of an upstream wants to see.
enum FixedHeaders {
    /// Names that the transport or the protocol of any upstream sets itself.
    private static let taken: Set<String> = [
        "accept", "connection", "content-encoding", "content-length", "content-type", "expect", "host", "te",
        "trailer", "transfer-encoding", "upgrade",
    ]

    /// In the order of their names, so that requests are the same each time; or what is wrong, which shows no value.
    static func checked(
        _ headers: [String: String], besides own: Set<String> = []
    ) -> Result<[(name: String, value: String)], BadHeaders> {
        let sorted = headers.sorted { $0.key < $1.key }
        var problems: [String] = []
        var seen: Set<String> = []
        for (name, value) in sorted {
            let lowercased = name.lowercased()
            if name.isEmpty || !name.utf8.allSatisfy(isTokenByte) {
                problems.append("'\(name)' is no header name")
            } else if taken.contains(lowercased) || own.contains(lowercased) {
                problems.append("\(name) is set by Postern itself")
            } else if !seen.insert(lowercased).inserted {
                problems.append("\(name) is there twice")
            }
            if !value.utf8.allSatisfy({ $0 >= 0x20 && $0 != 0x7F || $0 == 0x09 }) {
                problems.append("the value of \(name) holds a control character")
            }
        }
        return problems.isEmpty ? .success(sorted.map { ($0.key, $0.value) }) : .failure(BadHeaders(details: problems))
    }

    struct BadHeaders: Error { let details: [String] }

    /// `tchar` of RFC 9110, section 5.6.2.
    private static func isTokenByte(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"):
            true
        default: "!#$%&'*+-.^_`|~".utf8.contains(byte)
        }
    }
}
