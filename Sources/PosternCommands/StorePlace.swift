import PosternCore
public import PosternGateway
import PosternStore

/// Where the store is that a command works on, and the gateway that may be running on it.
public struct StorePlace: Sendable, Equatable {
    public let path: String
    /// Nil when nothing says where the gateway listens.
    public let gateway: GatewayAddress?

    public init(path: String, gateway: GatewayAddress? = nil) {
        self.path = path
        self.gateway = gateway
    }

    /// As a configuration has it; `choice` wins over the address that it gives.
    public init(_ loader: ConfigurationLoader, _ choice: GatewayAddress.Choice = .init()) throws(CommandFailure) {
        let configuration: GatewayConfiguration
        do throws(ConfigurationProblems) {
            configuration = try loader.load().configuration
        } catch {
            throw CommandFailure(CheckReport.configurationError, CheckReport.text(loader.file, error.problems))
        }
        path = configuration.outbox.absolutePath
        gateway = try GatewayAddress(of: configuration.server, choice)
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
