import Glibc
public import PosternUpstream

extension PostgresOptions {
    /// `node`, or the name of the machine without characters that a header cannot have.
    public var nodeName: String {
        guard node.isEmpty else { return node }
        var name = [CChar](repeating: 0, count: 256)
        guard gethostname(&name, name.count - 1) == 0 else { return "unnamed" }
        let visible = name.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }.filter { (33..<127).contains($0) }
        return String(decoding: visible, as: UTF8.self)
    }
}

extension PostgresOptions: SettingsSection {
    public static let fields: [SettingField<Self>] = [
        .text(
            "url", \.url, rule: address, secret: true,
            "The database, `postgres://user@host:5432/name`; several hosts, separated by commas, are tried in turn. Parameters "
                + "of libpq may follow, e.g. `?sslrootcert=/etc/ssl/db.pem`; `sslmode` is `verify-full` by default, unless the "
                + "host is this machine. Required if `engine` is `postgres`."),
        .text("password", \.password, rule: .printable, secret: true, "The user's password, if it is not in `url`."),
        .text(
            "schema", \.schema, rule: identifier,
            "The schema that has the tables. Gateways with the same database and schema share one store."),
        .text(
            "node", \.node, rule: nodeName,
            "The name of this gateway among those that share the store; empty: the name of the machine."),
        .number(
            "leaseSeconds", 3...60, \.leaseSeconds,
            "Time after which another gateway takes over from one that is silent. The same for all."),
        .number(
            "pollSeconds", 0.001...1, \.pollSeconds, "How often a gateway looks for what others have stored."),
        .number(
            "commitTimeoutSeconds", 0.1...60, \.commitTimeoutSeconds,
            "How long a request waits for a commit whose outcome is unknown, before it gets 503."),
        .choice(
            "migrate", \.migrate,
            "Whether a start creates the tables and changes those of an earlier version, or ends if they are missing."),
    ]

    private static let address = Setting.Rule<String>(
        "expected postgres://user@host:port/name, or keyword=value as libpq has them"
    ) { $0.isEmpty || $0.wholeMatch(of: #/(postgres(ql)?:\/\/[!-~]+|[a-z_]+ *=[ -~]*)/#) != nil }

    /// What needs no quotes in SQL. The suffix of a run with simulators still fits into PostgreSQL's 63 bytes.
    private static let identifier = Setting.Rule<String>(
        "expected 1 to 50 of a-z, 0-9 and '_', and no digit first; not pg_…"
    ) { $0.wholeMatch(of: #/[a-z_][a-z0-9_]{0,49}/#) != nil && !$0.hasPrefix("pg_") }

    private static let nodeName = Setting.Rule<String>("expected at most 63 of letters, digits, '.', '_' and '-'") {
        $0.wholeMatch(of: #/[A-Za-z0-9._\-]{0,63}/#) != nil
    }
}
