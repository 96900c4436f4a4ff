/// PostgreSQL rejects U+0000 in a text (SQLSTATE 22021), which would fail the transaction. It is stored as U+10FFFF, which is not
/// a character, and `0`; U+10FFFF itself as U+10FFFF and `1`. Texts that are equal are stored equal, and a prefix stays one.
enum PostgresText {
    private static let escape: Unicode.Scalar = "\u{10FFFF}"
    /// The first byte of `escape`, and of what is rarely in a text.
    private static let firstByte: UInt8 = 0xF4

    static func stored(_ text: String) -> String {
        guard text.utf8.contains(where: { $0 == 0 || $0 == firstByte }) else { return text }
        var stored = String.UnicodeScalarView()
        for scalar in text.unicodeScalars {
            switch scalar {
            case "\0": stored.append(contentsOf: [escape, "0"])
            case escape: stored.append(contentsOf: [escape, "1"])
            default: stored.append(scalar)
            }
        }
        return String(stored)
    }

    static func read(_ bytes: UnsafeRawBufferPointer) -> String {
        let stored = String(decoding: bytes, as: UTF8.self)
        guard bytes.contains(firstByte) else { return stored }
        var text = String.UnicodeScalarView()
        var isEscaped = false
        for scalar in stored.unicodeScalars {
            if isEscaped {
                text.append(scalar == "0" ? "\0" : escape)
                isEscaped = false
            } else if scalar == escape {
                isEscaped = true
            } else {
                text.append(scalar)
            }
        }
        return String(text)
    }
}
