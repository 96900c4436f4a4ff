import Crypto
import PosternCore
import PosternUpstream

/// Credentials that apps have in the place of the platform's.
struct SeerSDKClient: Sendable, Equatable {
    let id: String
    /// The SHA-256 of the secret, 32 bytes.
    let secretDigest: [UInt8]
    /// Empty: none.
    let apiKey: String
    /// Of the codes in its tokens.
    let tokenKey: SymmetricKey

    init(id: String, secretDigest: [UInt8], apiKey: String) {
        self.id = id
        self.secretDigest = secretDigest
        self.apiKey = apiKey
        tokenKey = SeerToken.key(id: id, secretDigest: secretDigest)
    }

    init(id: String, secret: String, apiKey: String) {
        self.init(id: id, secretDigest: Array(SHA256.hash(data: Array(secret.utf8))), apiKey: apiKey)
    }

    /// Compares every byte, whichever of them differ.
    func hasSecret(_ secret: [UInt8]) -> Bool { equal(Array(SHA256.hash(data: secret)), secretDigest) }

    /// Whether the query of a request has the api key. It comes as it is, or percent-encoded.
    func isKnown(by query: String) -> Bool {
        guard !apiKey.isEmpty else { return true }
        guard let pair = query.split(separator: "&").last(where: { $0.hasPrefix("apikey=") }) else { return false }
        let given = pair.dropFirst("apikey=".count)
        let key = Array(apiKey.utf8)
        let isRaw = equal(Array(given.utf8), key)
        return percentDecoded(given.utf8).map { equal(Array($0.utf8), key) } == true || isRaw
    }
}

/// Whether two texts of one length are equal, in a time that does not depend on where they differ.
func equal(_ left: [UInt8], _ right: [UInt8]) -> Bool {
    left.count == right.count && zip(left, right).reduce(0) { $0 | ($1.0 ^ $1.1) } == 0
}

extension SettingField<SeerSettings> {
    static func sdkClients(_ name: String, _ property: Property<[SeerSDKClient]>) -> Self {
        Self(
            name, .records(["id": .text, "secretSha256": .text, "apiKey": .text]), property, secret: true,
            "Credentials of apps, instead of the platform's: each has an `id`, the SHA-256 of its secret as `secretSha256`, and perhaps an `apiKey` instead of the upstream's."
        ) {
            .records(
                $0.map { client in
                    var record: [String: SettingValue] = [
                        "id": .text(client.id), "secretSha256": .text(client.secretDigest.hexadecimal),
                    ]
                    if !client.apiKey.isEmpty { record["apiKey"] = .text(client.apiKey) }
                    return record
                })
        } decode: { value throws(Setting.Mismatch) in
            guard let records = value.records else { return nil }
            var problems: [String] = []
            var clients: [SeerSDKClient] = []
            for (index, record) in records.enumerated() {
                let id = record["id"]?.text ?? ""
                let digest = record["secretSha256"]?.text.flatMap { [UInt8](hexadecimal: $0) } ?? []
                if id.isEmpty || id.contains(":") { problems.append("[\(index)].id must be a text without a colon") }
                if clients.contains(where: { $0.id == id }) { problems.append("[\(index)].id is there twice") }
                if digest.count != 32 { problems.append("[\(index)].secretSha256 must have 64 hexadecimal digits") }
                for name in record.keys.sorted() where !["id", "secretSha256", "apiKey"].contains(name) {
                    problems.append("[\(index)] must have no member \(name)")
                }
                clients.append(
                    SeerSDKClient(id: id, secretDigest: digest, apiKey: record["apiKey"]?.text ?? ""))
            }
            guard problems.isEmpty else { throw Setting.Mismatch(details: problems) }
            return clients
        }
    }
}
