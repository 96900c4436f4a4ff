/// Classes of ASCII characters.
extension UInt8 {
    @inlinable public var isDigit: Bool { self &- 0x30 < 10 }
    @inlinable public var isLetter: Bool { (self | 0x20) &- 0x61 < 26 }
    @inlinable public var isLowercaseLetter: Bool { self &- 0x61 < 26 }
    @inlinable public var isAlphanumeric: Bool { isDigit || isLetter }

    /// A character that is itself anywhere in a URL (RFC 3986, section 2.3).
    @inlinable public var isUnreserved: Bool {
        switch self {
        case UInt8(ascii: "-"), UInt8(ascii: "."), UInt8(ascii: "_"), UInt8(ascii: "~"): true
        default: isAlphanumeric
        }
    }

    /// A character of a token (RFC 9110, section 5.6.2).
    @inlinable public var isTokenCharacter: Bool {
        let bits: UInt64 = self < 64 ? 0x03FF_6CFA_0000_0000 : self < 128 ? 0x57FF_FFFF_C7FF_FFFE : 0
        return bits >> UInt64(self & 63) & 1 == 1
    }
}
