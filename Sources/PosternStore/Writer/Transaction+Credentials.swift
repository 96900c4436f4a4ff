import PosternCore
import PosternUpstream

/// The owner of the credential.
struct CredentialOwner: Hashable {
    let upstream: UpstreamNumber
    let name: String
}

extension Transaction {
    func state(of queue: QueueTarget) -> StoredState {
        StoredState(upstream: queue.number, sql: sql, vault: outbox.vault, writeState: writeStates[queue.number])
    }

    /// Stores a credential and replaces its owner's previous one; if its value is different, the owner's lanes are
    /// released. Returns whether it may be sent. If it was rejected before, or has expired and the previous one has not,
    /// the previous one is kept.
    @discardableResult
    func hold(_ credential: Credential, of queue: QueueTarget) throws -> Bool {
        touchedOwners.insert(CredentialOwner(upstream: queue.number, name: credential.owner))
        let state = state(of: queue)
        let now = outbox.time.now
        guard try !state.wasRefused(credential) else { return false }
        let isUsable = credential.expiresAt.map { $0 > now } ?? true
        if let held = try state.credential(of: credential.owner) {
            if held.value == credential.value {
                guard held.isUsable(at: now) else { return false }
                try describeAgain(credential, of: queue)
                return isUsable
            }
            if !isUsable, held.isUsable(at: now) {
                try remember(expired: credential, at: now, of: queue)
                return false
            }
            try retire(credential.owner, isRefused: !held.isUsable(at: now), at: now, of: queue)
        }
        try insert(credential, of: queue)
        try release(group: credential.owner, of: queue)
        return isUsable
    }

    private func describeAgain(_ credential: Credential, of queue: QueueTarget) throws {
        try sql.run(
            """
            UPDATE credentials SET note = ?, expiresAtMs = coalesce(?, expiresAtMs), isKept = ?
            WHERE upstream = ? AND owner = ?
            """, credential.note, credential.expiresAt, credential.isKept, queue.number, credential.owner)
    }

    private func insert(_ credential: Credential, of queue: QueueTarget) throws {
        let vault = outbox.vault
        let owner = credential.owner
        let version = try writer.nextVersion(in: sql)
        let sealed = try vault.put(
            credential.value, at: .init(upstream: queue.number, owner: owner, version: version))
        try sql.run(
            """
            INSERT INTO credentials (upstream, owner, version, digest, note, keyId, nonce, sealed, expiresAtMs, isKept)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
            ON CONFLICT (upstream, owner) DO UPDATE SET version = excluded.version, digest = excluded.digest,
              note = excluded.note, keyId = excluded.keyId, nonce = excluded.nonce, sealed = excluded.sealed,
              expiresAtMs = excluded.expiresAtMs, isKept = excluded.isKept, isRefused = FALSE
            """,
            queue.number, owner, version, vault.digest(of: credential.value, upstream: queue.number, owner: owner),
            credential.note, sealed?.keyID, sealed?.nonce, sealed?.box, credential.expiresAt, credential.isKept)
    }

    func drop(credentialOf owner: String, of queue: QueueTarget) throws {
        try sql.run("DELETE FROM credentials WHERE upstream = ? AND owner = ?", queue.number, owner)
    }

    /// Deletes the secret immediately. The credential may have been replaced since it was sent.
    func refuse(credentialOf owner: String, version: Int64, of queue: QueueTarget) throws {
        try sql.run(
            """
            UPDATE credentials SET isRefused = TRUE, keyId = NULL, nonce = NULL, sealed = NULL
            WHERE upstream = ? AND owner = ? AND version = ?
            """, queue.number, owner, version)
        try sql.run(
            "UPDATE formerCredentials SET isRefused = TRUE WHERE upstream = ? AND owner = ? AND version = ?",
            queue.number, owner, version)
    }

    /// Records the digest of an owner's previous credential.
    private func retire(_ owner: String, isRefused: Bool, at now: Timestamp, of queue: QueueTarget) throws {
        try sql.run(
            """
            INSERT INTO formerCredentials (upstream, owner, digest, version, isRefused, atMs)
            SELECT upstream, owner, digest, version, isRefused OR ?, ? FROM credentials
            WHERE upstream = ? AND owner = ?
            ON CONFLICT (upstream, owner, digest) DO UPDATE SET version = excluded.version,
              isRefused = excluded.isRefused, atMs = excluded.atMs
            """, isRefused, now, queue.number, owner)
    }

    /// Records the digest of a credential that is not held because it has expired.
    private func remember(expired credential: Credential, at now: Timestamp, of queue: QueueTarget) throws {
        let vault = outbox.vault
        try sql.run(
            """
            INSERT INTO formerCredentials (upstream, owner, digest, version, isRefused, atMs)
            VALUES (?, ?, ?, ?, TRUE, ?)
            ON CONFLICT (upstream, owner, digest) DO UPDATE SET version = excluded.version, isRefused = TRUE,
              atMs = excluded.atMs
            """, queue.number, credential.owner,
            vault.digest(of: credential.value, upstream: queue.number, owner: credential.owner),
            writer.nextVersion(in: sql), now)
    }

    /// Deletes a credential with the last message that is queued for its owner, unless it is to be kept.
    func dropUnneededCredentials() throws {
        guard !touchedOwners.isEmpty else { return }
        let now = outbox.time.now
        for owner in touchedOwners {
            guard let queue = outbox.target(owner.upstream) else { continue }
            guard try isUnneeded(owner) else { continue }
            let held = try state(of: queue).credential(of: owner.name)
            try retire(owner.name, isRefused: held.map { !$0.isUsable(at: now) } ?? false, at: now, of: queue)
            try drop(credentialOf: owner.name, of: queue)
            // If nothing is queued, nothing is in flight, so no response can reject a previous one any more.
            try sql.run(
                "DELETE FROM formerCredentials WHERE upstream = ? AND owner = ? AND NOT isRefused",
                owner.upstream, owner.name)
        }
        touchedOwners = []
    }
    /// Whether nothing is queued for the owner of a credential that is not to be kept. Lanes have rows as long as something
    /// is, unless they are admitted later.
    private func isUnneeded(_ owner: CredentialOwner) throws -> Bool {
        guard sql.admitsLate else {
            return try sql.exists(
                """
                SELECT 1 FROM credentials WHERE upstream = ?1 AND owner = ?2 AND NOT isKept
                  AND NOT EXISTS (SELECT 1 FROM lanes
                    WHERE upstream = ?1 AND (laneGroup = ?2 OR (laneGroup IS NULL AND name = ?2)))
                """, owner.upstream, owner.name)
        }
        return try sql.exists(
            """
            SELECT 1 FROM credentials WHERE upstream = ?1 AND owner = ?2 AND NOT isKept
              AND NOT EXISTS (SELECT 1 FROM queue_# WHERE laneGroup = ?2)
              AND NOT EXISTS (SELECT 1 FROM queue_# WHERE lane = ?3 AND laneName = ?2 AND laneGroup IS NULL)
            """, of: owner.upstream, owner.upstream, owner.name, Lane.number(of: owner.name, in: owner.upstream))
    }
}
