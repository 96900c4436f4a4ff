import Glibc
import PosternCore

/// Reads the request line and the header lines, strictly as RFC 9112 defines them. Attackers use what a lenient reader
/// repairs to make two readers disagree on where a request ends.
struct HeadParser {
    enum Progress: Equatable {
        case incomplete
        /// The head ends before this byte.
        case complete(end: Int)
        case refused(RequestFault)
    }

    private(set) var line: RequestLine?
    private(set) var framing = Framing()
    private(set) var fields: [HeaderFields.Line] = []
    /// The start of the first line that has not been read.
    private var position = 0
    private var hasSkippedLine = false

    /// Prepares for the next request. The memory is kept, unless a `RequestHead` still refers to it.
    mutating func reset() {
        line = nil
        framing = Framing()
        fields.removeAll(keepingCapacity: fields.capacity <= 64)
        position = 0
        hasSkippedLine = false
    }

    /// Reads as many lines of `bytes` as are complete. `bytes` is the request from its first byte on, and longer with
    /// each call.
    mutating func parse(_ bytes: UnsafeBufferPointer<UInt8>) -> Progress {
        do throws(RequestFault) {
            while let end = try endOfLine(bytes) {
                let text = position..<end
                position = end + 2
                guard position <= HTTPServerSettings.maxHeaderBytes else { throw .headTooLarge }
                guard let line else {
                    try readRequestLine(bytes, text)
                    continue
                }
                if text.isEmpty {
                    try framing.conclude(line, in: bytes)
                    return .complete(end: position)
                }
                let field = try readField(bytes, text)
                fields.append(field)
                try framing.record(field, in: bytes)
            }
            return .incomplete
        } catch {
            return .refused(error)
        }
    }

    /// Where the CR LF of the current line is; nil if it has not arrived.
    private func endOfLine(_ bytes: UnsafeBufferPointer<UInt8>) throws(RequestFault) -> Int? {
        guard position < bytes.count else { return nil }
        let start = bytes.baseAddress! + position
        guard let found = memchr(start, 0x0A, bytes.count - position) else {
            guard bytes.count <= HTTPServerSettings.maxHeaderBytes else { throw .headTooLarge }
            // A client that speaks another protocol, perhaps TLS, is rejected at once.
            guard line != nil || start[0].isTokenCharacter || start[0] == 0x0D else {
                throw .malformed("the request line does not start with a method")
            }
            return nil
        }
        let end = position + UnsafeRawPointer(start).distance(to: found) - 1
        guard end >= position, bytes[end] == 0x0D else { throw .malformed("a line does not end with CR LF") }
        return end
    }

    /// One empty line before the request line is skipped (RFC 9112, section 2.2).
    private mutating func readRequestLine(
        _ bytes: UnsafeBufferPointer<UInt8>, _ text: Range<Int>
    ) throws(RequestFault) {
        guard !text.isEmpty || hasSkippedLine else {
            hasSkippedLine = true
            return
        }
        line = try RequestLine(UnsafeBufferPointer(rebasing: bytes[text]))
    }

    /// `field-name ":" OWS field-value OWS`; the value is returned without the blanks around it.
    private func readField(
        _ bytes: UnsafeBufferPointer<UInt8>, _ text: Range<Int>
    ) throws(RequestFault) -> HeaderFields.Line {
        let name = try fieldName(bytes, text)
        let value = try fieldValue(bytes, name.upperBound + 1..<text.upperBound)
        return .init(
            name: UInt16(name.lowerBound)..<UInt16(name.upperBound),
            value: UInt16(value.lowerBound)..<UInt16(value.upperBound))
    }
}

/// The name of a header or trailer line; the colon follows it.
func fieldName(_ bytes: UnsafeBufferPointer<UInt8>, _ text: Range<Int>) throws(RequestFault) -> Range<Int> {
    var colon = text.lowerBound
    while colon < text.upperBound, bytes[colon].isTokenCharacter { colon += 1 }
    guard colon < text.upperBound else { throw .malformed("a header line has no colon") }
    guard bytes[colon] == UInt8(ascii: ":") else {
        throw .malformed(
            colon == text.lowerBound && bytes[colon].isBlank
                ? "a header line is folded" : "a header name contains a character that is not allowed in it")
    }
    guard colon > text.lowerBound else { throw .malformed("a header line has no name") }
    return text.lowerBound..<colon
}

/// The value of a header or trailer line, without the blanks around it.
func fieldValue(_ bytes: UnsafeBufferPointer<UInt8>, _ text: Range<Int>) throws(RequestFault) -> Range<Int> {
    var (start, end) = (text.lowerBound, text.upperBound)
    while start < end, bytes[start].isBlank { start += 1 }
    while end > start, bytes[end - 1].isBlank { end -= 1 }
    for index in start..<end where !bytes[index].isFieldCharacter {
        throw .malformed("a header value contains a control character")
    }
    return start..<end
}
