import PosternCore

extension JSONEscapes {
    /// Resolves the escapes of a checked string; `raw` is the text between the quotes.
    static func resolve(_ raw: UnsafeBufferPointer<UInt8>) -> [UInt8] {
        // The character that an escape represents never takes more bytes than the escape.
        [UInt8](unsafeUninitializedCapacity: raw.count) { result, count in
            for byte in Resolved(raw) {
                result[count] = byte
                count += 1
            }
        }
    }

    /// The UTF-8 of a checked string with its escapes resolved, byte by byte and without memory of its own.
    struct Resolved: Sequence, IteratorProtocol {
        private let raw: UnsafeBufferPointer<UInt8>
        private var position = 0
        /// The remaining bytes of the current escape; the next one is the lowest.
        private var pending: UInt32 = 0
        private var pendingCount = 0

        /// - Parameter raw: The text between the quotes.
        init(_ raw: UnsafeBufferPointer<UInt8>) { self.raw = raw }

        mutating func next() -> UInt8? {
            if pendingCount > 0 { return nextPending() }
            guard position < raw.count else { return nil }
            let byte = raw[position]
            position += 1
            return byte == UInt8(ascii: "\\") ? resolveEscape() : byte
        }

        private mutating func nextPending() -> UInt8 {
            defer { (pending, pendingCount) = (pending >> 8, pendingCount - 1) }
            return UInt8(truncatingIfNeeded: pending)
        }

        /// `position` is behind the backslash.
        private mutating func resolveEscape() -> UInt8 {
            let letter = raw[position]
            position += 1
            guard letter == UInt8(ascii: "u") else { return character(letter) }
            var scalar = hex(raw, at: position)
            position += 4
            if 0xD800..<0xDC00 ~= scalar, let low = lowSurrogate(raw, at: position) {
                scalar = 0x10000 + (scalar - 0xD800) << 10 + (low - 0xDC00)
                position += 6
            }
            // A lone surrogate is no character.
            let encoded = Unicode.Scalar(scalar).flatMap(UTF8.encode) ?? UTF8.encodedReplacementCharacter
            for byte in encoded {
                pending |= UInt32(byte) << (8 * pendingCount)
                pendingCount += 1
            }
            return nextPending()
        }
    }

    /// The character that a letter after a backslash represents.
    static func character(_ letter: UInt8) -> UInt8 {
        switch letter {
        case UInt8(ascii: "b"): 8
        case UInt8(ascii: "f"): 12
        case UInt8(ascii: "n"): 10
        case UInt8(ascii: "r"): 13
        case UInt8(ascii: "t"): 9
        default: letter
        }
    }

    /// Nil if no escape of one is there.
    private static func lowSurrogate(_ raw: UnsafeBufferPointer<UInt8>, at start: Int) -> UInt32? {
        guard start + 6 <= raw.count, raw[start] == UInt8(ascii: "\\"), raw[start + 1] == UInt8(ascii: "u") else {
            return nil
        }
        let unit = hex(raw, at: start + 2)
        return 0xDC00..<0xE000 ~= unit ? unit : nil
    }

    private static func hex(_ raw: UnsafeBufferPointer<UInt8>, at start: Int) -> UInt32 {
        var value: UInt32 = 0
        for position in start..<start + 4 {
            let byte = raw[position]
            value = value << 4 | UInt32(byte < 58 ? byte - 48 : (byte | 32) - 87)
        }
        return value
    }
}
