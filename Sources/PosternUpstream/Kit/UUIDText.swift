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

    /// A version-4 UUID (RFC 9562, section 5.4) with these random bits.
    package static func version4(_ random: (UInt64, UInt64)) -> [UInt8] {
        bytes(random.0 & ~0xF000 | 0x4000, random.1 & ~(3 << 62) | 2 << 62)
    }
}
