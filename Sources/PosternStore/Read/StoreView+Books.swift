public import PosternCore

/// One upstream as the store knows it, configured or not.
public struct UpstreamBooks: Sendable, Equatable {
    public var name: UpstreamName
    public var number: UpstreamNumber
    public var type: String
    public var ledger: Ledger
    /// As the worker left it at its last change; nil if the stored record is not valid.
    public var circuit: CircuitRecord?
    public var isPaused: Bool
    public var oldestQueuedAt: Timestamp?
}

extension StoreView {
    /// What the books say, without counting a row: quick however much is queued. Ordered by name.
    public func books() throws(StoreError) -> [UpstreamBooks] {
        try read { reader in
            let ledgers = try Ledger.all(with: reader.sql)
            let books = try reader.sql.all("SELECT number, type, circuit, isPaused FROM upstreams ORDER BY name") {
                row -> UpstreamBooks? in
                guard let name = reader.names[row[0]] else { return nil }
                return UpstreamBooks(
                    name: name, number: row[0], type: row[1], ledger: ledgers[row[0]] ?? Ledger(),
                    circuit: RecordText.decode(row[2], as: CircuitRecord.self), isPaused: row[3])
            }
            return try books.compactMap { $0 }.map { books in
                var books = books
                books.oldestQueuedAt = try reader.oldestQueued(of: books.number)
                return books
            }
        }
    }
}
