/// The header lines of an answer, as libcurl hands them over one by one.
struct AnswerHead {
    private var lines: [UInt8] = []
    private(set) var isComplete = false
    private(set) var isTooLarge = false

    static let maxBytes = 1 << 16

    /// False when there are more lines than any answer needs.
    ///
    /// A status line starts over, so only the last head counts: interim answers (1xx) come before it. Lines after the
    /// empty one are trailers, which were not requested.
    mutating func take(_ line: UnsafeBufferPointer<UInt8>) -> Bool {
        if line.starts(with: "HTTP/".utf8) {
            lines.removeAll(keepingCapacity: true)
            isComplete = false
            return true
        }
        guard !isComplete else { return true }
        isComplete = line.first == UInt8(ascii: "\r") || line.first == UInt8(ascii: "\n")
        isTooLarge = lines.count + line.count > Self.maxBytes
        if !isTooLarge { lines.append(contentsOf: line) }
        return !isTooLarge
    }

    /// In the order received; without white space around names and values. Lines without a colon are left out.
    var headers: [(name: String, value: String)] {
        lines.split(whereSeparator: { $0 == UInt8(ascii: "\n") }).compactMap { line in
            guard let colon = line.firstIndex(of: UInt8(ascii: ":")) else { return nil }
            return (Self.trimmed(line[..<colon]), Self.trimmed(line[(colon + 1)...]))
        }
    }

    private static func trimmed(_ bytes: ArraySlice<UInt8>) -> String {
        let isSpace = { (byte: UInt8) in byte == 0x20 || byte == 0x09 || byte == 0x0d }
        let start = bytes.drop(while: isSpace)
        let end = start.lastIndex { !isSpace($0) }.map { $0 + 1 } ?? start.startIndex
        return String(decoding: start[..<end], as: UTF8.self)
    }
}
