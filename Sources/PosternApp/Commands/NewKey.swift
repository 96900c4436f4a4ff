import Crypto
import PosternCore

/// A fresh API key, and what the configuration wants to know of it.
public struct NewKey: Sendable, Equatable {
    public typealias Scope = GatewayConfiguration.APIKey.Scope

    public let name: String
    public let scopes: [Scope]
    /// Shown once and kept nowhere: 256 random bits after a prefix by which leaked keys are found.
    public let key: String
    /// SHA-256 of the key's text, in hexadecimal.
    public let sha256: String

    static let prefix = "pstn_"

    /// `random`: where the bits come from; the system's generator takes them from the kernel.
    public init(name: String, scopes: [Scope], random: inout some RandomNumberGenerator) {
        self.name = name
        self.scopes = scopes
        let bytes = (0..<32).map { _ in UInt8.random(in: .min ... .max, using: &random) }
        key = Self.prefix + Self.base64URL(bytes)
        sha256 = Self.hex(Array(SHA256.hash(data: Array(key.utf8))))
    }

    public init(name: String, scopes: [Scope]) {
        var random = SystemRandomNumberGenerator()
        self.init(name: name, scopes: scopes, random: &random)
    }

    /// RFC 4648, section 5, without padding.
    static func base64URL(_ bytes: [UInt8]) -> String {
        let alphabet = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_".utf8)
        var text: [UInt8] = []
        for start in stride(from: 0, to: bytes.count, by: 3) {
            let group = bytes[start..<min(start + 3, bytes.count)]
            let bits = (0..<3).reduce(UInt32(0)) { $0 << 8 | ($1 < group.count ? UInt32(group[start + $1]) : 0) }
            for place in 0...group.count { text.append(alphabet[Int(bits >> UInt32(18 - 6 * place) & 63)]) }
        }
        return String(decoding: text, as: UTF8.self)
    }

    private static func hex(_ bytes: [UInt8]) -> String {
        let digits = Array("0123456789abcdef".utf8)
        return String(decoding: bytes.flatMap { [digits[Int($0 >> 4)], digits[Int($0 & 15)]] }, as: UTF8.self)
    }

    /// For `auth.keys`; scopes and upstreams may be narrowed there.
    public var entry: String {
        JSONText.object { json in
            json.string("name", name)
            json.string("sha256", sha256)
            json.raw("scopes", JSONText.array(scopes.map { JSONEscapes.quoted($0.rawValue) }))
        }
    }

    public var text: String {
        """
        key     \(key)
        sha256  \(sha256)

        The key is shown this once; keep it where the client reads its secrets. Add to auth.keys:

        \(entry)
        """
    }

    public var json: String {
        JSONText.object { json in
            json.string("key", key)
            json.string("sha256", sha256)
            json.raw("entry", entry)
        }
    }
}
