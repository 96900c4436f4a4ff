/// The comments (`// …` to the end of the line, and `/* … */`) and trailing commas that a configuration file may have in
/// addition to JSON.
///
/// They become blanks of the same length, so that what is left is JSON whose offsets, lines, and columns are those of the
/// file. Strings are left alone. Whatever is not well-formed is left for the parser, which reports where it is.
enum JSONComments {
    /// The comment that begins at `offset` has no end.
    struct Unterminated: Error, Equatable {
        let offset: Int
    }

    private static let quote = UInt8(ascii: "\""), backslash = UInt8(ascii: "\\"), slash = UInt8(ascii: "/")
    private static let star = UInt8(ascii: "*"), comma = UInt8(ascii: ","), blank = UInt8(ascii: " ")

    static func blanked(_ text: [UInt8]) throws(Unterminated) -> [UInt8] {
        var json = text
        // The last byte that is neither white space nor in a comment, and where such a byte is a comma after a value.
        var last: UInt8?
        var trailing: Int?
        var index = 0
        while index < text.count {
            let byte = text[index]
            let next = index + 1 < text.count ? text[index + 1] : nil
            if byte == slash, next == slash || next == star {
                let end = try end(ofCommentAt: index, in: text)
                for position in index..<end where !isLineBreak(text[position]) { json[position] = blank }
                index = end
                continue
            }
            defer { index += 1 }
            if isWhiteSpace(byte) { continue }
            if let trailing, byte == UInt8(ascii: "}") || byte == UInt8(ascii: "]") { json[trailing] = blank }
            trailing = byte == comma && isEndOfValue(last) ? index : nil
            last = byte
            if byte == quote { index = endOfString(at: index, in: text) - 1 }
        }
        return json
    }

    /// The position behind the comment.
    private static func end(ofCommentAt start: Int, in text: [UInt8]) throws(Unterminated) -> Int {
        guard text[start + 1] == star else { return text[start...].firstIndex(where: isLineBreak) ?? text.count }
        var index = start + 2
        while index + 1 < text.count {
            if text[index] == star, text[index + 1] == slash { return index + 2 }
            index += 1
        }
        throw Unterminated(offset: start)
    }

    /// The position behind the closing quote; the end of the text if there is none.
    private static func endOfString(at start: Int, in text: [UInt8]) -> Int {
        var index = start + 1
        while index < text.count, text[index] != quote { index += text[index] == backslash ? 2 : 1 }
        return min(index + 1, text.count)
    }

    /// A comma is only dropped behind a value: `[,]` and `[1,,]` are still errors.
    private static func isEndOfValue(_ byte: UInt8?) -> Bool { byte.map { !"{[:,".utf8.contains($0) } ?? false }
    private static func isLineBreak(_ byte: UInt8) -> Bool { byte == 0x0A || byte == 0x0D }
    private static func isWhiteSpace(_ byte: UInt8) -> Bool { byte == 0x20 || byte == 0x09 || isLineBreak(byte) }
}
