import GRDB
import GRDBSQLite

// The hot paths bind and read through SQLite's own functions: GRDB's value boxing would cost more than the insert.

/// SQLite copies what it is given (https://www.sqlite.org/c3ref/c_static.html).
private nonisolated(unsafe) let copied = unsafeBitCast(-1, to: sqlite3_destructor_type.self)

extension Statement {
    func bind(_ value: Int64, at place: Int32) { sqlite3_bind_int64(sqliteStatement, place, value) }

    func bind(_ value: Int64?, at place: Int32) {
        if let value { sqlite3_bind_int64(sqliteStatement, place, value) } else { bindNull(at: place) }
    }

    func bind(_ value: Int, at place: Int32) { bind(Int64(value), at: place) }

    func bindNull(at place: Int32) { sqlite3_bind_null(sqliteStatement, place) }

    func bind(_ text: String?, at place: Int32) {
        guard var text else { return bindNull(at: place) }
        text.withUTF8 { bytes in
            bytes.withMemoryRebound(to: CChar.self) { characters in
                _ = sqlite3_bind_text(sqliteStatement, place, characters.baseAddress, Int32(bytes.count), copied)
            }
        }
    }

    /// Without a copy: `bytes` must live until the statement has been stepped and reset.
    func bind(borrowing bytes: UnsafeRawBufferPointer, at place: Int32) {
        // An empty blob needs a pointer, or it would be NULL.
        if bytes.isEmpty {
            sqlite3_bind_zeroblob(sqliteStatement, place, 0)
        } else {
            sqlite3_bind_blob(sqliteStatement, place, bytes.baseAddress, Int32(bytes.count), nil)
        }
    }

    func bind(_ bytes: [UInt8]?, at place: Int32) {
        guard let bytes else { return bindNull(at: place) }
        guard !bytes.isEmpty else {
            sqlite3_bind_zeroblob(sqliteStatement, place, 0)
            return
        }
        bytes.withUnsafeBytes { buffer in
            _ = sqlite3_bind_blob(sqliteStatement, place, buffer.baseAddress, Int32(buffer.count), copied)
        }
    }

    /// Runs a statement without rows and makes it ready for the next binding.
    func run(in db: Database) throws {
        let code = sqlite3_step(sqliteStatement)
        sqlite3_reset(sqliteStatement)
        guard code == SQLITE_DONE || code == SQLITE_ROW else { throw Self.error(code, in: db) }
    }

    /// Calls `body` for each row until it answers false.
    func forEachRow(in db: Database, _ body: (borrowing SQLiteRow) throws -> Bool) throws {
        defer { sqlite3_reset(sqliteStatement) }
        while true {
            let code = sqlite3_step(sqliteStatement)
            if code == SQLITE_DONE { return }
            guard code == SQLITE_ROW else { throw Self.error(code, in: db) }
            guard try body(SQLiteRow(statement: sqliteStatement)) else { return }
        }
    }

    private static func error(_ code: Int32, in db: Database) -> DatabaseError {
        let connection = db.sqliteConnection
        return DatabaseError(
            resultCode: ResultCode(rawValue: sqlite3_extended_errcode(connection)),
            message: sqlite3_errmsg(connection).map { String(cString: $0) } ?? "code \(code)")
    }
}

/// The row a statement stands on; columns count from 0.
struct SQLiteRow: ~Copyable {
    let statement: OpaquePointer

    func integer(_ column: Int32) -> Int64 { sqlite3_column_int64(statement, column) }

    func integerOrNil(_ column: Int32) -> Int64? { isNull(column) ? nil : integer(column) }

    func isNull(_ column: Int32) -> Bool { sqlite3_column_type(statement, column) == SQLITE_NULL }

    func text(_ column: Int32) -> String? {
        guard let characters = sqlite3_column_text(statement, column) else { return nil }
        return String(cString: characters)
    }

    func byteCount(_ column: Int32) -> Int { Int(sqlite3_column_bytes(statement, column)) }

    func bytes(_ column: Int32) -> [UInt8]? {
        guard !isNull(column) else { return nil }
        let count = byteCount(column)
        guard count > 0, let start = sqlite3_column_blob(statement, column) else { return [] }
        return Array(UnsafeRawBufferPointer(start: start, count: count))
    }
}
