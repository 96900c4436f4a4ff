import PosternHTTP

/// The header `traceparent` (W3C Trace Context, section 3.2): which trace a request belongs to.
struct TraceParent {
    /// In version `00`, which is the one that Postern writes.
    let text: String

    /// That of a request; nil if it has none.
    init?(_ head: RequestHead) {
        guard let header = head.header("traceparent") else { return nil }
        self.init(header)
    }

    /// Nil if the text is not valid; it is then ignored (Trace Context, section 3.2.2.3).
    init?(_ header: String) {
        let bytes = Array(header.utf8)
        guard bytes.count >= Self.length else { return nil }
        let version = bytes[0..<2]
        // Later versions may append fields.
        guard version.elementsEqual("00".utf8) ? bytes.count == Self.length : Self.isHexadecimal(version),
            !version.elementsEqual("ff".utf8),
            bytes.count == Self.length || bytes[Self.length] == UInt8(ascii: "-"),
            [2, 35, 52].allSatisfy({ bytes[$0] == UInt8(ascii: "-") }),
            [bytes[3..<35], bytes[36..<52]].allSatisfy({ part in
                Self.isHexadecimal(part) && part.contains { $0 != UInt8(ascii: "0") }
            }),
            Self.isHexadecimal(bytes[53..<55])
        else { return nil }
        text = "00" + String(decoding: bytes[2..<Self.length], as: UTF8.self)
    }

    private static let length = 55

    /// Upper case is not valid.
    private static func isHexadecimal(_ bytes: ArraySlice<UInt8>) -> Bool {
        bytes.allSatisfy {
            (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) || (UInt8(ascii: "a")...UInt8(ascii: "f")).contains($0)
        }
    }
}
