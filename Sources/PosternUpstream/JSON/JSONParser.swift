import CPosternJSON
import PosternCore

/// Checks JSON texts and finds their values, without creating objects for them.
///
/// A parser keeps its buffers for the next text, so one parser per thread is created and used for all texts
/// (`ofThisThread`).
public final class JSONParser {
    private let parser: OpaquePointer
    private var isParsing = false

    public init() {
        guard let parser = postern_json_create() else { preconditionFailure("no memory for a JSON parser") }
        self.parser = parser
    }

    deinit { postern_json_destroy(parser) }

    /// Calls `body` with the value of `text`, or throws the fault of the text. The value points into the parser: it
    /// must not leave `body`, and `body` must not parse with the same parser.
    public func parse<R, E: Error>(
        _ text: UnsafeBufferPointer<UInt8>, _ body: (JSONValue) throws(E) -> R
    ) throws(E) -> Result<R, JSONError> {
        try with(text, parsed: postern_json_parse, body)
    }

    /// As above for lines of JSON texts (NDJSON): `body` is given an array of them. Blank lines are skipped; a carriage
    /// return before a line feed is white space.
    public func parseLines<R, E: Error>(
        _ text: UnsafeBufferPointer<UInt8>, _ body: (JSONValue) throws(E) -> R
    ) throws(E) -> Result<R, JSONError> {
        try with(text, parsed: postern_json_parse_lines, body)
    }

    public func parse<R, E: Error>(
        _ text: [UInt8], _ body: (JSONValue) throws(E) -> R
    ) throws(E) -> Result<R, JSONError> {
        try text.withUnsafeBufferPointer { bytes throws(E) in try parse(bytes, body) }
    }

    /// As `parse`, for a text that may have escapes of lone surrogates (RFC 8259, section 8.2). As values of strings, these are
    /// U+FFFD.
    public func parseWithLoneSurrogates<R, E: Error>(
        _ text: [UInt8], _ body: (JSONValue) throws(E) -> R
    ) throws(E) -> Result<R, JSONError> {
        try text.withUnsafeBufferPointer { bytes throws(E) in
            try with(bytes, parsed: postern_json_parse_lone, body)
        }
    }

    private typealias Parse = (OpaquePointer, UnsafePointer<UInt8>?, Int) -> postern_json_result

    /// Buffers that parsed a text of this size are large, and are freed.
    private static let largeText = 256 << 10

    @inline(__always)
    private func with<R, E: Error>(
        _ text: UnsafeBufferPointer<UInt8>, parsed: Parse, _ body: (JSONValue) throws(E) -> R
    ) throws(E) -> Result<R, JSONError> {
        precondition(!isParsing, "a parser is used for one text at a time")
        isParsing = true
        defer {
            isParsing = false
            if text.count > Self.largeText { postern_json_trim(parser) }
        }
        let found = parsed(parser, text.baseAddress, text.count)
        guard let start = found.text, let words = found.words else {
            return .failure(JSONError(JSONError.Reason(rawValue: found.fault) ?? .syntax, at: Int(found.offset)))
        }
        return .success(try body(JSONValue(text: start, words: words, index: 0, start: found.start)))
    }
}
