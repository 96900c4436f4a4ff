/// The target of a request line, taken apart but not decoded (RFC 9112, section 3.2).
struct RequestTarget: Equatable {
    let path: String
    let query: String?
    /// The authority of a target in absolute form; the `Host` field must be the same.
    let authority: String?

    init(_ bytes: UnsafeBufferPointer<UInt8>, method: String) throws(RequestFault) {
        guard !bytes.isEmpty, bytes.allSatisfy({ (0x21...0x7E).contains($0) }) else {
            throw .malformed("the request target contains more than visible ASCII, or is missing")
        }
        var start = 0
        switch bytes[0] {
        case UInt8(ascii: "/"): authority = nil
        case UInt8(ascii: "*") where bytes.count == 1 && method == "OPTIONS": authority = nil
        case _ where method == "CONNECT": authority = nil
        default:
            let range = try Self.authority(in: bytes)
            authority = String(decoding: UnsafeBufferPointer(rebasing: bytes[range]), as: UTF8.self)
            start = range.upperBound
        }
        let mark = bytes[start...].firstIndex(of: UInt8(ascii: "?"))
        let path = String(decoding: UnsafeBufferPointer(rebasing: bytes[start..<(mark ?? bytes.count)]), as: UTF8.self)
        self.path = path.isEmpty ? "/" : path
        query = mark.map { String(decoding: UnsafeBufferPointer(rebasing: bytes[($0 + 1)...]), as: UTF8.self) }
    }

    /// The path in a line that is too long, or of another version: who asks for it may need a refusal of a certain form. Nil if
    /// it does not begin where it usually does.
    static func path(inLine bytes: [UInt8]) -> String? {
        let target = bytes.drop { $0 != UInt8(ascii: " ") }.dropFirst()
        guard target.first == UInt8(ascii: "/") else { return nil }
        let path = target.prefix { (0x21...0x7E).contains($0) && $0 != UInt8(ascii: "?") }
        return String(decoding: path, as: UTF8.self)
    }

    /// Where the authority of a target in absolute form is, which servers must accept (RFC 9112, section 3.2.2).
    private static func authority(in bytes: UnsafeBufferPointer<UInt8>) throws(RequestFault) -> Range<Int> {
        for scheme: StaticString in ["http://", "https://"] {
            let start = scheme.utf8CodeUnitCount
            guard bytes.count > start, UnsafeBufferPointer(rebasing: bytes[..<start]).spells(scheme) else { continue }
            let end = bytes[start...].firstIndex { $0 == UInt8(ascii: "/") || $0 == UInt8(ascii: "?") } ?? bytes.count
            guard end > start else { break }
            return start..<end
        }
        throw .malformed("the request target is neither a path nor a URL of this server")
    }
}
