import Glibc
import PosternCore
public import PosternGateway
import PosternStore
public import PosternUpstream

/// The location of the store that a command works on, and of the gateway that may be using it.
public struct StoreLocation: Sendable {
    let options: OutboxOptions
    /// The path of the SQLite file, if it is one.
    var path: String { options.path }
    /// Nil if the address of the gateway is not known.
    let gateway: GatewayAddress?
    /// The upstreams of the configuration; empty if only the path is known.
    let upstreams: [AnyUpstream]

    public init(path: String, gateway: GatewayAddress? = nil, upstreams: [any Upstream] = []) {
        self.init(OutboxOptions(path: path), gateway: gateway, upstreams: upstreams)
    }

    private init(_ options: OutboxOptions, gateway: GatewayAddress?, upstreams: [any Upstream]) {
        self.options = options
        self.gateway = gateway
        self.upstreams = upstreams.map { AnyUpstream($0) }
    }

    /// The location that a configuration gives; `choice` takes precedence over its address.
    public init(_ loader: ConfigurationLoader, _ choice: GatewayAddress.Choice = .init()) throws(CommandFailure) {
        let loaded: ConfigurationLoader.LoadedConfiguration
        do throws(ConfigurationProblems) {
            loaded = try loader.load()
        } catch {
            throw CommandFailure(CheckReport.configurationError, CheckReport.text(loader.file, error.problems))
        }
        self.init(
            loaded.configuration.outbox.located,
            gateway: try GatewayAddress(of: loaded.configuration.server, choice), upstreams: loaded.upstreams)
    }

    func summaries() throws(CommandFailure) -> [UpstreamSummary] {
        try onStore { () throws(StoreError) in try StoreView(options).summaries() }
    }

    /// The path of the SQLite file. Throws what to do instead if the store is in PostgreSQL.
    func file() throws(CommandFailure) -> String {
        guard options.kind == .sqlite else {
            throw CommandFailure(
                CommandFailure.usage,
                """
                This command works on an SQLite file, and the store is in PostgreSQL. Copy and restore its schema \
                \(options.postgres.schema) with pg_dump and pg_restore; postern outbox audit checks its books.
                """)
        }
        return options.path
    }
}

extension ConfigurationLoader {
    /// The settings of the store, without a look at anything else.
    func outbox() throws(CommandFailure) -> OutboxOptions {
        do throws(ConfigurationProblems) {
            return try load().configuration.outbox.located
        } catch {
            throw CommandFailure(CheckReport.configurationError, CheckReport.text(file, error.problems))
        }
    }
}

extension OutboxOptions {
    /// Throws if there is no SQLite file.
    func requireFile() throws(CommandFailure) {
        guard access(path, F_OK) == 0 else {
            throw CommandFailure(
                CommandFailure.noStore, "There is no store at \(path): \(String(cString: strerror(errno))).")
        }
    }
}

extension [UpstreamSummary] {
    /// The summary of one upstream. Throws an error that lists the known upstreams if none has that name.
    func upstream(_ name: UpstreamName) throws(CommandFailure) -> UpstreamSummary {
        if let found = first(where: { $0.name == name }) { return found }
        let known = isEmpty ? "none yet" : map(\.name.description).joined(separator: ", ")
        throw CommandFailure(CommandFailure.no, "The store has no upstream \(name); it has: \(known).")
    }
}
