import Crypto

/// UUIDs (RFC 9562) in their text form: 36 characters, lower case.
package enum UUIDText {
    package static func bytes(_ high: UInt64, _ low: UInt64) -> [UInt8] {
        let digits = Array("0123456789abcdef".utf8)
        var text: [UInt8] = []
        text.reserveCapacity(36)
        for index in 0..<32 {
            if [8, 12, 16, 20].contains(index) { text.append(UInt8(ascii: "-")) }
            let half = index < 16 ? high : low
            text.append(digits[Int(half >> UInt64(60 - index % 16 * 4) & 15)])
        }
        return text
    }

    /// The namespace of URLs (RFC 9562, section 6.6).
    private static let urls: [UInt8] = [
        0x6B, 0xA7, 0xB8, 0x11, 0x9D, 0xAD, 0x11, 0xD1, 0x80, 0xB4, 0x00, 0xC0, 0x4F, 0xD4, 0x30, 0xC8,
    ]

    /// The version-5 UUID of a name in the namespace of URLs (RFC 9562, section 5.5). The same name always has the same.
    package static func version5(_ name: String) -> [UInt8] {
        let digest = Array(Insecure.SHA1.hash(data: urls + Array(name.utf8)))
        func number(_ bytes: ArraySlice<UInt8>) -> UInt64 { bytes.reduce(0) { $0 << 8 | UInt64($1) } }
        return bytes(number(digest[..<8]) & ~0xF000 | 0x5000, number(digest[8..<16]) & ~(3 << 62) | 2 << 62)
    }

    /// A version-4 UUID (RFC 9562, section 5.4) with these random bits.
    package static func version4(_ random: (UInt64, UInt64)) -> [UInt8] {
        bytes(random.0 & ~0xF000 | 0x4000, random.1 & ~(3 << 62) | 2 << 62)
    }
}
