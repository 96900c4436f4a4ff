import Crypto
import PosternCompression

/// The text of an API key: `postern_`, 43 characters of base62 for 256 random bits, and 6 for the CRC-32 of all before.
///
/// The prefix and the checksum are for scanners that look for leaked secrets. Nothing depends on them when a request is
/// authenticated: any text may be a key whose digest is configured.
public enum KeyText {
    /// Begins every key, so that scanners for leaked secrets recognize one.
    static let prefix = "postern_"
    private static let randomLength = 43
    private static let checksumLength = 6
    private static let alphabet = Array("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz".utf8)

    /// Returns a new key of 256 bits from `random`.
    public static func make(using random: inout some RandomNumberGenerator) -> String {
        let bits = (0..<32).map { _ in UInt8.random(in: .min ... .max, using: &random) }
        let body = prefix + base62(bits, length: randomLength)
        return body + checksum(of: body)
    }

    /// The digest that the configuration contains: SHA-256, 32 bytes.
    public static func digest(of key: String) -> [UInt8] { Array(SHA256.hash(data: Array(key.utf8))) }

    static func checksum(of text: String) -> String {
        let crc = CRC32.checksum(of: Array(text.utf8))
        return base62((0..<4).map { UInt8(truncatingIfNeeded: crc >> (24 - 8 * $0)) }, length: checksumLength)
    }

    /// The big-endian number in base 62, with zeros in front.
    private static func base62(_ bytes: [UInt8], length: Int) -> String {
        var number = bytes
        var digits: [UInt8] = []
        for _ in 0..<length {
            var remainder = 0
            for index in number.indices {
                let value = remainder << 8 | Int(number[index])
                number[index] = UInt8(value / 62)
                remainder = value % 62
            }
            digits.append(alphabet[remainder])
        }
        return String(decoding: digits.reversed(), as: UTF8.self)
    }
}
