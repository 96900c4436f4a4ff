extension String {
    /// Escapes every character that could move a terminal's cursor, change what it shows, or break the line: control
    /// characters (C0, DEL, C1), line separators, and those that change the direction of the text.
    ///
    /// If `keepsLineBreaks`, line feeds and tabs are not escaped.
    package func printable(keepsLineBreaks: Bool = false) -> String {
        escaping { $0.isUnprintable && !(keepsLineBreaks && ($0 == "\n" || $0 == "\t")) }
    }

    /// For JSON text: as above, but leaves the control characters of ASCII to JSON, which has none of them inside its
    /// strings and some of them as white space. The others occur in strings only, so the text stays the same value.
    package func printableJSON() -> String { escaping { $0.value >= 0x7F && $0.isUnprintable } }

    private func escaping(_ isEscaped: (Unicode.Scalar) -> Bool) -> String {
        guard unicodeScalars.contains(where: isEscaped) else { return self }
        return unicodeScalars.reduce(into: "") { result, scalar in
            if isEscaped(scalar) { result += Self.escape(scalar) } else { result.unicodeScalars.append(scalar) }
        }
    }

    private static func escape(_ scalar: Unicode.Scalar) -> String {
        switch scalar {
        case "\n": return "\\n"
        case "\r": return "\\r"
        case "\t": return "\\t"
        default:
            let digits = String(scalar.value, radix: 16)
            return "\\u" + String(repeating: "0", count: Swift.max(0, 4 - digits.count)) + digits
        }
    }
}

extension Unicode.Scalar {
    var isUnprintable: Bool {
        switch value {
        case 0..<0x20, 0x7F..<0xA0: true
        // Directional marks and line separators.
        case 0x061C, 0x200E, 0x200F, 0x2028...0x202E, 0x2066...0x2069: true
        default: false
        }
    }
}
