import PosternCore
public import PosternGateway
import PosternStore
public import PosternUpstream

/// The location of the store that a command works on, and of the gateway that may be using it.
public struct StoreLocation: Sendable {
    /// The path of the SQLite file.
    let path: String
    /// Nil if the address of the gateway is not known.
    let gateway: GatewayAddress?
    /// The upstreams of the configuration; empty if only the path is known.
    let upstreams: [AnyUpstream]

    public init(path: String, gateway: GatewayAddress? = nil, upstreams: [any Upstream] = []) {
        self.path = path
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
            path: loaded.configuration.outbox.absolutePath,
            gateway: try GatewayAddress(of: loaded.configuration.server, choice), upstreams: loaded.upstreams)
    }

    func summaries() throws(CommandFailure) -> [UpstreamSummary] {
        try onStore { () throws(StoreError) in try StoreView(path: path).summaries() }
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
