/// The escapes of JSON strings (RFC 8259, section 7).
public enum JSONEscapes {
    /// Resolves the escapes of a checked string; `raw` is the text between the quotes.
    public static func resolve(_ raw: UnsafeBufferPointer<UInt8>) -> [UInt8] {
        [UInt8](unsafeUninitializedCapacity: raw.count) { result, count in
            var place = 0
            while place < raw.count {
                if raw[place] == UInt8(ascii: "\\") {
                    resolveEscape(raw, &place, result, &count)
                } else {
                    result[count] = raw[place]
                    (place, count) = (place + 1, count + 1)
                }
            }
        }
    }

    /// What an escape stands for never takes more bytes than the escape.
    private static func resolveEscape(
        _ raw: UnsafeBufferPointer<UInt8>, _ place: inout Int, _ result: UnsafeMutableBufferPointer<UInt8>,
        _ count: inout Int
    ) {
        let letter = raw[place + 1]
        guard letter == UInt8(ascii: "u") else {
            result[count] = character(letter)
            (place, count) = (place + 2, count + 1)
            return
        }
        var scalar = hex(raw, at: place + 2)
        place += 6
        if 0xD800..<0xDC00 ~= scalar {
            scalar = 0x10000 + (scalar - 0xD800) << 10 + (hex(raw, at: place + 2) - 0xDC00)
            place += 6
        }
        for byte in Unicode.Scalar(scalar).flatMap(UTF8.encode) ?? UTF8.encodedReplacementCharacter {
            result[count] = byte
            count += 1
        }
    }

    /// What a letter after a backslash stands for.
    private static func character(_ letter: UInt8) -> UInt8 {
        switch letter {
        case UInt8(ascii: "b"): 8
        case UInt8(ascii: "f"): 12
        case UInt8(ascii: "n"): 10
        case UInt8(ascii: "r"): 13
        case UInt8(ascii: "t"): 9
        default: letter
        }
    }

    private static func hex(_ raw: UnsafeBufferPointer<UInt8>, at start: Int) -> UInt32 {
        var value: UInt32 = 0
        for place in start..<start + 4 {
            let byte = raw[place]
            value = value << 4 | UInt32(byte < 58 ? byte - 48 : (byte | 32) - 87)
        }
        return value
    }

    /// `text` as a JSON string, quotes included: escapes what RFC 8259 demands and nothing else.
    public static func quoted(_ text: String) -> String {
        var result = "\""
        for scalar in text.unicodeScalars {
            switch scalar {
            case "\"": result += "\\\""
            case "\\": result += "\\\\"
            case "\n": result += "\\n"
            case "\r": result += "\\r"
            case "\t": result += "\\t"
            case let control where control.value < 0x20:
                let digits = String(control.value, radix: 16)
                result += "\\u" + String(repeating: "0", count: 4 - digits.count) + digits
            default: result.unicodeScalars.append(scalar)
            }
        }
        return result + "\""
    }
}
