internal import CZlib

/// Decompresses gzip as Java's `GZIPInputStream` does: several members are joined, and data after the last is ignored.
/// Nil if the data is not gzip, corrupt, or truncated.
package func gunzip(_ data: [UInt8]) -> [UInt8]? {
    var stream = z_stream()
    guard postern_inflate_init(&stream, 15 + 16) == Z_OK else { return nil }
    defer { inflateEnd(&stream) }
    var output: [UInt8] = []
    output.reserveCapacity(data.count * 4)
    var input = data
    return input.withUnsafeMutableBufferPointer { input in
        stream.next_in = input.baseAddress
        stream.avail_in = UInt32(input.count)
        return withUnsafeTemporaryAllocation(of: UInt8.self, capacity: 1 << 16) { chunk in
            while true {
                stream.next_out = chunk.baseAddress
                stream.avail_out = UInt32(chunk.count)
                let code = inflate(&stream, Z_NO_FLUSH)
                output.append(contentsOf: chunk.prefix(chunk.count - Int(stream.avail_out)))
                if code == Z_STREAM_END {
                    let isNextMember = stream.avail_in > 1 && stream.next_in[0] == 0x1f && stream.next_in[1] == 0x8b
                    guard isNextMember, inflateReset(&stream) == Z_OK else { return output }
                } else if code != Z_OK {
                    return nil  // Z_BUF_ERROR is a stream that is cut
                }
            }
        }
    }
}
