import Crypto
import PosternCore

/// A token of the gateway's own: its date and a random part, with a code under a key that follows from the secret of the
/// client. So it needs no store, and is void when the secret changes. It says nothing of the platform's token.
struct SeerToken {
    /// As long after its date, a token is accepted (S3): the SDK goes by the clock of its device, and does not fetch
    /// another one when it is refused.
    static let grace = Duration.seconds(86_400)

    private static let format: UInt8 = 1
    private static let contentBytes = 1 + 8 + 16
    private static let codeBytes = 32

    static func issue(to client: SeerSDKClient, until date: Timestamp, _ random: (UInt64, UInt64)) -> String {
        var content = [format]
        for number in [UInt64(bitPattern: date.milliseconds), random.0, random.1] {
            withUnsafeBytes(of: number.bigEndian) { content += $0 }
        }
        return base64URL(content + code(of: content, client))
    }

    /// Whether the client was given the token, and it is still accepted.
    static func accepts(_ token: some StringProtocol, of client: SeerSDKClient, at now: Timestamp) -> Bool {
        guard let bytes = decoded(token), bytes.count == contentBytes + codeBytes, bytes[0] == format else {
            return false
        }
        let content = Array(bytes[..<contentBytes])
        guard equal(code(of: content, client), Array(bytes[contentBytes...])) else { return false }
        let date = content[1..<9].reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
        return now <= Timestamp(milliseconds: Int64(bitPattern: date)) + grace
    }

    private static func code(of content: [UInt8], _ client: SeerSDKClient) -> [UInt8] {
        Array(HMAC<SHA256>.authenticationCode(for: content, using: client.tokenKey))
    }

    static func key(id: String, secretDigest: [UInt8]) -> SymmetricKey {
        HKDF<SHA256>.deriveKey(
            inputKeyMaterial: SymmetricKey(data: secretDigest),
            info: Array("postern seer token ".utf8) + Array(id.utf8), outputByteCount: 32)
    }

    // MARK: The alphabet of URLs (RFC 4648, section 5), without padding

    private static let alphabet = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_".utf8)

    private static func base64URL(_ bytes: [UInt8]) -> String {
        var text: [UInt8] = []
        var (bits, count) = (UInt32(0), 0)
        for byte in bytes {
            (bits, count) = (bits << 8 | UInt32(byte), count + 8)
            while count >= 6 {
                count -= 6
                text.append(alphabet[Int(bits >> UInt32(count) & 63)])
            }
        }
        if count > 0 { text.append(alphabet[Int(bits << UInt32(6 - count) & 63)]) }
        return String(decoding: text, as: UTF8.self)
    }

    /// The value of each letter; 64 for what is none.
    private static let values = (UInt8.min...UInt8.max).map { letter in
        UInt8(alphabet.firstIndex(of: letter) ?? 64)
    }

    /// Nil for anything but the one encoding of some bytes.
    private static func decoded(_ text: some StringProtocol) -> [UInt8]? {
        guard text.utf8.count < 400 else { return nil }
        var bytes: [UInt8] = []
        bytes.reserveCapacity(text.utf8.count * 3 / 4)
        var (bits, count) = (UInt32(0), 0)
        for letter in text.utf8 {
            let value = values[Int(letter)]
            guard value < 64 else { return nil }
            (bits, count) = (bits << 6 | UInt32(value), count + 6)
            guard count >= 8 else { continue }
            count -= 8
            bytes.append(UInt8(truncatingIfNeeded: bits >> UInt32(count)))
        }
        return count < 6 && bits & (1 << UInt32(count) - 1) == 0 ? bytes : nil
    }
}
