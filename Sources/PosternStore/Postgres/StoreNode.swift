public import PosternCore

/// A process that shares a store with others, as of its last beat.
public struct StoreNode: Sendable, Equatable {
    /// The setting `outbox.postgres.node`.
    public let name: String
    public let version: String
    /// Differs if the nodes are configured differently.
    public let configDigest: String
    /// Whether it works on the queues.
    public let isOwner: Bool
    /// By how much its clock is ahead of that of the database; nil before it was measured.
    public let clockOffset: Duration?

    /// As an object of the API.
    ///
    /// - Parameter queues: The upstreams of the store; shown if it works on their queues.
    public func json(queues: [UpstreamName]) -> String {
        JSONWriter.object { json in
            json.string("name", name)
            json.string("version", version)
            json.string("state", "up")
            json.raw("queues", JSONWriter.array((isOwner ? queues : []).map { JSONEscapes.quoted("\($0)") }))
            json.decimal("clockOffsetSeconds", clockOffset?.inSeconds)
            json.string("configDigest", configDigest)
        }
    }
}

extension Outbox {
    /// The nodes that share the store, by name; a silent one until it is ended. Empty for a store that no other process can use.
    /// Blocks.
    public func nodes() throws(StoreError) -> [StoreNode] {
        guard engine.isShared else { return [] }
        return try read { try StoreNode.all(with: $0) }
    }
}

extension StoreNode {
    static func all(with sql: SQL) throws -> [StoreNode] {
        try sql.all(
            """
            SELECT name, version, configDigest, node IS NOT DISTINCT FROM owner, clockOffsetMs
            FROM nodes CROSS JOIN store WHERE state = ? ORDER BY name
            """, PostgresSchema.up
        ) {
            StoreNode(
                name: $0[0], version: $0[1], configDigest: $0[2], isOwner: $0[3],
                clockOffset: ($0[4] as Int?).map { .milliseconds($0) })
        }
    }
}
