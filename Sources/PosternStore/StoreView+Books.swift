import GRDB
public import PosternCore

/// One upstream as the store knows it, configured or not.
public struct UpstreamBooks: Sendable, Equatable {
    public var name: UpstreamName
    public var number: UpstreamNumber
    public var type: String
    public var ledger: Ledger
    /// As the worker left it at its last change.
    public var circuit: CircuitRecord
    public var isPaused: Bool
    public var oldestQueuedAt: Timestamp?

}

extension StoreView {
    /// What the books say, without counting a row: quick however much is queued. Ordered by name.
    public func books() throws(StoreError) -> [UpstreamBooks] {
        try read { reader in
            let rows = try Row.fetchAll(reader.db, sql: "SELECT * FROM upstreams ORDER BY name")
            return try rows.compactMap { row in
                let number = UpstreamNumber(rawValue: row["number"])
                guard let name = reader.names[number] else { return nil }
                let oldest = try Int64.fetchOne(
                    reader.db, sql: "SELECT acceptedAtMs FROM queue_\(number.rawValue) ORDER BY id LIMIT 1")
                return UpstreamBooks(
                    name: name, number: number, type: row["type"], ledger: Ledger(row),
                    circuit: RecordText.decode(row["circuit"], as: CircuitRecord.self) ?? CircuitRecord(),
                    isPaused: row["isPaused"], oldestQueuedAt: oldest.map(Timestamp.init(milliseconds:)))
            }
        }
    }
}

extension Ledger {
    /// Of a row of table `upstreams`.
    init(_ row: Row) {
        self.init()
        for column in Self.columns { self[keyPath: column.path] = row[column.name] }
    }
}
