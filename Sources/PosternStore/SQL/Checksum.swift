import CPosternChecksum

/// The checksum of a payload: CRC32C, computed when the payload is stored and compared before it is sent, because a bit
/// that flipped on the disk would otherwise be delivered. SQLite's own checksums cover only the log.
enum Checksum {
    static func of(_ bytes: UnsafeRawBufferPointer) -> Int64 {
        guard let start = bytes.baseAddress else { return 0 }
        return Int64(postern_crc32c(start, bytes.count))
    }
}

extension BorrowedBytes {
    var checksum: Int64 { Checksum.of(bytes) }
}

extension SQLRow {
    /// Whether the payload in one column matches the checksum in another one.
    func isWhole(payload: Int32, checksum: Int32) -> Bool {
        (self[payload] as BorrowedBytes).checksum == self[checksum] as Int64
    }
}
