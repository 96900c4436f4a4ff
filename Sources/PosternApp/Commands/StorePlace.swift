import PosternCore
import PosternStore

/// Where the store is that a command works on, and the gateway that may be running on it.
public struct StorePlace: Sendable, Equatable {
    public let path: String
    /// Nil when nothing says where the gateway listens.
    public let gatewayURL: String?

    public init(path: String, gatewayURL: String? = nil) {
        self.path = path
        self.gatewayURL = gatewayURL
    }

    /// As a configuration has it; `gatewayURL` wins over the address that it gives.
    public init(_ loader: ConfigurationLoader, gatewayURL: String? = nil) throws(CommandFailure) {
        do throws(ConfigurationProblems) {
            let configuration = try loader.load().configuration
            path = configuration.outbox.absolutePath
            self.gatewayURL = gatewayURL ?? Self.url(of: configuration.server)
        } catch {
            throw CommandFailure(CheckReport.configurationError, CheckReport.text(loader.file, error.problems))
        }
    }

    /// Where this machine reaches a server: an address for all interfaces is asked on loopback.
    private static func url(of server: GatewayConfiguration.Server) -> String? {
        guard server.port > 0 else { return nil }
        let host =
            switch server.host {
            case "", "0.0.0.0": "127.0.0.1"
            case "::", "[::]": "[::1]"
            case let host where host.contains(":") && !host.hasPrefix("["): "[\(host)]"
            case let host: host
            }
        return "\(server.tls.isOn ? "https" : "http")://\(host):\(server.port)"
    }

    func books() throws(CommandFailure) -> [UpstreamBooks] {
        do throws(StoreError) { return try StoreView(path: path).books() } catch { throw CommandFailure(error) }
    }
}

extension [UpstreamBooks] {
    /// The books of one upstream; says which there are when there is none of that name.
    func upstream(_ name: UpstreamName) throws(CommandFailure) -> UpstreamBooks {
        if let found = first(where: { $0.name == name }) { return found }
        let known = isEmpty ? "none yet" : map(\.name.description).joined(separator: ", ")
        throw CommandFailure(CommandFailure.no, "The store knows no upstream \(name); it knows: \(known).")
    }
}
