public import PosternAPI
import PosternCore
public import PosternUpstream

/// A new API key, and its entry for the configuration.
public struct NewKey: Sendable, Equatable {
    public typealias Scope = APIKey.Scope

    /// The name of the key in logs.
    public let name: String
    public let scopes: [Scope]
    /// Shown once and kept nowhere; see `KeyText`.
    let key: String
    /// SHA-256 of the key's text, in hexadecimal.
    let sha256: String

    /// `random`: the source of the bits. The system's generator takes them from the kernel.
    init(name: String, scopes: [Scope], random: inout some RandomNumberGenerator) {
        self.name = name
        self.scopes = scopes
        key = KeyText.make(using: &random)
        sha256 = KeyText.digest(of: key).hexadecimal
    }

    public init(name: String, scopes: [Scope]) {
        var random = SystemRandomNumberGenerator()
        self.init(name: name, scopes: scopes, random: &random)
    }

    /// The entry for `auth.keys`. Scopes and upstreams may be narrowed there.
    var entry: String {
        JSONWriter.object { json in
            json.string("name", name)
            json.string("sha256", sha256)
            json.raw("scopes", JSONWriter.array(scopes.map { JSONEscapes.quoted($0.rawValue) }))
        }
    }

    /// The key and its entry in the configuration, for people.
    public var text: String {
        """
        key     \(key)
        sha256  \(sha256)

        The key is shown this once; keep it where the client reads its secrets. Add to auth.keys:

        \(entry)
        """
    }

    /// The same as one JSON object.
    public var json: String {
        JSONWriter.object { json in
            json.string("key", key)
            json.string("sha256", sha256)
            json.raw("entry", entry)
        }
    }
}
