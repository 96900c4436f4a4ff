import PosternCore

/// The versions that the server serves.
enum HTTPVersion: String, Sendable {
    case http10 = "HTTP/1.0"
    case http11 = "HTTP/1.1"
}

/// `method SP request-target SP HTTP-version` (RFC 9112, section 3), with exactly one space in each place.
struct RequestLine: Equatable {
    let method: String
    let target: RequestTarget
    let version: HTTPVersion

    init(_ bytes: UnsafeBufferPointer<UInt8>) throws(RequestFault) {
        let space = UInt8(ascii: " ")
        let method = bytes.prefix { $0 != space }
        guard !method.isEmpty, method.allSatisfy(\.isTokenCharacter) else {
            throw .malformed("the method is not a token")
        }
        let rest = bytes[method.endIndex...].dropFirst()
        let target = rest.prefix { $0 != space }
        let version = rest[target.endIndex...].dropFirst()
        self.method = String(decoding: UnsafeBufferPointer(rebasing: method), as: UTF8.self)
        self.version = try Self.version(UnsafeBufferPointer(rebasing: version))
        self.target = try RequestTarget(UnsafeBufferPointer(rebasing: target), method: self.method)
    }

    /// Later minor versions are read as HTTP/1.1 (RFC 9110, section 2.5).
    private static func version(_ bytes: UnsafeBufferPointer<UInt8>) throws(RequestFault) -> HTTPVersion {
        let name: StaticString = "HTTP/"
        guard bytes.count == 8, (0..<5).allSatisfy({ bytes[$0] == name.utf8Start[$0] }), bytes[5].isDigit,
            bytes[6] == UInt8(ascii: "."),
            bytes[7].isDigit
        else { throw .malformed("the request line does not end with a version") }
        guard bytes[5] == UInt8(ascii: "1") else { throw .unknownVersion }
        return bytes[7] == UInt8(ascii: "0") ? .http10 : .http11
    }
}
