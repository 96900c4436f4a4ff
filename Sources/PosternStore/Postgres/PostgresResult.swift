import CPostgres

/// The rows that a statement returned, or the number of those that it changed. Rows and columns count from 0, and an
/// index has to be below its count.
final class PostgresResult {
    private let handle: OpaquePointer

    /// - Parameter handle: Freed with this.
    init(_ handle: OpaquePointer) { self.handle = handle }

    deinit { PQclear(handle) }

    var rowCount: Int { Int(PQntuples(handle)) }
    /// The memory that it takes.
    var byteCount: Int { PQresultMemorySize(handle) }
    var columnCount: Int { Int(PQnfields(handle)) }
    /// The rows that `INSERT`, `UPDATE`, `DELETE` or `MERGE` changed, or that `SELECT` returned; otherwise 0.
    var changedRows: Int { Int(String(cString: PQcmdTuples(handle))) ?? 0 }

    func isNull(_ row: Int, _ column: Int) -> Bool { PQgetisnull(handle, Int32(row), Int32(column)) == 1 }

    /// A `boolean`, an integer of any size, or a `numeric` without a fraction, such as the sum of `bigint`. It
    /// has to be in the range of `Int64`. NULL is 0.
    func integer(_ row: Int, _ column: Int) -> Int64 {
        let bytes = bytes(row, column)
        guard PQfformat(handle, Int32(column)) == 1 else {
            let text = String(decoding: bytes, as: UTF8.self)
            return Int64(text) ?? (text == "t" ? 1 : 0)
        }
        if PQftype(handle, Int32(column)) == PostgresType.numeric { return Self.numeric(bytes) }
        let isNegative = bytes.count > 1 && bytes[0] >= 0x80
        return bytes.reduce(isNegative ? -1 : 0) { $0 << 8 | Int64($1) }
    }

    /// The bytes of a `text` or a `bytea`, valid as long as this exists; none for NULL. `PostgresConnection.execute`
    /// returns any value as text.
    func bytes(_ row: Int, _ column: Int) -> UnsafeRawBufferPointer {
        let (row, column) = (Int32(row), Int32(column))
        return UnsafeRawBufferPointer(
            start: PQgetvalue(handle, row, column), count: Int(PQgetlength(handle, row, column)))
    }

    /// The binary format of `numeric`: the number of digits of base 10 000, the exponent of the first one, the sign, and
    /// the decimals that are shown, each in two bytes; then the digits, without zeros at the end.
    private static func numeric(_ bytes: UnsafeRawBufferPointer) -> Int64 {
        func field(_ index: Int) -> Int64 {
            Int64(Int16(bigEndian: bytes.loadUnaligned(fromByteOffset: index * 2, as: Int16.self)))
        }
        guard bytes.count >= 8, field(0) > 0, field(1) >= 0 else { return 0 }
        var value: Int64 = 0
        // Negative, because there is one more negative number.
        for index in 0...field(1) { value = value * 10_000 - (index < field(0) ? field(Int(index) + 4) : 0) }
        return field(2) == 0 ? -value : value
    }
}
