import PosternCore

/// Percent-encoding of a text for use in a URL (RFC 3986, section 2.1).
package enum PercentEncoding {
    private static let digits = Array("0123456789ABCDEF".utf8)

    /// Keeps the unreserved characters (RFC 3986, section 2.3); every other byte of the UTF-8 becomes `%XX`.
    ///
    /// Worked values: `a b&c` becomes `a%20b%26c`, `ë` becomes `%C3%AB`.
    package static func encode(_ text: String) -> String {
        var encoded: [UInt8] = []
        append(text.utf8, to: &encoded)
        return String(decoding: encoded, as: UTF8.self)
    }

    /// Appends the encoded text.
    ///
    /// - Parameter plusIsSpace: Whether a space becomes `+`, as in forms.
    package static func append(_ text: some Sequence<UInt8>, plusIsSpace: Bool = false, to result: inout [UInt8]) {
        for byte in text {
            if byte.isUnreserved {
                result.append(byte)
            } else if plusIsSpace, byte == UInt8(ascii: " ") {
                result.append(UInt8(ascii: "+"))
            } else {
                result += [UInt8(ascii: "%"), digits[Int(byte >> 4)], digits[Int(byte & 15)]]
            }
        }
    }

    /// Undoes form encoding: `+` is a space. Nil for an invalid escape.
    package static func decodedForm(_ text: some Collection<UInt8>) -> [UInt8]? {
        var decoded: [UInt8] = []
        decoded.reserveCapacity(text.count)
        var rest = text.makeIterator()
        while let byte = rest.next() {
            switch byte {
            case UInt8(ascii: "+"): decoded.append(UInt8(ascii: " "))
            case UInt8(ascii: "%"):
                guard let high = rest.next()?.hexadecimalValue, let low = rest.next()?.hexadecimalValue else {
                    return nil
                }
                decoded.append(high << 4 | low)
            default: decoded.append(byte)
            }
        }
        return decoded
    }
}
