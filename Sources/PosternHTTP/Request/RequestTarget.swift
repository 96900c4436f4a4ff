/// The target of a request line, taken apart but not decoded (RFC 9112, section 3.2).
struct RequestTarget: Equatable {
    let path: String
    let query: String?
    /// Of a target in absolute form; the `Host` field must say the same.
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

/// The pairs of a query in their order, percent-decoded; `+` stays `+`, an escape that is none stays as it is.
func queryPairs(of query: String) -> [(name: String, value: String)] {
    query.utf8.split(separator: UInt8(ascii: "&")).map { pair in
        let sides = pair.split(separator: UInt8(ascii: "="), maxSplits: 1, omittingEmptySubsequences: false)
        return (percentDecoded(sides[0]), sides.count > 1 ? percentDecoded(sides[1]) : "")
    }
}

/// Each `%XX` as the byte it stands for; an escape that is none stays as it is, and what is no UTF-8 is replaced.
public func percentDecoded(_ text: Substring.UTF8View) -> String {
    String(decoding: unescaped(text).bytes, as: UTF8.self)
}

/// Is every `%` the start of an escape, and what the escapes say UTF-8?
public func isPercentEncoded(_ text: Substring.UTF8View) -> Bool {
    let (bytes, isWhole) = unescaped(text)
    return isWhole && String(validating: bytes, as: UTF8.self) != nil
}

/// `isWhole`: no `%` was left as it is.
private func unescaped(_ text: Substring.UTF8View) -> (bytes: [UInt8], isWhole: Bool) {
    let bytes = Array(text)
    var decoded: [UInt8] = []
    decoded.reserveCapacity(bytes.count)
    var isWhole = true
    var place = 0
    while place < bytes.count {
        if bytes[place] == UInt8(ascii: "%"), place + 2 < bytes.count, let high = hexValue(bytes[place + 1]),
            let low = hexValue(bytes[place + 2])
        {
            decoded.append(high << 4 | low)
            place += 3
        } else {
            if bytes[place] == UInt8(ascii: "%") { isWhole = false }
            decoded.append(bytes[place])
            place += 1
        }
    }
    return (decoded, isWhole)
}

func hexValue(_ digit: UInt8) -> UInt8? {
    switch digit {
    case 0x30...0x39: digit - 0x30
    case 0x41...0x46: digit - 0x37
    case 0x61...0x66: digit - 0x57
    default: nil
    }
}
