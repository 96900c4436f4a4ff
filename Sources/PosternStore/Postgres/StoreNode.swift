public import PosternCore

/// A process that shares a store with others, as of its last beat.
public struct StoreNode: Sendable, Equatable {
    /// The setting `outbox.postgres.node`.
    public let name: String
    public let version: String
    /// Differs if the nodes are configured differently.
    public let configDigest: String
    /// The upstreams on whose queues it works, by name.
    public let queues: [UpstreamName]
    /// By how much its clock is ahead of that of the database; nil before it was measured.
    public let clockOffset: Duration?

    /// As an object of the API.
    ///
    /// - Parameter isShown: Whether an upstream may be shown.
    public func json(isShown: (UpstreamName) -> Bool = { _ in true }) -> String {
        JSONWriter.object { json in
            json.string("name", name)
            json.string("version", version)
            json.string("state", "up")
            json.raw("queues", JSONWriter.array(queues.filter(isShown).map { JSONEscapes.quoted("\($0)") }))
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
            SELECT name, version, configDigest, clockOffsetMs,
              (SELECT string_agg(upstreams.name, ' ' ORDER BY upstreams.name)
                FROM queues JOIN upstreams USING (number) WHERE owner = node)
            FROM nodes WHERE state <> ? ORDER BY name
            """, PostgresSchema.dead
        ) { row in
            let names = (row[4] as String?)?.split(separator: " ") ?? []
            return StoreNode(
                name: row[0], version: row[1], configDigest: row[2],
                queues: names.compactMap { UpstreamName(stored: String($0)) },
                clockOffset: (row[3] as Int?).map { .milliseconds($0) })
        }
    }
}
