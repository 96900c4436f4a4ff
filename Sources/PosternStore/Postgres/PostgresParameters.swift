import CPostgres
import Glibc

/// The parameters of a connection, by libpq's keywords ("Parameter Key Words" in PostgreSQL's manual).
struct PostgresParameters {
    /// One set for each host, in their order. libpq itself would not go on to the next host after a time limit.
    private(set) var hosts: [[String: String]] = []
    /// Values that no text may contain.
    private(set) var secrets: [String] = []
    /// The hosts and the database.
    let place: String

    init(_ options: PostgresOptions) throws(PostgresError) {
        var values = Self.defaults
        let given = try Self.parse(options.url)
        values.merge(given.values) { $1 }
        secrets = given.secrets
        if !options.password.isEmpty {
            values["password"] = options.password
            secrets.append(options.password)
        }
        // All texts are sent and expected in it.
        values["client_encoding"] = "UTF8"

        let names = Self.list(values["host"])
        let addresses = Self.list(values["hostaddr"])
        let ports = Self.list(values["port"])
        let reached = addresses.isEmpty ? names : addresses
        if values["sslmode"] == nil, reached.isEmpty || !reached.allSatisfy(Self.isLocal) {
            values["sslmode"] = "verify-full"
        }
        let count = max(names.count, addresses.count)
        // libpq reports lists of different lengths.
        let matches = [names.count, addresses.count].allSatisfy { [0, count].contains($0) }
        if count > 1, matches, [0, 1, count].contains(ports.count) {
            hosts = (0..<count).map { index in
                var one = values
                for (keyword, list) in [("host", names), ("hostaddr", addresses), ("port", ports)] where !list.isEmpty {
                    one[keyword] = list[list.count == 1 ? 0 : index]
                }
                return one
            }
        } else {
            hosts = [values]
        }
        let shown = (names.isEmpty ? addresses : names).enumerated().map { index, name in
            let port = ports.isEmpty ? "" : ports[min(index, ports.count - 1)]
            return port.isEmpty ? name : "\(name):\(port)"
        }
        place = (shown.isEmpty ? "localhost" : shown.joined(separator: ",")) + "/" + (values["dbname"] ?? "")
    }

    private static let defaults = [
        "fallback_application_name": "postern",
        // Another server than the one that accepts writes is passed over.
        "target_session_attrs": "read-write",
        // It would take the place of TLS, without the check of the server's name.
        "gssencmode": "disable",
        // A peer that vanished is noticed in about ten seconds, also where a wait has no limit.
        "keepalives_idle": "5", "keepalives_interval": "2", "keepalives_count": "3", "tcp_user_timeout": "10000",
    ]

    private static func list(_ text: String?) -> [String] {
        guard let text, !text.isEmpty else { return [] }
        return text.split(separator: ",", omittingEmptySubsequences: false).map(String.init)
    }

    /// Whether it is the folder of a socket, an abstract socket, or a loopback address.
    static func isLocal(_ host: String) -> Bool {
        if host.hasPrefix("/") || host.hasPrefix("@") || host == "localhost" || host == "::1" { return true }
        var address = in_addr()
        return inet_pton(AF_INET, host, &address) == 1 && UInt32(bigEndian: address.s_addr) >> 24 == 127
    }

    private static func parse(_ url: String) throws(PostgresError) -> (values: [String: String], secrets: [String]) {
        var error: UnsafeMutablePointer<CChar>?
        guard let parsed = PQconninfoParse(url, &error) else {
            defer { PQfreemem(error) }
            // What is quoted may be part of a password.
            var reason = PostgresError.line(error)
            if let first = reason.firstIndex(of: "\""), let last = reason.lastIndex(of: "\"") {
                reason.replaceSubrange(first...last, with: "\"…\"")
            }
            throw PostgresError(message: "the URL of the database is not valid: \(reason)", isConnectionLost: true)
        }
        defer { PQconninfoFree(parsed) }
        var (values, secrets): ([String: String], [String]) = ([:], [])
        var option = parsed
        while let keyword = option.pointee.keyword {
            if let value = option.pointee.val.map({ String(cString: $0) }) {
                values[String(cString: keyword)] = value
                // libpq marks what a dialog would have to hide.
                if option.pointee.dispchar.pointee == CChar(bitPattern: UInt8(ascii: "*")) { secrets.append(value) }
            }
            option += 1
        }
        return (values, secrets)
    }
}
