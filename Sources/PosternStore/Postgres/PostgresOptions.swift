/// How to reach the database that several gateways share, and what they have to agree on: the configuration's
/// `outbox.postgres`.
///
/// Descriptions and mirrors show neither the password nor the URL, which may contain one.
public struct PostgresOptions: Sendable, Equatable, CustomStringConvertible, CustomReflectable {
    /// `postgres://user@host:port/name?parameter=value`, with several hosts separated by commas, or libpq's
    /// `keyword=value` form.
    ///
    /// `sslmode` is `verify-full` by default, unless each host is a loopback address or the folder of a socket.
    public var url = ""
    /// Takes precedence over one in `url`. Empty: that one, or what libpq finds (`PGPASSWORD`, `~/.pgpass`).
    public var password = ""
    /// The schema that contains all objects of the store.
    public var schema = "postern"
    /// The name of this gateway among those that share the store; empty: the name of the machine.
    public var node = ""
    /// Another gateway takes over from one that is silent for this long.
    public var leaseSeconds = 10.0
    /// How often a gateway looks for what others have stored.
    public var pollSeconds = 0.02
    /// How long a request waits for a commit whose outcome is unknown.
    public var commitTimeoutSeconds = 5.0
    public var migrate = Migrate.auto
    /// Shown to operators, so that they see that nodes are configured differently.
    public var configDigest = ""
    /// Whether the server may lose commits in a power cut; for tests.
    var acceptsUnsafeServer = false

    public enum Migrate: String, Sendable, CaseIterable {
        /// A start creates the tables and changes those of an earlier version.
        case auto
        /// A start fails if they are not as they should be.
        case never
    }

    public init() {}

    public init(url: String) { self.url = url }

    /// The hosts, the database and the schema, for messages: `db1:5433,db2/orders, schema postern`.
    public var place: String {
        guard let parameters = try? PostgresParameters(self) else { return "the database of outbox.postgres.url" }
        return "\(parameters.place), schema \(schema)"
    }

    public var description: String { place }
    public var customMirror: Mirror { Mirror(self, children: ["place": place, "node": node]) }
}
