/// The object identifiers of the types of parameters.
enum PostgresType {
    static let bool: UInt32 = 16
    static let bytea: UInt32 = 17
    static let bigint: UInt32 = 20
    static let text: UInt32 = 25
    static let byteaArray: UInt32 = 1001
    static let textArray: UInt32 = 1009
    static let bigintArray: UInt32 = 1016
    static let numeric: UInt32 = 1700
}

/// The parameters of a statement, in binary format. All values are copied.
struct PostgresValues: ~Copyable {
    /// Their object identifiers, for `PostgresConnection.prepare`.
    private(set) var types: [UInt32] = []
    /// The first byte is not used, so that an empty value has an address.
    private var bytes: [UInt8] = [0]
    /// Where each value begins in `bytes`; nil is NULL.
    private var starts: [Int?] = []
    private var lengths: [Int32] = []

    init() {}

    /// The size of all values, in bytes.
    var size: Int { bytes.count }

    mutating func add(_ value: Int64) { withUnsafeBytes(of: value.bigEndian) { add(PostgresType.bigint, $0) } }

    mutating func add(_ value: Bool) { withUnsafeBytes(of: UInt8(value ? 1 : 0)) { add(PostgresType.bool, $0) } }

    mutating func add(text: String) {
        var text = PostgresText.stored(text)
        text.withUTF8 { add(PostgresType.text, UnsafeRawBufferPointer($0)) }
    }

    /// - Parameter bytes: Below 1 GiB.
    mutating func add(bytes: UnsafeRawBufferPointer) { add(PostgresType.bytea, bytes) }

    mutating func add(_ array: PostgresArray) {
        types.append(array.type)
        starts.append(bytes.count)
        array.append(to: &bytes)
        lengths.append(Int32(bytes.count - (starts.last.flatMap(\.self) ?? 0)))
    }

    mutating func addNull(_ type: UInt32) {
        types.append(type)
        starts.append(nil)
        lengths.append(0)
    }

    private mutating func add(_ type: UInt32, _ value: UnsafeRawBufferPointer) {
        types.append(type)
        starts.append(bytes.count)
        lengths.append(Int32(value.count))
        bytes += value
    }

    /// Calls `body` with the number of values and, as libpq takes them, their addresses, lengths and formats. All are
    /// valid during the call.
    func withPointers<R>(
        _ body: (Int32, UnsafePointer<UnsafePointer<CChar>?>, UnsafePointer<Int32>, UnsafePointer<Int32>) -> R
    ) -> R {
        bytes.withUnsafeBytes { raw in
            let first = raw.baseAddress?.assumingMemoryBound(to: CChar.self)
            let addresses = starts.map { start in start.flatMap { start in first.map { $0 + start } } }
            return body(Int32(types.count), addresses, lengths, [Int32](repeating: 1, count: types.count))
        }
    }
}
