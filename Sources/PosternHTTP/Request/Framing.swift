import PosternCore

/// The framing of a request, by its header lines: where it ends, and whether the connection stays open.
struct Framing {
    enum Body: Equatable {
        case none
        case length(Int)
        case chunked
    }

    private(set) var body = Body.none
    /// Whether the client waits for `100 Continue` before it sends the body.
    private(set) var expectsContinue = false
    /// Whether the client closes the connection after the response, or expects that.
    private(set) var closes = false
    /// The client's `X-Request-Id`, if it is valid: 1 to 128 visible ASCII characters.
    private(set) var requestID: String?

    /// Where the value of `Host` is.
    private var host: Range<UInt16>?
    private var contentLength: Int?
    private var isChunked = false
    private var keepsAlive = false
    private var requestIDs = 0
    /// The fields of `single` that were seen.
    private var seen: UInt16 = 0

    /// Fields that are read here and are not lists, so that two of them contradict each other (RFC 9110, section 5.3).
    private static let single: [StaticString] = [
        "host", "content-length", "transfer-encoding", "content-type", "authorization", "idempotency-key",
        "postern-session", "origin", "last-event-id", "sec-fetch-site",
    ]

    mutating func record(_ line: HeaderFields.Line, in bytes: UnsafeBufferPointer<UInt8>) throws(RequestFault) {
        let name = UnsafeBufferPointer(rebasing: bytes[Int(line.name.lowerBound)..<Int(line.name.upperBound)])
        let value = UnsafeBufferPointer(rebasing: bytes[Int(line.value.lowerBound)..<Int(line.value.upperBound)])
        switch name.count {
        case 4 where name.spells("host"):
            try once(0)
            guard isHost(value) else { throw .malformed("`Host` is not a host name or address with an optional port") }
            host = line.value
        case 6 where name.spells("expect"):
            if value.spells("100-continue") { expectsContinue = true }
        case 6 where name.spells("origin"): try once(7)
        case 10 where name.spells("connection"): recordConnection(value)
        case 12 where name.spells("content-type"): try once(3)
        case 12 where name.spells("x-request-id"): recordRequestID(value)
        case 13 where name.spells("authorization"): try once(4)
        case 13 where name.spells("last-event-id"): try once(8)
        case 14 where name.spells("content-length"):
            try once(1)
            contentLength = try Self.length(value)
        case 14 where name.spells("sec-fetch-site"): try once(9)
        case 15 where name.spells("idempotency-key"): try once(5)
        case 15 where name.spells("postern-session"): try once(6)
        case 17 where name.spells("transfer-encoding"):
            try once(2)
            guard value.spells("chunked") else {
                throw .malformed("the only supported transfer coding is a single `chunked`")
            }
            isChunked = true
        default: break
        }
    }

    private mutating func once(_ index: Int) throws(RequestFault) {
        guard seen & 1 << UInt16(index) == 0 else {
            throw .malformed("there is more than one `\(Self.single[index])`")
        }
        seen |= 1 << UInt16(index)
    }

    private static func length(_ value: UnsafeBufferPointer<UInt8>) throws(RequestFault) -> Int {
        guard !value.isEmpty, value.allSatisfy(\.isDigit) else { throw .malformed("`Content-Length` is not a number") }
        var length = 0
        for digit in value {
            let (tens, isTooMuch) = length.multipliedReportingOverflow(by: 10)
            let (sum, isTooLarge) = tens.addingReportingOverflow(Int(digit - 0x30))
            guard !isTooMuch, !isTooLarge else { throw .malformed("`Content-Length` is larger than any body") }
            length = sum
        }
        return length
    }

    private mutating func recordConnection(_ value: UnsafeBufferPointer<UInt8>) {
        for option in value.split(separator: UInt8(ascii: ",")) {
            var option = option.drop { $0.isBlank }
            while option.last?.isBlank == true { option.removeLast() }
            let text = UnsafeBufferPointer(rebasing: option)
            if text.spells("close") { closes = true }
            if text.spells("keep-alive") { keepsAlive = true }
        }
    }

    private mutating func recordRequestID(_ value: UnsafeBufferPointer<UInt8>) {
        requestIDs += 1
        let isValid =
            requestIDs == 1 && (1...128).contains(value.count) && value.allSatisfy { (0x21...0x7E).contains($0) }
        requestID = isValid ? String(decoding: value, as: UTF8.self) : nil
    }

    /// Checks what can only be decided when all headers have arrived (RFC 9112, sections 3.2, 6, and 9.3).
    mutating func conclude(_ line: RequestLine, in bytes: UnsafeBufferPointer<UInt8>) throws(RequestFault) {
        if line.version == .http10, !keepsAlive { closes = true }
        if host == nil, line.version == .http11 { throw .malformed("HTTP/1.1 requires a `Host`") }
        if let authority = line.target.authority, !isSameHost(authority, in: bytes) {
            throw .malformed("the request target and `Host` name different hosts")
        }
        guard isChunked else {
            body = contentLength.map { $0 > 0 ? .length($0) : .none } ?? .none
            return
        }
        if contentLength != nil { throw .malformed("`Transfer-Encoding` and `Content-Length` exclude each other") }
        if line.version == .http10 { throw .malformed("HTTP/1.0 has no `Transfer-Encoding`") }
        body = .chunked
    }

    private func isSameHost(_ authority: String, in bytes: UnsafeBufferPointer<UInt8>) -> Bool {
        guard let host else { return true }
        let name = UnsafeBufferPointer(rebasing: bytes[Int(host.lowerBound)..<Int(host.upperBound)])
        return authority.lowercased() == String(decoding: name, as: UTF8.self).lowercased()
    }
}

extension UnsafeBufferPointer<UInt8> {
    /// Whether this is `lowercase`, ASCII letters compared without their case.
    func spells(_ lowercase: StaticString) -> Bool {
        guard count == lowercase.utf8CodeUnitCount else { return false }
        for index in 0..<count where self[index].lowercasedASCII != lowercase.utf8Start[index] { return false }
        return true
    }
}

/// `uri-host [ ":" port ]` (RFC 9110, section 7.2), or nothing. Of the characters of a registered name, only those of
/// host names are accepted: a reader that joins lines could take a comma for a second host.
private func isHost(_ value: UnsafeBufferPointer<UInt8>) -> Bool {
    var end = 0
    if value.first == UInt8(ascii: "[") {
        guard let bracket = value.firstIndex(of: UInt8(ascii: "]")), bracket > 1 else { return false }
        end = bracket + 1
        let isAddress = value[1..<bracket].allSatisfy { byte in
            byte.isDigit || (0x61...0x66).contains(byte.lowercasedASCII) || byte == UInt8(ascii: ":")
                || byte == UInt8(ascii: ".")
        }
        guard isAddress else { return false }
    } else {
        while end < value.count, value[end].isUnreserved { end += 1 }
    }
    guard end < value.count else { return true }
    return end > 0 && value[end] == UInt8(ascii: ":") && value.count - end <= 6
        && value[(end + 1)...].allSatisfy(\.isDigit)
}
