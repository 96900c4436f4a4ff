import PosternCore

/// Values of the durable state as bytes: a version, then fields in a fixed order.
struct RecordWriter {
    private(set) var bytes: [UInt8]

    init(version: UInt8) { bytes = [version] }

    mutating func add(_ number: Int64) { withUnsafeBytes(of: number.littleEndian) { bytes += $0 } }

    mutating func add(_ flag: Bool) { bytes.append(flag ? 1 : 0) }

    /// Nil and an empty text differ.
    mutating func add(_ text: String?) {
        guard let text else { return add(Int64(-1)) }
        add(Int64(text.utf8.count))
        bytes += text.utf8
    }
}

/// Reads what the writer wrote. After the end, or after invalid bytes, `failed` is set and the rest is zeros.
struct RecordReader {
    private var rest: ArraySlice<UInt8>
    private(set) var failed = false

    /// Nil if the bytes are of another version.
    init?(_ bytes: [UInt8], version: UInt8) {
        guard bytes.first == version else { return nil }
        rest = bytes.dropFirst()
    }

    mutating func number() -> Int64 {
        take(8).reversed().reduce(Int64(0)) { $0 << 8 | Int64($1) }
    }

    /// Nil for zero.
    mutating func id() -> MessageID? {
        let value = number()
        return value == 0 ? nil : MessageID(rawValue: value)
    }

    mutating func flag() -> Bool { take(1).first == 1 }

    mutating func text() -> String? {
        let count = number()
        guard count >= 0 else { return nil }
        return String(decoding: take(Int(clamping: count)), as: UTF8.self)
    }

    private mutating func take(_ count: Int) -> ArraySlice<UInt8> {
        guard count <= rest.count else {
            failed = true
            rest = []
            return []
        }
        defer { rest = rest.dropFirst(count) }
        return rest.prefix(count)
    }
}
