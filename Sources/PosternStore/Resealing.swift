import GRDB
import PosternCore

/// What became of stored credentials when the store was opened: those sealed with a former key are sealed with the
/// current one, and those that only the memory of a former run held are gone.
public struct Resealing: Sendable, Equatable {
    /// Sealed anew with the current key.
    public var resealed = 0
    /// Were sealed with the current key already.
    public var current = 0
    /// Sealed with a key that is not configured; their messages wait for new credentials.
    public var unreadable = 0

    static func run(in db: Database, vault: Vault) throws -> Resealing {
        try db.execute(sql: "DELETE FROM credentials WHERE sealed IS NULL AND isRefused = 0")
        var result = Resealing()
        for row in try Row.fetchAll(
            db, sql: "SELECT upstream, owner, version, keyId, nonce, sealed FROM credentials WHERE sealed IS NOT NULL")
        {
            let place = Vault.Place(
                upstream: UpstreamNumber(rawValue: row["upstream"]), owner: row["owner"], version: row["version"])
            let sealed = Vault.Sealed(
                keyID: row["keyId"], nonce: StoredState.bytes(row["nonce"]), box: StoredState.bytes(row["sealed"]))
            guard let value = vault.value(sealed, at: place) else {
                result.unreadable += 1
                continue
            }
            if sealed.keyID == vault.currentKeyID {
                result.current += 1
            } else if let anew = try vault.put(value, at: place) {
                try db.execute(
                    sql: """
                        UPDATE credentials SET keyId = ?, nonce = ?, sealed = ?, digest = ?
                        WHERE upstream = ? AND owner = ?
                        """,
                    arguments: [
                        anew.keyID, anew.nonce.data, anew.box.data,
                        vault.digest(of: value, upstream: place.upstream, owner: place.owner).data,
                        place.upstream.rawValue, place.owner,
                    ])
                result.resealed += 1
            } else {
                // No current key: it stays as it is, readable while the former key is configured.
                result.current += 1
            }
        }
        let versions = ["credentials", "formerCredentials"].map { "SELECT max(version) AS version FROM \($0)" }
        let latest = try Int64.fetchOne(db, sql: "SELECT max(version) FROM (\(versions.joined(separator: " UNION ")))")
        vault.learn(version: latest ?? 0)
        return result
    }
}
