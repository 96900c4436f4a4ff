/// The header lines of a response, as libcurl passes them one by one.
struct AnswerHead {
    private var lines: [UInt8] = []
    private var bytesSeen = 0
    private(set) var isComplete = false
    /// Whether there are more lines before the body than any response needs.
    private(set) var isTooLarge = false
    /// Whether there are more lines after the body.
    private(set) var hasTooManyTrailers = false

    static let maxBytes = 1 << 16

    /// Returns false if there are more lines than any response needs, because libcurl would keep all of them.
    ///
    /// A status line starts over, so only the last head is kept: interim responses (1xx) come before it. Lines after the
    /// empty one are trailers, which are not used. All of them count.
    mutating func take(_ line: UnsafeBufferPointer<UInt8>) -> Bool {
        bytesSeen += line.count
        let isStatusLine = line.starts(with: "HTTP/".utf8)
        if isStatusLine { isComplete = false }
        guard bytesSeen <= Self.maxBytes else {
            if isComplete { hasTooManyTrailers = true } else { isTooLarge = true }
            return false
        }
        if isStatusLine {
            lines.removeAll(keepingCapacity: true)
            return true
        }
        guard !isComplete else { return true }
        isComplete = line.first == UInt8(ascii: "\r") || line.first == UInt8(ascii: "\n")
        lines.append(contentsOf: line)
        return true
    }

    /// The headers in the order received, without white space around names and values. Lines without a colon are
    /// omitted.
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
