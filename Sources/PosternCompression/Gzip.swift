internal import CZlib

/// The gzip format (RFC 1952), for data that is complete in memory.
public enum Gzip {
    /// A window of 32 KiB, with gzip's header and checksum instead of zlib's own.
    private static let windowBits: Int32 = 15 + 16
    /// Output up to this size is accepted whatever its ratio: a short text of one repeated byte is not an attack.
    static let ratioFreeBytes = 64 << 10
    /// The largest ratio of output to input that is accepted of a longer output.
    public static let maxRatio = 200

    /// The size of the longest output that `decompress` returns for that many bytes.
    public static func maxBytes(from bytes: Int, maxBytes: Int) -> Int {
        min(maxBytes, max(ratioFreeBytes, maxRatio * bytes))
    }

    /// `level` is 0 (store) to 9 (smallest).
    public static func compress(_ bytes: [UInt8], level: Int = 6) -> [UInt8] {
        precondition((0...9).contains(level), "zlib knows levels 0 to 9")
        var stream = z_stream()
        let code = postern_deflate_init(&stream, Int32(level), windowBits)
        precondition(code == Z_OK, "zlib has no memory left")
        defer { deflateEnd(&stream) }
        let bound = Int(deflateBound(&stream, UInt(bytes.count)))
        return [UInt8](unsafeUninitializedCapacity: bound) { output, count in
            bytes.withUnsafeBufferPointer { input in
                // zlib counts in 32 bits. `bound` is enough room for all output, so each call consumes what it is
                // given.
                var position = 0
                var end = Z_OK
                while end == Z_OK {
                    let part = min(input.count - position, Int(UInt32.max))
                    let room = min(output.count - count, Int(UInt32.max))
                    stream.next_in = UnsafeMutablePointer(mutating: input.baseAddress.map { $0 + position })
                    stream.avail_in = UInt32(part)
                    stream.next_out = output.baseAddress.map { $0 + count }
                    stream.avail_out = UInt32(room)
                    end = deflate(&stream, position + part == input.count ? Z_FINISH : Z_NO_FLUSH)
                    position += part - Int(stream.avail_in)
                    count += room - Int(stream.avail_out)
                }
                precondition(end == Z_STREAM_END, "deflateBound was too small")
            }
        }
    }

    /// Joins the members of `bytes`; nothing may follow the last.
    ///
    /// - Parameters:
    ///   - maxBytes: of output.
    ///   - maxRatio: output to input read so far; counts above `ratioFreeBytes` of output.
    public static func decompress(
        _ bytes: [UInt8], maxBytes: Int, maxRatio: Int = maxRatio
    ) throws(GzipError) -> [UInt8] {
        try bytes.withUnsafeBufferPointer { input throws(GzipError) in
            var inflater = Inflater(input, maxBytes: maxBytes, maxRatio: maxRatio)
            return try inflater.run(windowBits: windowBits)
        }
    }
}

/// Why a text could not be decompressed.
public enum GzipError: Error, Sendable, Equatable, CustomStringConvertible {
    /// The data is not gzip, or its checksum is wrong.
    case damaged
    /// The stream is truncated.
    case truncated
    /// Data follows the last gzip member.
    case trailingBytes
    case tooLarge(maxBytes: Int)
    case ratioTooHigh(maxRatio: Int)

    public var description: String {
        switch self {
        case .damaged: "the gzip data is corrupt; compress the body again and resend it"
        case .truncated: "the gzip data ends too early; send all of it"
        case .trailingBytes: "data follows the last gzip member"
        case .tooLarge(let maxBytes): "decompressed it has more than \(maxBytes) bytes; send it in smaller parts"
        case .ratioTooHigh(let maxRatio): "it is compressed by more than 1 to \(maxRatio); send it uncompressed"
        }
    }
}
