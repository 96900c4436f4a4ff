/// The target of a request line, taken apart but not decoded.
struct RequestTarget {
    let path: String
    let query: String?
    /// Nothing but visible ASCII (RFC 9112, section 3.2).
    let isValid: Bool

    init(_ bytes: UnsafeBufferPointer<UInt8>) {
        let start = Self.startOfPath(bytes)
        let mark = bytes[start...].firstIndex(of: UInt8(ascii: "?"))
        path = String(decoding: UnsafeBufferPointer(rebasing: bytes[start..<(mark ?? bytes.count)]), as: UTF8.self)
        query = mark.map { String(decoding: UnsafeBufferPointer(rebasing: bytes[($0 + 1)...]), as: UTF8.self) }
        isValid = !bytes.isEmpty && bytes.allSatisfy { (0x21...0x7E).contains($0) }
    }

    /// Past `scheme://authority` of a target in absolute form, which servers must take (RFC 9112, section 3.2.2).
    private static func startOfPath(_ bytes: UnsafeBufferPointer<UInt8>) -> Int {
        guard let first = bytes.first, first != UInt8(ascii: "/"), first != UInt8(ascii: "*") else { return 0 }
        guard let colon = bytes.firstIndex(of: UInt8(ascii: ":")), bytes.count > colon + 2,
            bytes[colon + 1] == UInt8(ascii: "/"), bytes[colon + 2] == UInt8(ascii: "/")
        else { return 0 }
        return bytes[(colon + 3)...].firstIndex(of: UInt8(ascii: "/")) ?? 0
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

private func hexValue(_ digit: UInt8) -> UInt8? {
    switch digit {
    case 0x30...0x39: digit - 0x30
    case 0x41...0x46: digit - 0x37
    case 0x61...0x66: digit - 0x57
    default: nil
    }
}
