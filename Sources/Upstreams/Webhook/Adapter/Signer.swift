import Crypto
import Foundation
import PosternCore
import PosternUpstream

/// Signs requests as Standard Webhooks 1.0.0 says ("Signature scheme", "Webhook headers"): HMAC-SHA256 over id,
/// timestamp and body, with a full stop between each two.
///
/// Worked value: `whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw`, `msg_p5jXN8AQM9LWM0D4loKWxJek`, 1614265330 and
/// `{"test": 2432232314}` give `v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=`.
struct Signer: Sendable {
    private let keys: [SymmetricKey]

    /// `secrets` have been checked.
    init(_ secrets: [Secret]) {
        keys = secrets.compactMap { Self.key(of: $0.value) }.map { SymmetricKey(data: $0) }
    }

    /// Whether requests are signed.
    var isOn: Bool { !keys.isEmpty }

    /// One signature for each secret, in base64.
    func signatures(id: String, seconds: Int64, body: [UInt8]) -> [String] {
        keys.map { key in
            var code = HMAC<SHA256>(key: key)
            code.update(data: Array("\(id).\(seconds).".utf8))
            code.update(data: body)
            return Data(code.finalize()).base64EncodedString()
        }
    }

    /// The bytes of a secret, which is written `whsec_` and base64, with or without padding. Nil if it is not, or if it
    /// is shorter or longer than the specification allows.
    static func key(of text: String) -> [UInt8]? {
        guard text.hasPrefix("whsec_") else { return nil }
        let letters = text.dropFirst("whsec_".count)
        let padding = String(repeating: "=", count: (4 - letters.utf8.count % 4) % 4)
        guard let key = Data(base64Encoded: letters + padding), (24...64).contains(key.count) else { return nil }
        return Array(key)
    }
}

/// What makes a repeated batch known to its receiver: a UUID of version 8 (RFC 9562, section 5.8).
///
/// It depends on the messages alone, so it is the same for each attempt, also after a restart. The ids alone would not
/// do, because two gateways may give out the same ones.
enum BatchKey {
    static func of(_ messages: [Message], for upstream: UpstreamName) -> String {
        var hash = SHA256()
        hash.update(data: Array("\(upstream)\n".utf8))
        for message in messages {
            let numbers = [message.id.rawValue, message.acceptedAt.milliseconds, Int64(message.payload.count)]
            hash.update(
                data: numbers.flatMap { number in (0..<8).map { UInt8(truncatingIfNeeded: number >> ($0 * 8)) } })
            hash.update(data: message.payload)
        }
        var halves: [UInt64] = [0, 0]
        for (index, byte) in hash.finalize().prefix(16).enumerated() {
            halves[index / 8] = halves[index / 8] << 8 | UInt64(byte)
        }
        return String(
            decoding: UUIDText.bytes(halves[0] & ~0xF000 | 0x8000, halves[1] & ~(3 << 62) | 2 << 62), as: UTF8.self)
    }
}
