import Foundation
import GRDB
import PosternCore

/// Whose credential it is.
struct CredentialOwner: Hashable {
    let upstream: UpstreamNumber
    let name: String
}

extension Transaction {
    func state(of queue: UpstreamQueue) -> StoredState {
        StoredState(upstream: queue.number, db: db, vault: outbox.vault)
    }

    /// Holds a credential in the place of its owner's former one, and lets the owner's lanes go on if it is another.
    /// False when it was turned down before: then the former one stays, if there is one.
    @discardableResult
    func hold(_ credential: Credential, of queue: UpstreamQueue) throws -> Bool {
        touchedOwners.insert(CredentialOwner(upstream: queue.number, name: credential.owner))
        let state = state(of: queue)
        let now = outbox.time.now
        guard try !state.wasRefused(credential) else { return false }
        if let held = try state.credential(of: credential.owner) {
            if held.value == credential.value {
                guard held.isUsable(at: now) else { return false }
                try describeAnew(credential, of: queue)
                return true
            }
            try retire(credential.owner, isRefused: !held.isUsable(at: now), at: now, of: queue)
        }
        try insert(credential, of: queue)
        try release(group: credential.owner, of: queue)
        return true
    }

    private func describeAnew(_ credential: Credential, of queue: UpstreamQueue) throws {
        try db.cachedStatement(
            sql: """
                UPDATE credentials SET note = ?, expiresAtMs = coalesce(?, expiresAtMs), isKept = ?
                WHERE upstream = ? AND owner = ?
                """
        ).execute(arguments: [
            credential.note, credential.expiresAt?.milliseconds, credential.isKept, queue.number.rawValue,
            credential.owner,
        ])
    }

    private func insert(_ credential: Credential, of queue: UpstreamQueue) throws {
        let vault = outbox.vault
        let owner = credential.owner
        let version = vault.nextVersion()
        let sealed = try vault.put(
            credential.value, at: .init(upstream: queue.number, owner: owner, version: version))
        try db.cachedStatement(
            sql: """
                INSERT OR REPLACE INTO credentials
                  (upstream, owner, version, digest, note, keyId, nonce, sealed, expiresAtMs, isKept)
                VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
                """
        ).execute(arguments: [
            queue.number.rawValue, owner, version,
            vault.digest(of: credential.value, upstream: queue.number, owner: owner).data, credential.note,
            sealed?.keyID, sealed?.nonce.data, sealed?.box.data, credential.expiresAt?.milliseconds,
            credential.isKept,
        ])
    }

    func drop(credentialOf owner: String, of queue: UpstreamQueue) throws {
        try db.cachedStatement(sql: "DELETE FROM credentials WHERE upstream = ? AND owner = ?")
            .execute(arguments: [queue.number.rawValue, owner])
    }

    /// Its value goes at once. It may be one that was replaced since it was sent.
    func refuse(credentialOf owner: String, version: Int64, of queue: UpstreamQueue) throws {
        let place: StatementArguments = [queue.number.rawValue, owner, version]
        try db.cachedStatement(
            sql: """
                UPDATE credentials SET isRefused = 1, keyId = NULL, nonce = NULL, sealed = NULL
                WHERE upstream = ? AND owner = ? AND version = ?
                """
        ).execute(arguments: place)
        try db.cachedStatement(
            sql: "UPDATE formerCredentials SET isRefused = 1 WHERE upstream = ? AND owner = ? AND version = ?"
        ).execute(arguments: place)
    }

    /// Remembers, without its value, the credential that an owner has had.
    private func retire(_ owner: String, isRefused: Bool, at now: Timestamp, of queue: UpstreamQueue) throws {
        try db.cachedStatement(
            sql: """
                INSERT OR REPLACE INTO formerCredentials (upstream, owner, digest, version, isRefused, atMs)
                SELECT upstream, owner, digest, version, isRefused OR ?, ? FROM credentials
                WHERE upstream = ? AND owner = ?
                """
        ).execute(arguments: [isRefused, now.milliseconds, queue.number.rawValue, owner])
    }

    /// A credential goes with the last message that is queued for its owner, unless it is to be kept.
    func dropUnneededCredentials() throws {
        guard !touchedOwners.isEmpty else { return }
        let now = outbox.time.now
        for owner in touchedOwners {
            guard let queue = outbox.queue(owner.upstream) else { continue }
            let place: StatementArguments = [owner.upstream.rawValue, owner.name]
            let isUnneeded = try Bool.fetchOne(
                db.cachedStatement(
                    sql: """
                        SELECT EXISTS (SELECT 1 FROM credentials WHERE upstream = ?1 AND owner = ?2 AND isKept = 0)
                          AND NOT EXISTS (SELECT 1 FROM lanes
                            WHERE upstream = ?1 AND (laneGroup = ?2 OR (laneGroup IS NULL AND name = ?2)))
                        """), arguments: place)
            guard isUnneeded == true else { continue }
            let held = try state(of: queue).credential(of: owner.name)
            try retire(owner.name, isRefused: held.map { !$0.isUsable(at: now) } ?? false, at: now, of: queue)
            try drop(credentialOf: owner.name, of: queue)
            // With nothing queued nothing is under way: no answer can refuse a former one any more.
            try db.cachedStatement(
                sql: "DELETE FROM formerCredentials WHERE upstream = ? AND owner = ? AND isRefused = 0"
            ).execute(arguments: place)
        }
        touchedOwners = []
    }
}

extension StoredState {
    func credential(of owner: String) throws -> HeldCredential? {
        let sql = """
            SELECT version, note, keyId, nonce, sealed, expiresAtMs, isRefused FROM credentials
            WHERE upstream = ? AND owner = ?
            """
        let statement = try db.cachedStatement(sql: sql)
        statement.bind(Int64(upstream.rawValue), at: 1)
        statement.bind(owner, at: 2)
        var found: HeldCredential?
        try statement.forEachRow(in: db) { row in
            let sealed = row.text(2).map {
                Vault.Sealed(keyID: $0, nonce: row.bytes(3) ?? [], box: row.bytes(4) ?? [])
            }
            let place = Vault.Place(upstream: upstream, owner: owner, version: row.integer(0))
            let isRefused = row.integer(6) != 0
            guard let value = isRefused ? [] : vault.value(sealed, at: place) else { return false }
            found = HeldCredential(
                value: value, note: row.text(1) ?? "", version: place.version,
                expiresAt: row.integerOrNil(5).map(Timestamp.init(milliseconds:)), isRefused: isRefused)
            return false
        }
        return found
    }

    func wasRefused(_ credential: Credential) throws -> Bool {
        let digests = vault.digests(of: credential.value, upstream: upstream, owner: credential.owner)
        return try digests.contains { digest in
            try ["credentials", "formerCredentials"].contains { table in
                let sql = """
                    SELECT 1 FROM \(table) WHERE upstream = ? AND owner = ? AND digest = ? AND isRefused
                    """
                let statement = try db.cachedStatement(sql: sql)
                statement.bind(Int64(upstream.rawValue), at: 1)
                statement.bind(credential.owner, at: 2)
                statement.bind(digest, at: 3)
                var isThere = false
                try statement.forEachRow(in: db) { _ in
                    isThere = true
                    return false
                }
                return isThere
            }
        }
    }

    var keepsCredentials: Bool { vault.isDurable }

    func isQueued(_ id: MessageID) throws -> Bool {
        guard id.upstream == upstream else { return false }
        let statement = try db.cachedStatement(sql: "SELECT 1 FROM queue_\(upstream.rawValue) WHERE id = ?")
        statement.bind(id.rawValue, at: 1)
        var isThere = false
        try statement.forEachRow(in: db) { _ in
            isThere = true
            return false
        }
        return isThere
    }

    static func bytes(_ data: Data?) -> [UInt8] { data.map { Array($0) } ?? [] }
}
