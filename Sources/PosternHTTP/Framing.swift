/// What the headers say about where the request ends, gathered one header at a time.
struct Framing {
    private(set) var hosts = 0
    private(set) var contentLength: Int?
    private(set) var isChunked = false
    /// The client's `X-Request-Id`, if it is valid: 1 to 128 visible ASCII characters.
    private(set) var requestID: String?
    /// A bit for each length that a header name has.
    private(set) var nameLengths: UInt64 = 0
    /// The first thing found wrong, as a sentence.
    private(set) var fault: String?

    var announcesBody: Bool { isChunked || (contentLength ?? 0) > 0 }

    static func bit(forLength length: Int) -> UInt64 { 1 << UInt64(length & 63) }

    mutating func note(name: UnsafeBufferPointer<UInt8>, value: UnsafeBufferPointer<UInt8>) {
        nameLengths |= Self.bit(forLength: name.count)
        if !name.allSatisfy(isTokenByte) { blame("a header name holds a character that RFC 9110 forbids there") }
        if value.contains(where: { $0 < 0x20 && $0 != 0x09 || $0 == 0x7F }) {
            blame("a header value holds a control character")
        }
        switch name.count {
        case 4 where name.spells("host"): hosts += 1
        case 14 where name.spells("content-length"): noteContentLength(value)
        case 17 where name.spells("transfer-encoding"):
            if isChunked || !value.spells("chunked") { blame("the only transfer coding taken is one `chunked`") }
            isChunked = true
        case 12 where name.spells("x-request-id"):
            if requestID == nil, (1...128).contains(value.count), value.allSatisfy({ (0x21...0x7E).contains($0) }) {
                requestID = String(decoding: value, as: UTF8.self)
            }
        default: break
        }
    }

    private mutating func noteContentLength(_ value: UnsafeBufferPointer<UInt8>) {
        guard value.allSatisfy({ (0x30...0x39).contains($0) }), let length = Int(String(decoding: value, as: UTF8.self))
        else { return blame("`Content-Length` is no number") }
        if let contentLength, contentLength != length { blame("two `Content-Length` headers differ") }
        contentLength = length
    }

    /// Checks what can only be said when all headers are in (RFC 9112, sections 3.2 and 6).
    mutating func conclude(version: HTTPVersion) {
        if hosts > 1 { blame("there is more than one `Host`") }
        if hosts == 0, version == .http11 { blame("HTTP/1.1 wants a `Host`") }
        if isChunked, contentLength != nil { blame("`Transfer-Encoding` and `Content-Length` exclude each other") }
        if isChunked, version == .http10 { blame("HTTP/1.0 knows no `Transfer-Encoding`") }
    }

    mutating func blame(_ reason: String) { fault = fault ?? reason }
}

extension UnsafeBufferPointer<UInt8> {
    /// Whether this is `lowercase`, ASCII letters compared without their case.
    func spells(_ lowercase: StaticString) -> Bool {
        guard count == lowercase.utf8CodeUnitCount else { return false }
        for place in 0..<count {
            let byte = self[place]
            guard ((0x41...0x5A).contains(byte) ? byte | 0x20 : byte) == lowercase.utf8Start[place] else {
                return false
            }
        }
        return true
    }
}

/// RFC 9110, section 5.6.2.
private func isTokenByte(_ byte: UInt8) -> Bool {
    switch byte {
    case 0x61...0x7A, 0x41...0x5A, 0x30...0x39, 0x2D: true
    case 0x21, 0x23...0x27, 0x2A, 0x2B, 0x2E, 0x5E...0x60, 0x7C, 0x7E: true
    default: false
    }
}
