import Logging
import PosternCore
import PosternStore

/// Shows and ends the gateways that share a store in PostgreSQL.
public struct StoreNodes: Sendable {
    private let location: StoreLocation

    public init(_ location: StoreLocation) { self.location = location }

    /// The nodes by name, with the upstreams whose queues they work on.
    public func list(asJSON: Bool) throws(CommandFailure) -> String {
        guard location.options.kind == .postgres else { throw Self.noNodes }
        let nodes = try onStore { () throws(StoreError) in try StoreView(location.options).nodes() }
        guard !asJSON else {
            let texts = nodes.map { $0.json() }
            return JSONWriter.object { $0.raw("nodes", JSONWriter.array(texts)) }
        }
        var table = TextTable(["NODE", "STATE", "VERSION", .number("CLOCK S"), "CONFIG", "QUEUES"])
        for node in nodes {
            table.add([
                node.name, "up", node.version, node.clockOffset.map { "\($0.inSeconds)" } ?? "", node.configDigest,
                node.queues.map(\.description).joined(separator: ","),
            ])
        }
        return table.text
    }

    /// Ends a node. Its gateway joins again as another one, or ends with exit code 74 if it worked on queues.
    public func evict(_ name: String) throws(CommandFailure) -> String {
        guard location.options.kind == .postgres else { throw Self.noNodes }
        let isEnded = try onStore { () throws(StoreError) in
            try StoreLease.evict(
                name, from: location.options, logger: Logger(label: "postern") { _ in SwiftLogNoOpLogHandler() })
        }
        guard isEnded else { throw CommandFailure(CommandFailure.no, "No gateway called \(name) is up.") }
        return "\(name) is ended; another gateway takes over what it worked on."
    }

    private static let noNodes = CommandFailure(
        CommandFailure.usage, "The store is a file, which one gateway uses. Gateways share a store in PostgreSQL.")
}
