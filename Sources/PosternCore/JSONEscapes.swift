/// The escapes of JSON strings (RFC 8259, section 7).
public enum JSONEscapes {
    /// Resolves the escapes of a checked string; `raw` is the text between the quotes.
    public static func resolve(_ raw: UnsafeBufferPointer<UInt8>) -> [UInt8] {
        var result: [UInt8] = []
        result.reserveCapacity(raw.count)
        var place = 0
        while place < raw.count {
            guard raw[place] == UInt8(ascii: "\\") else {
                result.append(raw[place])
                place += 1
                continue
            }
            switch raw[place + 1] {
            case UInt8(ascii: "b"): result.append(8)
            case UInt8(ascii: "f"): result.append(12)
            case UInt8(ascii: "n"): result.append(10)
            case UInt8(ascii: "r"): result.append(13)
            case UInt8(ascii: "t"): result.append(9)
            case UInt8(ascii: "u"):
                var scalar = hex(raw, at: place + 2)
                if 0xD800..<0xDC00 ~= scalar {
                    scalar = 0x10000 + (scalar - 0xD800) << 10 + (hex(raw, at: place + 8) - 0xDC00)
                    place += 6
                }
                result.append(contentsOf: Unicode.Scalar(scalar).map { Array(String($0).utf8) } ?? [])
                place += 4
            case let plain: result.append(plain)
            }
            place += 2
        }
        return result
    }

    private static func hex(_ raw: UnsafeBufferPointer<UInt8>, at start: Int) -> UInt32 {
        raw[start..<start + 4].reduce(0) { value, byte in
            value << 4 | UInt32(byte < 58 ? byte - 48 : (byte | 32) - 87)
        }
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
