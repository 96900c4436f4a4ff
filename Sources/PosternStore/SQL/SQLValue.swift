import CSQLite
import PosternCore

/// A Swift value that a statement binds and a row holds.
protocol SQLValue {
    /// Returns the result code of SQLite, which has no memory for a copy, or refuses a value that is too large.
    func bind(to statement: OpaquePointer, at index: Int32) -> Int32
    /// NULL reads as zero or empty; read an optional where it has a meaning.
    init(from statement: OpaquePointer, column: Int32)

    /// The OID of its type in PostgreSQL.
    static var postgresType: UInt32 { get }
    func add(to values: inout PostgresValues)
    init(from cell: PostgresCell)
}

/// A value in a result of PostgreSQL.
struct PostgresCell {
    let result: PostgresResult
    let row: Int
    let column: Int

    var isNull: Bool { result.isNull(row, column) }
    /// 0 for NULL.
    var integer: Int64 { isNull ? 0 : result.integer(row, column) }
    /// Empty for NULL. They live as long as the result.
    var bytes: UnsafeRawBufferPointer {
        isNull ? UnsafeRawBufferPointer(start: nil, count: 0) : result.bytes(row, column)
    }
}

extension SQLValue {
    @inline(__always)
    func bind(to statement: OpaquePointer, after index: inout Int32, _ result: inout Int32) {
        index += 1
        let code = bind(to: statement, at: index)
        if code != SQLITE_OK { result = code }
    }
}

/// A value that is stored as an integer.
protocol SQLInteger: SQLValue {
    var sqlInteger: Int64 { get }
    init(sqlInteger: Int64)
}

extension SQLInteger {
    @inline(__always)
    func bind(to statement: OpaquePointer, at index: Int32) -> Int32 {
        sqlite3_bind_int64(statement, index, sqlInteger)
    }
    @inline(__always)
    init(from statement: OpaquePointer, column: Int32) {
        self.init(sqlInteger: sqlite3_column_int64(statement, column))
    }

    static var postgresType: UInt32 { PostgresType.bigint }
    func add(to values: inout PostgresValues) { values.add(sqlInteger) }
    init(from cell: PostgresCell) { self.init(sqlInteger: cell.integer) }
}

extension Int64: SQLInteger {
    @inline(__always) var sqlInteger: Int64 { self }
    @inline(__always) init(sqlInteger: Int64) { self = sqlInteger }
}

extension Int: SQLInteger {
    @inline(__always) var sqlInteger: Int64 { Int64(self) }
    @inline(__always) init(sqlInteger: Int64) { self = Int(sqlInteger) }
}

extension Bool: SQLInteger {
    @inline(__always) var sqlInteger: Int64 { self ? 1 : 0 }
    @inline(__always) init(sqlInteger: Int64) { self = sqlInteger != 0 }

    static var postgresType: UInt32 { PostgresType.bool }
    func add(to values: inout PostgresValues) { values.add(self) }
}

extension MessageID: SQLInteger {
    @inline(__always) var sqlInteger: Int64 { rawValue }
    @inline(__always) init(sqlInteger: Int64) { self.init(rawValue: sqlInteger) }
}

extension BatchID: SQLInteger {
    @inline(__always) var sqlInteger: Int64 { rawValue }
    @inline(__always) init(sqlInteger: Int64) { self.init(rawValue: sqlInteger) }
}

/// Milliseconds since 1970 UTC.
extension Timestamp: SQLInteger {
    @inline(__always) var sqlInteger: Int64 { milliseconds }
    @inline(__always) init(sqlInteger: Int64) { self.init(milliseconds: sqlInteger) }
}

extension UpstreamNumber: SQLInteger {
    @inline(__always) var sqlInteger: Int64 { Int64(rawValue) }
    @inline(__always) init(sqlInteger: Int64) { self.init(rawValue: UInt8(truncatingIfNeeded: sqlInteger)) }
}

extension MessageState: SQLInteger {
    @inline(__always) var sqlInteger: Int64 { Int64(rawValue) }
    init(sqlInteger: Int64) { self = MessageState(rawValue: UInt8(truncatingIfNeeded: sqlInteger)) ?? .queued }
}

/// SQLite copies what it is given (https://www.sqlite.org/c3ref/c_static.html).
private nonisolated(unsafe) let copied = unsafeBitCast(-1, to: sqlite3_destructor_type.self)

extension String: SQLValue {
    func bind(to statement: OpaquePointer, at index: Int32) -> Int32 {
        var text = self
        return text.withUTF8 { bytes in
            bytes.withMemoryRebound(to: CChar.self) { characters in
                sqlite3_bind_text(statement, index, characters.baseAddress, Int32(bytes.count), copied)
            }
        }
    }

    init(from statement: OpaquePointer, column: Int32) {
        // As text, SQLite would copy it for a zero at its end, and for want of memory return none.
        let start = sqlite3_column_blob(statement, column)
        let count = Int(sqlite3_column_bytes(statement, column))
        self.init(decoding: UnsafeRawBufferPointer(start: start, count: start == nil ? 0 : count), as: UTF8.self)
    }

    static var postgresType: UInt32 { PostgresType.text }
    func add(to values: inout PostgresValues) { values.add(text: self) }
    init(from cell: PostgresCell) { self = PostgresText.read(cell.bytes) }
}

extension [UInt8]: SQLValue {
    func bind(to statement: OpaquePointer, at index: Int32) -> Int32 {
        withUnsafeBytes { bytes in
            // An empty blob needs a pointer, or it would be NULL.
            bytes.isEmpty
                ? sqlite3_bind_zeroblob(statement, index, 0)
                : sqlite3_bind_blob(statement, index, bytes.baseAddress, Int32(bytes.count), copied)
        }
    }

    init(from statement: OpaquePointer, column: Int32) {
        guard let start = sqlite3_column_blob(statement, column) else {
            self = []
            return
        }
        self.init(UnsafeRawBufferPointer(start: start, count: Int(sqlite3_column_bytes(statement, column))))
    }

    static var postgresType: UInt32 { PostgresType.bytea }
    func add(to values: inout PostgresValues) { withUnsafeBytes { values.add(bytes: $0) } }
    init(from cell: PostgresCell) { self.init(cell.bytes) }
}

/// A blob that is bound without a copy: it must live until the statement has run.
struct BorrowedBytes: SQLValue {
    let bytes: UnsafeRawBufferPointer

    init(_ bytes: UnsafeRawBufferPointer) { self.bytes = bytes }

    @inline(__always)
    func bind(to statement: OpaquePointer, at index: Int32) -> Int32 {
        bytes.isEmpty
            ? sqlite3_bind_zeroblob(statement, index, 0)
            : sqlite3_bind_blob(statement, index, bytes.baseAddress, Int32(bytes.count), nil)
    }

    init(from statement: OpaquePointer, column: Int32) {
        bytes = UnsafeRawBufferPointer(
            start: sqlite3_column_blob(statement, column), count: Int(sqlite3_column_bytes(statement, column)))
    }

    static var postgresType: UInt32 { PostgresType.bytea }
    func add(to values: inout PostgresValues) { values.add(bytes: bytes) }
    init(from cell: PostgresCell) { bytes = cell.bytes }
}

/// nil is NULL.
extension Optional: SQLValue where Wrapped: SQLValue {
    @inline(__always)
    func bind(to statement: OpaquePointer, at index: Int32) -> Int32 {
        if let self { self.bind(to: statement, at: index) } else { sqlite3_bind_null(statement, index) }
    }

    @inline(__always)
    init(from statement: OpaquePointer, column: Int32) {
        self = sqlite3_column_type(statement, column) == SQLITE_NULL ? nil : Wrapped(from: statement, column: column)
    }

    static var postgresType: UInt32 { Wrapped.postgresType }
    func add(to values: inout PostgresValues) {
        if let self { self.add(to: &values) } else { values.addNull(Self.postgresType) }
    }
    init(from cell: PostgresCell) { self = cell.isNull ? nil : Wrapped(from: cell) }
}
