internal import CZlib

/// The checksum of gzip and PNG (RFC 1952, section 8).
public enum CRC32 {
    /// The CRC-32 of the bytes; 0 for none.
    public static func checksum(of bytes: [UInt8]) -> UInt32 {
        UInt32(truncatingIfNeeded: crc32_z(0, bytes, bytes.count))
    }
}
