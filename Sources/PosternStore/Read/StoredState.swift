import PosternCore
import PosternUpstream

/// The state of one upstream, read inside a transaction or on a snapshot.
struct StoredState {
    let upstream: UpstreamNumber
    private let source: Source
    let vault: Vault
    /// The writer's state of the upstream during its transaction; nil for readers.
    private let writeState: UpstreamWriteState?

    private enum Source {
        case transaction(SQL)
        /// Types without state read nothing, and no transaction begins for them.
        case snapshot(LazySnapshot)
    }

    private var sql: SQL {
        get throws {
            switch source {
            case .transaction(let sql): sql
            case .snapshot(let snapshot): try snapshot.sql
            }
        }
    }

    init(upstream: UpstreamNumber, sql: SQL, vault: Vault, writeState: UpstreamWriteState? = nil) {
        (self.upstream, source, self.vault, self.writeState) = (upstream, .transaction(sql), vault, writeState)
    }

    init(upstream: UpstreamNumber, snapshot: LazySnapshot, vault: Vault) {
        (self.upstream, source, self.vault, writeState) = (upstream, .snapshot(snapshot), vault, nil)
    }

    func value(of key: String) throws -> [UInt8]? {
        try sql.value("SELECT value FROM state WHERE upstream = ? AND key = ?", upstream, key, as: [UInt8].self)
    }

    /// `0` follows `/` in ASCII, which is how SQLite compares texts: byte by byte.
    func values(below key: String, atMost most: Int) throws -> [(key: String, value: [UInt8])] {
        try sql.all(
            "SELECT key, value FROM state WHERE upstream = ? AND key >= ? AND key < ? ORDER BY key LIMIT ?",
            upstream, key + "/", key + "0", most
        ) { row in (key: row[0], value: row[1]) }
    }

    func queued(inLane name: String, atMost most: Int) throws -> Int {
        guard let writeState else { return try count(name, atMost: most) }
        return try writeState.laneCounts.count(of: name, atMost: most) { try count(name, atMost: $0) }
    }

    private func count(_ name: String, atMost most: Int) throws -> Int {
        try writeState?.rows.write(to: upstream, with: sql)
        if try sql.admitsLate {
            return try sql.value(
                "SELECT count(*) FROM (SELECT 1 FROM queue_# WHERE lane = ? AND laneName = ? LIMIT ?) AS counted",
                of: upstream, Lane.number(of: name, in: upstream), name, most, as: Int.self) ?? 0
        }
        return try sql.value(
            """
            SELECT count(*) FROM (SELECT 1 FROM queue_#
              WHERE lane = (SELECT number FROM lanes WHERE upstream = ? AND name = ?) LIMIT ?) AS counted
            """, of: upstream, upstream, name, most, as: Int.self) ?? 0
    }

    var draft: StateChange.Draft? { writeState?.draft }

    func isQueued(_ id: MessageID) throws -> Bool {
        try writeState?.rows.write(to: upstream, with: sql)
        return try id.upstream == upstream && sql.exists("SELECT 1 FROM queued_# WHERE id = ?", of: upstream, id)
    }

    // MARK: Credentials

    func credential(of owner: String) throws -> HeldCredential? {
        let held = try sql.first(
            """
            SELECT version, note, keyId, nonce, sealed, expiresAtMs, isRefused FROM credentials
            WHERE upstream = ? AND owner = ?
            """, upstream, owner
        ) { row -> HeldCredential? in
            let sealed = (row[2] as String?).map { Vault.Sealed(keyID: $0, nonce: row[3], box: row[4]) }
            let credentialKey = Vault.CredentialKey(upstream: upstream, owner: owner, version: row[0])
            let isRefused: Bool = row[6]
            let opened = sealed.flatMap { vault.value($0, at: credentialKey) }
            guard let value = isRefused ? [] : opened else { return nil }
            return HeldCredential(
                value: value, note: row[1], version: credentialKey.version, expiresAt: row[5], isRefused: isRefused)
        }
        return held ?? nil
    }

    func wasRefused(_ credential: Credential) throws -> Bool {
        let digests = vault.digests(of: credential.value, upstream: upstream, owner: credential.owner)
        return try digests.contains { digest in
            try sql.exists(
                """
                SELECT 1 FROM credentials WHERE upstream = ?1 AND owner = ?2 AND digest = ?3 AND isRefused
                UNION ALL
                SELECT 1 FROM formerCredentials WHERE upstream = ?1 AND owner = ?2 AND digest = ?3 AND isRefused
                """, upstream, credential.owner, digest)
        }
    }
}

extension StoredState {
    /// Runs what an upstream decides on this state. Throws if a read failed meanwhile: what it decided is void then.
    func decide<T>(_ body: (any UpstreamState) throws -> T) throws -> T {
        let checked = CheckedState(self)
        let result = Result { try body(checked) }
        if let failure = checked.failure { throw failure }
        return try result.get()
    }
}

/// The state as an upstream reads it: a read that fails is noted.
private final class CheckedState: UpstreamState {
    private let stored: StoredState
    private(set) var failure: (any Error)?

    init(_ stored: StoredState) { self.stored = stored }

    private func read<T>(_ nothing: T, _ read: (StoredState) throws -> T) -> T {
        do {
            return try read(stored)
        } catch {
            failure = failure ?? error
            return nothing
        }
    }

    func value(of key: String) -> [UInt8]? { read(nil) { try $0.value(of: key) } }
    func values(below key: String, atMost most: Int) -> [(key: String, value: [UInt8])] {
        read([]) { try $0.values(below: key, atMost: most) }
    }
    func queued(inLane name: String, atMost most: Int) -> Int {
        read(0) { try $0.queued(inLane: name, atMost: most) }
    }
    func isQueued(_ id: MessageID) -> Bool { read(false) { try $0.isQueued(id) } }
    func credential(of owner: String) -> HeldCredential? { read(nil) { try $0.credential(of: owner) } }
    func wasRefused(_ credential: Credential) -> Bool { read(false) { try $0.wasRefused(credential) } }
    var draft: StateChange.Draft? { stored.draft }
}
