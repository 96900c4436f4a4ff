import Glibc
import PosternCore

/// Decodes the chunked transfer coding (RFC 9112, section 7.1), strictly. Extensions and trailers are checked and
/// discarded.
struct ChunkedDecoder {
    enum Progress: Equatable {
        case incomplete, complete
        case refused(RequestFault)
    }

    private enum State {
        case size
        /// The number of bytes of the chunk that have not arrived.
        case data(Int)
        /// The CR LF after the data of a chunk.
        case dataEnd
        case trailer
    }

    /// The maximum length of a size with its extensions. All trailers together may have as many bytes as the head.
    static let maxLineBytes = 256

    private var state = State.size
    /// What has arrived of a size, of a trailer, or of the CR LF after a chunk.
    private var line: [UInt8] = []
    private var trailerBytes = 0
    private var bodyBytes = 0

    /// Decodes `input` from `position` on, and sets `position` to where it stopped. More than `limit` bytes of body are
    /// rejected. If `keeps` is false, the bytes are only counted.
    mutating func decode(
        _ input: UnsafeBufferPointer<UInt8>, from position: inout Int, into body: inout [UInt8], limit: Int,
        keeps: Bool
    ) -> Progress {
        do throws(RequestFault) {
            while position < input.count {
                if case .data(let left) = state {
                    let end = position + min(left, input.count - position)
                    if keeps { body.append(contentsOf: UnsafeBufferPointer(rebasing: input[position..<end])) }
                    state = left == end - position ? .dataEnd : .data(left - (end - position))
                    position = end
                } else if try takeLine(input, from: &position), try endLine(limit) {
                    return .complete
                }
            }
            return .incomplete
        } catch {
            return .refused(error)
        }
    }

    /// Moves bytes up to the next LF into `line`. Returns whether it is complete, and then without its CR LF.
    private mutating func takeLine(
        _ input: UnsafeBufferPointer<UInt8>, from position: inout Int
    ) throws(RequestFault) -> Bool {
        let rest = UnsafeBufferPointer(rebasing: input[position...])
        let end = rest.firstIndex(of: 0x0A)
        line.append(contentsOf: rest[..<(end ?? rest.count)])
        position += end.map { $0 + 1 } ?? rest.count
        try checkLength()
        guard end != nil else { return false }
        guard line.popLast() == 0x0D else { throw .malformed("a line of the chunked body does not end with CR LF") }
        return true
    }

    private func checkLength() throws(RequestFault) {
        switch state {
        case .size, .data:
            guard line.count <= Self.maxLineBytes else { throw .malformed("the line with a chunk size is too long") }
        case .dataEnd:
            guard line.isEmpty || line == [0x0D] else { throw .malformed("a chunk is longer than its size") }
        case .trailer:
            guard trailerBytes + line.count <= HTTPServerSettings.maxHeaderBytes else { throw .headTooLarge }
        }
    }

    /// Acts on the complete `line` and empties it. Returns whether the body ends with it.
    private mutating func endLine(_ limit: Int) throws(RequestFault) -> Bool {
        defer { line.removeAll(keepingCapacity: true) }
        switch state {
        case .data: return false
        case .dataEnd: state = .size
        case .size:
            let size = try line.withUnsafeBufferPointer { line throws(RequestFault) in try chunkSize(line) }
            guard size <= limit - bodyBytes else { throw .bodyTooLarge(limit: limit) }
            bodyBytes += size
            state = size > 0 ? .data(size) : .trailer
        case .trailer:
            guard !line.isEmpty else { return true }
            trailerBytes += line.count + 2
            try line.withUnsafeBufferPointer { line throws(RequestFault) in
                let name = try fieldName(line, 0..<line.count)
                _ = try fieldValue(line, name.upperBound + 1..<line.count)
            }
        }
        return false
    }
}

/// `1*HEXDIG *( BWS ";" BWS chunk-ext-name [ BWS "=" BWS chunk-ext-val ] )`
private func chunkSize(_ line: UnsafeBufferPointer<UInt8>) throws(RequestFault) -> Int {
    var size = 0
    var index = 0
    while index < line.count, let digit = line[index].hexadecimalValue {
        guard size < 1 << 55 else { throw .malformed("a chunk size is larger than any body") }
        size = size << 4 | Int(digit)
        index += 1
    }
    guard index > 0 else { throw .malformed("a chunk size is not a hexadecimal number") }
    var extensions = ChunkExtensions(line, from: index)
    guard extensions.areValid() else { throw .malformed("a chunk size is followed by an invalid chunk extension") }
    return size
}

private struct ChunkExtensions {
    private let line: UnsafeBufferPointer<UInt8>
    private var index: Int

    init(_ line: UnsafeBufferPointer<UInt8>, from index: Int) {
        self.line = line
        self.index = index
    }

    mutating func areValid() -> Bool {
        while index < line.count {
            skipBlanks()
            guard take(";") else { return false }
            skipBlanks()
            guard skipToken() else { return false }
            let end = index
            skipBlanks()
            guard take("=") else {
                index = end
                continue
            }
            skipBlanks()
            guard skipToken() || skipQuotedString() else { return false }
        }
        return true
    }

    private mutating func take(_ character: Unicode.Scalar) -> Bool {
        guard index < line.count, line[index] == UInt8(ascii: character) else { return false }
        index += 1
        return true
    }

    private mutating func skipBlanks() {
        while index < line.count, line[index].isBlank { index += 1 }
    }

    private mutating func skipToken() -> Bool {
        let start = index
        while index < line.count, line[index].isTokenCharacter { index += 1 }
        return index > start
    }

    /// RFC 9110, section 5.6.4.
    private mutating func skipQuotedString() -> Bool {
        guard take("\"") else { return false }
        while index < line.count {
            if take("\"") { return true }
            if line[index] == UInt8(ascii: "\\") { index += 1 }
            guard index < line.count, line[index].isFieldCharacter else { return false }
            index += 1
        }
        return false
    }
}
