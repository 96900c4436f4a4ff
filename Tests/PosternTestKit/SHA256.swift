import Glibc

/// SHA-256 (FIPS 180-4), for comparing bytes with digests that specifications give.
public enum SHA256 {
    /// In lower-case hexadecimal.
    public static func hex(of message: [UInt8]) -> String {
        var state = primes.prefix(8).map { fraction(of: Double($0).squareRoot()) }
        let padded = padded(message)
        for start in stride(from: 0, to: padded.count, by: 64) { mix(padded[start..<start + 64], into: &state) }
        return state.map { word in
            let digits = String(word, radix: 16)
            return String(repeating: "0", count: 8 - digits.count) + digits
        }.joined()
    }

    private static let primes = (2...311).filter { candidate in
        (2..<candidate).allSatisfy { $0 * $0 > candidate || candidate % $0 != 0 }
    }

    /// The first 32 bits behind the point. Roots of small primes have their integer part in three bits, so a double has
    /// bits to spare.
    private static func fraction(of root: Double) -> UInt32 { UInt32((root - root.rounded(.down)) * 4_294_967_296) }

    private static let roundConstants = primes.map { fraction(of: cbrt(Double($0))) }

    /// A one bit, zeros up to a whole block, and the length in bits in 8 bytes.
    private static func padded(_ message: [UInt8]) -> [UInt8] {
        let zeros = (119 - message.count % 64) % 64
        let bits = UInt64(message.count) * 8
        return message + [0x80] + [UInt8](repeating: 0, count: zeros)
            + stride(from: 56, through: 0, by: -8).map { UInt8(truncatingIfNeeded: bits >> UInt64($0)) }
    }

    private static func rotated(_ word: UInt32, _ count: UInt32) -> UInt32 { word >> count | word << (32 - count) }

    private static func mix(_ block: ArraySlice<UInt8>, into state: inout [UInt32]) {
        let bytes = Array(block)
        var words = (0..<16).map { word in (0..<4).reduce(UInt32(0)) { $0 << 8 | UInt32(bytes[word * 4 + $1]) } }
        for index in 16..<64 {
            let late = words[index - 2]
            let early = words[index - 15]
            let mixedLate = rotated(late, 17) ^ rotated(late, 19) ^ late >> 10
            let mixedEarly = rotated(early, 7) ^ rotated(early, 18) ^ early >> 3
            words.append(words[index - 16] &+ mixedEarly &+ words[index - 7] &+ mixedLate)
        }
        var s = state
        for index in 0..<64 {
            let choice = s[4] & s[5] ^ ~s[4] & s[6]
            let majority = s[0] & s[1] ^ s[0] & s[2] ^ s[1] & s[2]
            let first =
                s[7] &+ (rotated(s[4], 6) ^ rotated(s[4], 11) ^ rotated(s[4], 25)) &+ choice
                &+ roundConstants[index] &+ words[index]
            let second = (rotated(s[0], 2) ^ rotated(s[0], 13) ^ rotated(s[0], 22)) &+ majority
            s = [first &+ second, s[0], s[1], s[2], s[3] &+ first, s[4], s[5], s[6]]
        }
        for index in 0..<8 { state[index] &+= s[index] }
    }
}
