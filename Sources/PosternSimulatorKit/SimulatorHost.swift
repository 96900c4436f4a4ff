public import Logging
package import PosternCore
internal import PosternFaultServer
internal import PosternHTTP

/// Runs the simulators, each on a port of its own because their paths are fixed.
///
/// `stop` must have returned before the last reference is released.
public final class SimulatorHost: Sendable {
    /// The base URL for each type of upstream, without a slash at the end.
    public let urls: [String: String]
    private let servers: [FaultServer]

    /// How much is stored of each accepted item.
    public enum Keep: String, Sendable, CaseIterable {
        /// Its text.
        case texts
        /// A digest, to detect duplicates: 8 bytes.
        case digests
        /// Only the count.
        case counts
    }

    /// The default port of the first simulator, which is Samsara's own.
    public static let defaultPort: UInt16 = 9000
    public struct StartFailure: Error, CustomStringConvertible {
        /// For people; names the port and the simulator. Without a full stop.
        public let description: String
        /// Whether one of the ports is in use, or cannot be used.
        public let isAboutPorts: Bool
    }

    /// Starts simulators of `types` on `port` and those after it, in that order; 0 lets the system choose all of them.
    ///
    /// - Parameters:
    ///   - faults: played by each simulator by itself; `POST /faults` changes them.
    ///   - seed: of the randomness of the faults.
    ///   - keep: Memory grows with what is kept; benchmarks use `.counts`.
    public static func start(
        _ types: [SimulatorType], host: String = "127.0.0.1", port: UInt16 = defaultPort, faults: Faults = Faults(),
        seed: UInt64 = 0, keep: Keep = .texts, workerThreads: Int = 1, logger: Logger
    ) throws(StartFailure) -> SimulatorHost {
        guard Int(port) + max(0, types.count - 1) <= UInt16.max else {
            throw StartFailure(
                description: "port \(port) leaves no room for the simulators after the first", isAboutPorts: true)
        }
        var urls: [String: String] = [:]
        var servers: [FaultServer] = []
        for (index, type) in types.enumerated() {
            let simulator = type.make(seed, SystemTime())
            let port = port == 0 ? 0 : port + UInt16(index)
            let upstream = SimulatedUpstream(
                simulator, faults: faults, seed: seed, keep: keep)
            do throws(HTTPServerError) {
                let server = try FaultServer(
                    HTTPServerSettings { ($0.host, $0.port, $0.workerThreads) = (host, Int(port), workerThreads) },
                    handler: upstream, logger: logger)
                urls[simulator.name] = "http://\(host):\(try server.start())"
                servers.append(server)
            } catch {
                for server in servers { server.stop() }
                throw StartFailure(
                    description: "the simulator of \(simulator.name) did not start: \(error.detail)",
                    isAboutPorts: [.badAddress, .portInUse, .notPermitted].contains(error.errorClass))
            }
        }
        return SimulatorHost(urls: urls, servers: servers)
    }

    private init(urls: [String: String], servers: [FaultServer]) {
        self.urls = urls
        self.servers = servers
    }

    /// Cuts off all requests in flight, including hanging ones. Blocks.
    public func stop() {
        for server in servers { server.stop() }
    }
}

/// A type of upstream that has a simulator.
public struct SimulatorType: Sendable {
    /// The name of the upstream's type.
    public var name: String { make(0, SystemTime()).name }
    /// Creates a simulator with that seed for its randomness, and that clock.
    package let make: @Sendable (UInt64, any TimeSource) -> any Simulator

    package init(make: @escaping @Sendable (UInt64, any TimeSource) -> any Simulator) { self.make = make }
}
