/// Form encoding as PHP's `urlencode` writes it (the specification's 3.5). It serves the query, the body and what is
/// signed: the bytes signed are the bytes sent.
enum StreamOneEncoding {
    private static let digits = Array("0123456789ABCDEF".utf8)

    /// Letters, digits, `-`, `_` and `.` stay, a space becomes `+`, any other byte `%XX`.
    ///
    /// Worked values: `a b` becomes `a+b`, `é~` becomes `%C3%A9%7E`.
    static func encode(_ text: String) -> String {
        var encoded: [UInt8] = []
        append(text, to: &encoded)
        return String(decoding: encoded, as: UTF8.self)
    }

    /// `name=value` joined by `&`, in the order given.
    static func encode(_ pairs: [StreamOneCall.Argument]) -> [UInt8] {
        var encoded: [UInt8] = []
        for pair in pairs {
            if !encoded.isEmpty { encoded.append(UInt8(ascii: "&")) }
            append(pair.name, to: &encoded)
            encoded.append(UInt8(ascii: "="))
            append(pair.value, to: &encoded)
        }
        return encoded
    }

    private static func append(_ text: String, to encoded: inout [UInt8]) {
        for byte in text.utf8 {
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "_"), UInt8(ascii: "."):
                encoded.append(byte)
            case UInt8(ascii: " "): encoded.append(UInt8(ascii: "+"))
            default: encoded += [UInt8(ascii: "%"), digits[Int(byte >> 4)], digits[Int(byte & 15)]]
            }
        }
    }
}
