internal import CZlib

/// A decompression in progress.
struct Inflater {
    private let input: UnsafeBufferPointer<UInt8>
    private let maxBytes: Int
    private let maxRatio: Int
    private var output: [UInt8] = []
    private var stream = z_stream()

    init(_ input: UnsafeBufferPointer<UInt8>, maxBytes: Int, maxRatio: Int) {
        self.input = input
        self.maxBytes = maxBytes
        self.maxRatio = maxRatio
    }

    mutating func run(windowBits: Int32) throws(GzipError) -> [UInt8] {
        guard !input.isEmpty else { throw .truncated }
        let code = postern_inflate_init(&stream, windowBits)
        precondition(code == Z_OK, "zlib has no memory left")
        defer { inflateEnd(&stream) }
        output.reserveCapacity(min(maxBytes, 4 * input.count))
        var position = 0
        while position < input.count {
            if position > 0 {
                guard input[position] == 0x1F else { throw .trailingBytes }
                inflateReset(&stream)
            }
            try member(from: &position)
        }
        return output
    }

    private mutating func member(from position: inout Int) throws(GzipError) {
        let isFirst = position == 0
        while true {
            let part = min(input.count - position, Int(UInt32.max))
            stream.next_in = UnsafeMutablePointer(mutating: input.baseAddress.map { $0 + position })
            stream.avail_in = UInt32(part)
            let (code, made) = step()
            position += part - Int(stream.avail_in)
            if output.count > maxBytes { throw .tooLarge(maxBytes: maxBytes) }
            if output.count > Gzip.ratioFreeBytes, output.count / position >= maxRatio {
                throw .ratioTooHigh(maxRatio: maxRatio)
            }
            switch code {
            case Z_STREAM_END: return
            case Z_OK, Z_BUF_ERROR: if made == 0, position == input.count { throw .truncated }
            // Data after the first member that does not begin like a member is trailing data, not a damaged member.
            case Z_DATA_ERROR where !isFirst && stream.total_out == 0 && stream.total_in <= 2: throw .trailingBytes
            default: throw .damaged
            }
        }
    }

    /// Has zlib fill one piece of output.
    private mutating func step() -> (code: Int32, made: Int) {
        var code = Z_OK
        let piece = 32 << 10
        let before = output.count
        let added = [UInt8](unsafeUninitializedCapacity: piece) { buffer, count in
            stream.next_out = buffer.baseAddress
            stream.avail_out = UInt32(piece)
            code = inflate(&stream, Z_NO_FLUSH)
            count = piece - Int(stream.avail_out)
        }
        output += added
        return (code, output.count - before)
    }
}
