/// Form encoding as PHP's `urlencode` writes it (the specification's 3.5). Used for the query, the body, and the
/// signature: the signed bytes are the bytes that are sent.
enum StreamOneEncoding {
    /// The encoder: the SDK for iOS does not escape nine characters that PHP escapes. The gateway itself uses PHP's
    /// encoding.
    enum Dialect: CaseIterable { case php, ios }

    private static let digits = Array("0123456789ABCDEF".utf8)
    private static let bareForIOS = Array("!$'()*;@~".utf8)

    /// `name=value` joined by `&`, in the order given. Letters, digits, `-`, `_` and `.` stay, a space becomes `+`, any
    /// other byte `%XX`.
    ///
    /// Worked values: `a b` becomes `a+b`, `é~` becomes `%C3%A9%7E`, and `%C3%A9~` for iOS.
    static func encode(_ pairs: [StreamOneCall.Argument], as dialect: Dialect = .php) -> [UInt8] {
        var encoded: [UInt8] = []
        encoded.reserveCapacity(pairs.reduce(0) { $0 + $1.name.utf8.count + $1.value.utf8.count + 2 })
        for pair in pairs {
            if !encoded.isEmpty { encoded.append(UInt8(ascii: "&")) }
            append(pair.name, to: &encoded, dialect)
            encoded.append(UInt8(ascii: "="))
            append(pair.value, to: &encoded, dialect)
        }
        return encoded
    }

    private static func append(_ text: String, to encoded: inout [UInt8], _ dialect: Dialect) {
        for byte in text.utf8 {
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "_"), UInt8(ascii: "."):
                encoded.append(byte)
            case UInt8(ascii: " "): encoded.append(UInt8(ascii: "+"))
            case _ where dialect == .ios && bareForIOS.contains(byte): encoded.append(byte)
            default: encoded += [UInt8(ascii: "%"), digits[Int(byte >> 4)], digits[Int(byte & 15)]]
            }
        }
    }

    // MARK: Reading

    /// The pairs of a form in their order, whichever characters its writer escaped; empty for an empty form. Nil if
    /// anything is ambiguous: a pair without a name or `=`, an incomplete escape, a byte beyond visible ASCII, or text
    /// that is not UTF-8.
    static func pairs(of form: some Collection<UInt8>) -> [StreamOneCall.Argument]? {
        guard !form.isEmpty else { return [] }
        var pairs: [StreamOneCall.Argument] = []
        for pair in form.split(separator: UInt8(ascii: "&"), omittingEmptySubsequences: false) {
            let sides = pair.split(separator: UInt8(ascii: "="), maxSplits: 1, omittingEmptySubsequences: false)
            guard sides.count == 2, let name = decode(sides[0]), let value = decode(sides[1]), !name.isEmpty else {
                return nil
            }
            pairs.append(StreamOneCall.Argument(name, value))
        }
        return pairs
    }

    private static func decode(_ text: some Collection<UInt8>) -> String? {
        var decoded: [UInt8] = []
        var rest = text.makeIterator()
        while let byte = rest.next() {
            switch byte {
            case UInt8(ascii: "+"): decoded.append(UInt8(ascii: " "))
            case UInt8(ascii: "%"):
                guard let high = rest.next().flatMap(value), let low = rest.next().flatMap(value) else { return nil }
                decoded.append(high << 4 | low)
            case 0x21...0x7E: decoded.append(byte)
            default: return nil
            }
        }
        return String(validating: decoded, as: UTF8.self)
    }

    private static func value(_ digit: UInt8) -> UInt8? {
        let upper = UInt8(ascii: "a")...UInt8(ascii: "f") ~= digit ? digit - 0x20 : digit
        return digits.firstIndex(of: upper).map(UInt8.init)
    }
}
