public import Logging
public import PosternCore

/// The result of the key rotation when the store was opened: credentials that were encrypted with a previous key are
/// encrypted with the current one, and those that an earlier version kept in memory only are deleted.
public struct KeyRotationReport: Sendable, Equatable {
    /// The number of credentials that were encrypted again, with the current key.
    public var resealed = 0
    /// The number that were encrypted with the current key already.
    public var current = 0
    /// The number that were encrypted with a key that is not configured. Their messages wait for new credentials.
    public var unreadable = 0

    /// Logs what an operator has to know of it.
    ///
    /// - Parameter upstream: Nil if it is about all.
    public func log(of upstream: UpstreamName? = nil, to logger: Logger) {
        var metadata: Logger.Metadata = [:]
        if let upstream { metadata["upstream"] = "\(upstream)" }
        if resealed > 0 {
            metadata["credentials"] = .stringConvertible(resealed)
            logger.notice("credentials encrypted with the new key", metadata: metadata)
        }
        if unreadable > 0 {
            metadata["credentials"] = .stringConvertible(unreadable)
            logger.warning(
                "stored credentials cannot be decrypted with the configured keys; their messages wait for new ones",
                metadata: metadata)
        }
    }

    /// The same of the queues that no process works on, if several may: the credentials of the others have an owner.
    static func runWithoutOwners(with sql: SQL, vault: Vault) throws -> KeyRotationReport {
        let numbers = try sql.all("SELECT number FROM queues WHERE owner IS NULL ORDER BY number FOR UPDATE") {
            $0[0] as UpstreamNumber
        }
        return try run(with: sql, of: Set(numbers), vault: vault)
    }

    /// - Parameter numbers: The upstreams whose credentials these are; nil: all.
    static func run(with sql: SQL, of numbers: Set<UpstreamNumber>? = nil, vault: Vault) throws -> KeyRotationReport {
        if let numbers {
            for number in numbers {
                try sql.run("DELETE FROM credentials WHERE sealed IS NULL AND NOT isRefused AND upstream = ?", number)
            }
        } else {
            try sql.run("DELETE FROM credentials WHERE sealed IS NULL AND NOT isRefused")
        }
        var result = KeyRotationReport()
        for (credentialKey, sealed) in try sealed(with: sql) where numbers?.contains(credentialKey.upstream) ?? true {
            guard let value = vault.value(sealed, at: credentialKey) else {
                result.unreadable += 1
                continue
            }
            if sealed.keyID == vault.currentKeyID {
                result.current += 1
            } else if let resealed = try vault.put(value, at: credentialKey) {
                try sql.run(
                    "UPDATE credentials SET keyId = ?, nonce = ?, sealed = ?, digest = ? WHERE upstream = ? AND owner = ?",
                    resealed.keyID, resealed.nonce, resealed.box,
                    vault.digest(of: value, upstream: credentialKey.upstream, owner: credentialKey.owner),
                    credentialKey.upstream, credentialKey.owner)
                result.resealed += 1
            } else {
                // There is no current key: the row is not changed, and can be read while the previous key is
                // configured.
                result.current += 1
            }
        }
        return result
    }

    /// How many credentials none of the keys opens.
    static func unreadable(with sql: SQL, vault: Vault) throws -> Int {
        try sealed(with: sql).count { vault.value($0.sealed, at: $0.key) == nil }
    }

    private static func sealed(with sql: SQL) throws -> [(key: Vault.CredentialKey, sealed: Vault.Sealed)] {
        try sql.all(
            "SELECT upstream, owner, version, keyId, nonce, sealed FROM credentials WHERE sealed IS NOT NULL"
        ) { row in
            (
                Vault.CredentialKey(upstream: row[0], owner: row[1], version: row[2]),
                Vault.Sealed(keyID: row[3], nonce: row[4], box: row[5])
            )
        }
    }
}
