import CSQLite

/// Rows in the binary format of `COPY`, made of rows of SQLite.
struct CopiedRows {
    private static let header = Array("PGCOPY\n".utf8) + [0xFF, 0x0D, 0x0A, 0x00] + [UInt8](repeating: 0, count: 8)
    private(set) var bytes = header

    /// Keeps the memory.
    mutating func removeAll() { bytes.removeAll(keepingCapacity: true) }

    /// Nothing follows.
    mutating func end() { put(Int16(-1)) }

    /// A row with that many values follows.
    mutating func beginRow(of columns: Int) { put(Int16(columns)) }

    mutating func add(_ value: Int64) {
        put(Int32(8))
        withUnsafeBytes(of: value.bigEndian) { bytes += $0 }
    }

    mutating func add(_ value: Bool) {
        put(Int32(1))
        bytes.append(value ? 1 : 0)
    }

    mutating func add(text: String) {
        let text = PostgresText.stored(text).utf8
        put(Int32(text.count))
        bytes += text
    }

    /// - Parameter type: That of the column in PostgreSQL.
    mutating func add(_ row: borrowing SQLRow, _ column: Int32, as type: UInt32) {
        guard let statement = row.position.statement, sqlite3_column_type(statement, column) != SQLITE_NULL else {
            return put(Int32(-1))
        }
        switch type {
        case PostgresType.bool: add(row[column] as Bool)
        case PostgresType.text: add(text: row[column])
        case PostgresType.bytea:
            let value: BorrowedBytes = row[column]
            put(Int32(value.bytes.count))
            bytes += value.bytes
        default: add(row[column] as Int64)
        }
    }

    private mutating func put(_ value: some FixedWidthInteger) { withUnsafeBytes(of: value.bigEndian) { bytes += $0 } }
}
