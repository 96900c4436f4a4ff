import PosternCore

/// What became of stored credentials when the store was opened: those sealed with a former key are sealed with the
/// current one, and those that only the memory of a former run held are gone.
public struct Resealing: Sendable, Equatable {
    /// Encrypted again, with the current key.
    public var resealed = 0
    /// Were sealed with the current key already.
    public var current = 0
    /// Sealed with a key that is not configured; their messages wait for new credentials.
    public var unreadable = 0

    static func run(with sql: SQL, vault: Vault) throws -> Resealing {
        try sql.run("DELETE FROM credentials WHERE sealed IS NULL AND isRefused = 0")
        var result = Resealing()
        let held = try sql.all(
            "SELECT upstream, owner, version, keyId, nonce, sealed FROM credentials WHERE sealed IS NOT NULL"
        ) { row in
            let place = Vault.Place(upstream: row[0], owner: row[1], version: row[2])
            return (place, Vault.Sealed(keyID: row[3], nonce: row[4], box: row[5]))
        }
        for (place, sealed) in held {
            guard let value = vault.value(sealed, at: place) else {
                result.unreadable += 1
                continue
            }
            if sealed.keyID == vault.currentKeyID {
                result.current += 1
            } else if let resealed = try vault.put(value, at: place) {
                try sql.run(
                    "UPDATE credentials SET keyId = ?, nonce = ?, sealed = ?, digest = ? WHERE upstream = ? AND owner = ?",
                    resealed.keyID, resealed.nonce, resealed.box,
                    vault.digest(of: value, upstream: place.upstream, owner: place.owner), place.upstream, place.owner)
                result.resealed += 1
            } else {
                // No current key: it stays as it is, readable while the former key is configured.
                result.current += 1
            }
        }
        let latest = try sql.value(
            "SELECT max(version) FROM (SELECT version FROM credentials UNION SELECT version FROM formerCredentials)",
            as: Int64.self)
        vault.learn(version: latest ?? 0)
        return result
    }
}
