import PosternCore

/// The schema, version by version. A released migration is never changed; a later one is added.
enum Migrations {
    /// "PSTN": marks the file as ours (https://www.sqlite.org/pragma.html#pragma_application_id).
    static let applicationID = 0x5053_544E

    private struct Migration: Sendable {
        let identifier: String
        let apply: @Sendable (SQL) throws -> Void
    }

    /// Applies those that the store does not have, each in a transaction of its own. If it throws, close the connection.
    ///
    /// The name of the table is that of GRDB, which applied them to the first stores.
    static func apply(with sql: SQL) throws {
        try sql.run("CREATE TABLE IF NOT EXISTS grdb_migrations (identifier TEXT NOT NULL PRIMARY KEY)")
        let applied = try applied(with: sql)
        // For a migration that replaces a table (https://www.sqlite.org/lang_altertable.html#otheralter).
        try sql.run("PRAGMA foreign_keys = OFF")
        for migration in all where !applied.contains(migration.identifier) {
            try sql.transaction(.write) {
                try migration.apply(sql)
                try sql.run("INSERT INTO grdb_migrations (identifier) VALUES (?)", migration.identifier)
                guard try !sql.exists("PRAGMA foreign_key_check") else {
                    throw StoreError.failed(detail: "migration \(migration.identifier) violates a foreign key")
                }
            }
        }
        try sql.run("PRAGMA foreign_keys = ON")
    }

    /// How many there are: the format of a store in PostgreSQL (`PostgresSchema`), where the tables are made by the same ones.
    static var format: Int { all.count }
    /// The oldest format of a program that can work with such a store. A migration that older programs need not know leaves it.
    static let minFormat = 9

    /// Applies those that a store in PostgreSQL does not have, inside a transaction.
    static func apply(after format: Int, with sql: SQL) throws {
        for migration in all[format...] { try migration.apply(sql) }
    }

    /// Whether the store has one that this version does not know.
    static func isNewer(_ sql: SQL) throws -> Bool { try !applied(with: sql).isSubset(of: all.map(\.identifier)) }

    // MARK: A store that was moved

    private static let moved = "moved to "

    /// Marks a file whose store was moved. The mark is an entry of its migrations, so that versions that do not know it refuse
    /// the file, too.
    static func markAsMoved(to place: String, with sql: SQL) throws {
        try sql.run("INSERT INTO grdb_migrations (identifier) VALUES (?)", moved + place)
    }

    /// Where the store was moved to; nil if it was not.
    static func placeMovedTo(_ sql: SQL) throws -> String? {
        try applied(with: sql).first { $0.hasPrefix(moved) }.map { String($0.dropFirst(moved.count)) }
    }

    private static func applied(with sql: SQL) throws -> Set<String> {
        guard try sql.exists("SELECT 1 FROM sqlite_master WHERE name = 'grdb_migrations'") else { return [] }
        return Set(try sql.all("SELECT identifier FROM grdb_migrations") { $0[0] as String })
    }

    private static let all = [
        Migration(identifier: "1 outbox") { sql in
            if !sql.isPostgres { try createFileTables(with: sql) }
            try sql.script(
                """
                CREATE TABLE upstreams (
                  number INTEGER PRIMARY KEY CHECK (number BETWEEN 1 AND 255),
                  name TEXT NOT NULL UNIQUE,
                  type TEXT NOT NULL,
                  circuit TEXT NOT NULL DEFAULT '{"failures":0}',
                  isPaused INTEGER NOT NULL DEFAULT 0,
                  lastId INTEGER NOT NULL DEFAULT 0,
                  accepted INTEGER NOT NULL DEFAULT 0,
                  queued INTEGER NOT NULL DEFAULT 0,
                  queuedBytes INTEGER NOT NULL DEFAULT 0,
                  delivered INTEGER NOT NULL DEFAULT 0,
                  failed INTEGER NOT NULL DEFAULT 0,
                  cancelled INTEGER NOT NULL DEFAULT 0,
                  dropped INTEGER NOT NULL DEFAULT 0,
                  expired INTEGER NOT NULL DEFAULT 0,
                  purgedDelivered INTEGER NOT NULL DEFAULT 0,
                  purgedFailed INTEGER NOT NULL DEFAULT 0,
                  purgedCancelled INTEGER NOT NULL DEFAULT 0,
                  purgedDropped INTEGER NOT NULL DEFAULT 0,
                  purgedExpired INTEGER NOT NULL DEFAULT 0,
                  ambiguousSends INTEGER NOT NULL DEFAULT 0,
                  flushedThrough INTEGER NOT NULL DEFAULT 0
                ) STRICT;
                CREATE TABLE kinds (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;
                CREATE TABLE attempts (
                  batch INTEGER PRIMARY KEY,
                  upstream INTEGER NOT NULL,
                  startedAtMs INTEGER NOT NULL,
                  endedAtMs INTEGER,
                  outcome TEXT,
                  status INTEGER,
                  detail TEXT,
                  firstId INTEGER NOT NULL,
                  lastId INTEGER NOT NULL,
                  ids BLOB NOT NULL
                ) STRICT;
                CREATE INDEX attemptsUnderWay ON attempts (batch) WHERE endedAtMs IS NULL;
                CREATE INDEX attemptsOfMessages ON attempts (upstream, lastId);
                CREATE TABLE state (
                  upstream INTEGER NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL, expiresAtMs INTEGER, lane TEXT,
                  PRIMARY KEY (upstream, key)
                ) STRICT, WITHOUT ROWID;
                CREATE INDEX stateExpiring ON state (expiresAtMs) WHERE expiresAtMs IS NOT NULL;
                CREATE TABLE lanes (
                  number INTEGER PRIMARY KEY,
                  upstream INTEGER NOT NULL,
                  name TEXT NOT NULL,
                  laneGroup TEXT,
                  readyAtMs INTEGER,
                  isHeld INTEGER NOT NULL DEFAULT 0,
                  isParked INTEGER NOT NULL DEFAULT 0,
                  failures INTEGER NOT NULL DEFAULT 0,
                  waitingFor TEXT,
                  wakes INTEGER NOT NULL DEFAULT 0,
                  UNIQUE (upstream, name)
                ) STRICT;
                CREATE INDEX lanesReady ON lanes (upstream, readyAtMs) WHERE readyAtMs IS NOT NULL;
                CREATE INDEX lanesOfGroup ON lanes (upstream, laneGroup) WHERE laneGroup IS NOT NULL;
                CREATE TABLE credentials (
                  upstream INTEGER NOT NULL,
                  owner TEXT NOT NULL,
                  version INTEGER NOT NULL,
                  digest BLOB NOT NULL,
                  note TEXT NOT NULL,
                  keyId TEXT,
                  nonce BLOB,
                  sealed BLOB,
                  expiresAtMs INTEGER,
                  isRefused INTEGER NOT NULL DEFAULT 0,
                  isKept INTEGER NOT NULL DEFAULT 0,
                  PRIMARY KEY (upstream, owner)
                ) STRICT, WITHOUT ROWID;
                CREATE INDEX credentialsExpiring ON credentials (expiresAtMs) WHERE expiresAtMs IS NOT NULL;
                -- Remembers, by digest, which credentials are not to be used again, and which version was which.
                CREATE TABLE formerCredentials (
                  upstream INTEGER NOT NULL,
                  owner TEXT NOT NULL,
                  digest BLOB NOT NULL,
                  version INTEGER NOT NULL,
                  isRefused INTEGER NOT NULL,
                  atMs INTEGER NOT NULL,
                  PRIMARY KEY (upstream, owner, digest)
                ) STRICT, WITHOUT ROWID;
                CREATE INDEX formerCredentialsByAge ON formerCredentials (atMs);
                -- Responses to requests with an Idempotency-Key.
                CREATE TABLE responses (
                  key BLOB PRIMARY KEY,
                  fingerprint BLOB NOT NULL,
                  createdAtMs INTEGER NOT NULL,
                  response BLOB NOT NULL
                ) STRICT, WITHOUT ROWID;
                CREATE INDEX responsesByAge ON responses (createdAtMs);
                """)
        },
        Migration(identifier: "2 steps") { sql in
            try sql.script("ALTER TABLE attempts ADD COLUMN step TEXT")
        },
        Migration(identifier: "3 lanes") { sql in
            // The index by lane had no times: what is due was found by reading all that is scheduled.
            for number in try sql.all("SELECT number FROM upstreams", read: { $0[0] as UpstreamNumber }) {
                guard try LaneRule(stored: number, with: sql) == .perLane else { continue }
                try sql.script("DROP INDEX queue_#_lane", of: number)
                try createLaneIndex(of: number, with: sql)
            }
        },
        Migration(identifier: "4 traces") { sql in
            // Version 0.1.0 had the first migration without what follows, which was added to it later.
            try sql.script(
                """
                CREATE TABLE IF NOT EXISTS responses (
                  key BLOB PRIMARY KEY,
                  fingerprint BLOB NOT NULL,
                  createdAtMs INTEGER NOT NULL,
                  response BLOB NOT NULL
                ) STRICT, WITHOUT ROWID;
                CREATE INDEX IF NOT EXISTS responsesByAge ON responses (createdAtMs);
                """)
            for number in try sql.all("SELECT number FROM upstreams", read: { $0[0] as UpstreamNumber }) {
                let knowsTraces = try sql.exists(
                    "SELECT 1 FROM pragma_table_info('queue_#') WHERE name = 'traceParent'", of: number)
                guard !knowsTraces else { continue }
                try sql.run("ALTER TABLE queue_# ADD COLUMN traceParent TEXT", of: number)
                try sql.run("ALTER TABLE ended_# ADD COLUMN traceParent TEXT", of: number)
            }
        },
        Migration(identifier: "5 pauses") { sql in
            try sql.script("ALTER TABLE upstreams ADD COLUMN pausedBy TEXT")
            try sql.script("ALTER TABLE upstreams ADD COLUMN pausedAtMs INTEGER")
        },
        // Changes no table: versions that know it count the messages behind `lastId` themselves (`Ledger.tail`), and take the
        // size of pages from the store.
        Migration(identifier: "6 tails") { _ in },
        Migration(identifier: "7 blocks") { sql in
            for number in try sql.all("SELECT number FROM upstreams", read: { $0[0] as UpstreamNumber }) {
                try createBlocks(of: number, with: sql)
            }
        },
        Migration(identifier: "8 turns") { sql in
            try sql.script("ALTER TABLE lanes ADD COLUMN turn INTEGER NOT NULL DEFAULT 0")
            for number in try sql.all("SELECT number FROM upstreams", read: { $0[0] as UpstreamNumber }) {
                try sql.run("ALTER TABLE queue_# ADD COLUMN turn INTEGER NOT NULL DEFAULT 0", of: number)
                // Of a store without blocks, the migration before this one has made them with it.
                let isKnown = try sql.exists(
                    "SELECT 1 FROM pragma_table_info('blocks_#') WHERE name = 'turn'", of: number)
                if !isKnown {
                    try sql.run("ALTER TABLE blocks_# ADD COLUMN turn INTEGER NOT NULL DEFAULT 0", of: number)
                }
            }
        },
        Migration(identifier: "9 replay") { sql in
            try createReplays(with: sql)
            for number in try sql.all("SELECT number FROM upstreams", read: { $0[0] as UpstreamNumber }) {
                try createPayloads(of: number, with: sql)
            }
        },
        // In PostgreSQL, the entry of another kind of index has at most 2704 bytes, and the name of a lane may be longer. That
        // each has one row is up to the only writer.
        Migration(identifier: "10 long lanes") { sql in
            guard sql.isPostgres else { return }
            try sql.script(
                """
                ALTER TABLE lanes DROP CONSTRAINT lanes_upstream_name_key;
                CREATE INDEX lanesByName ON lanes USING hash (name);
                """)
        },
        // The file from which the store is being moved here, until it is complete (`StoreMove`).
        Migration(identifier: "11 move") { sql in
            if sql.isPostgres { try sql.script("ALTER TABLE store ADD COLUMN movingFrom TEXT") }
        },
        // Receipts tell which messages are from an SDK. So do the heads of blocks, whose format has room for it.
        Migration(identifier: "12 SDKs") { sql in
            for number in try sql.all("SELECT number FROM upstreams", read: { $0[0] as UpstreamNumber }) {
                try sql.script(
                    """
                    ALTER TABLE delivered_# ADD COLUMN tried INTEGER NOT NULL DEFAULT 0;
                    DROP VIEW queued_#;
                    DROP VIEW received_#;
                    """, of: number)
                try createViews(of: number, with: sql)
            }
        },
    ]

    private static func createFileTables(with sql: SQL) throws {
        try sql.run("PRAGMA application_id = 0x5053544E")
        try sql.script(
            """
            -- Pages that are kept for deliveries on a full disk; see DiskReserve.
            CREATE TABLE reserve (bytes BLOB NOT NULL) STRICT;
            CREATE TABLE store (
              sequence INTEGER NOT NULL, batch INTEGER NOT NULL,
              -- Counts commits that failed and were overwritten.
              undone INTEGER NOT NULL DEFAULT 0
            ) STRICT;
            """)
    }

    /// Three tables for each upstream, so that a backlog of one does not slow down another, and appending needs no
    /// second index. `queue` contains the queued messages, `delivered` the receipts, and `ended` the rest, including
    /// payloads. The payload is the last column: SQLite reads columns after it only through all its pages.
    static func createTables(of number: UpstreamNumber, with sql: SQL) throws {
        try sql.script(
            """
            CREATE TABLE IF NOT EXISTS queue_# (
              id INTEGER PRIMARY KEY,
              kind INTEGER NOT NULL,
              lane INTEGER NOT NULL,
              acceptedAtMs INTEGER NOT NULL,
              waiting INTEGER NOT NULL DEFAULT 0,
              nextAttemptAtMs INTEGER,
              expiresAtMs INTEGER,
              attempts INTEGER NOT NULL DEFAULT 0,
              key TEXT,
              lastError TEXT,
              progress BLOB,
              tried INTEGER NOT NULL DEFAULT 0, -- 1: wasTried, 2: wasRetried, 4: requeued, 8: isCallback
              traceParent TEXT,
              turn INTEGER NOT NULL DEFAULT 0,
              checksum INTEGER NOT NULL,
              payload BLOB NOT NULL
            ) STRICT;
            CREATE INDEX IF NOT EXISTS queue_#_waiting ON queue_# (waiting, nextAttemptAtMs)
              WHERE nextAttemptAtMs IS NOT NULL;
            CREATE INDEX IF NOT EXISTS queue_#_expiring ON queue_# (expiresAtMs)
              WHERE expiresAtMs IS NOT NULL;
            CREATE TABLE IF NOT EXISTS delivered_# (
              id INTEGER PRIMARY KEY,
              kind INTEGER NOT NULL,
              acceptedAtMs INTEGER NOT NULL,
              settledAtMs INTEGER NOT NULL,
              attempts INTEGER NOT NULL,
              key TEXT,
              result BLOB,
              tried INTEGER NOT NULL DEFAULT 0
            ) STRICT;
            CREATE TABLE IF NOT EXISTS ended_# (
              id INTEGER PRIMARY KEY,
              state INTEGER NOT NULL,
              kind INTEGER NOT NULL,
              lane TEXT NOT NULL,
              laneGroup TEXT,
              acceptedAtMs INTEGER NOT NULL,
              settledAtMs INTEGER NOT NULL,
              expiresAtMs INTEGER,
              attempts INTEGER NOT NULL,
              key TEXT,
              lastError TEXT,
              progress BLOB,
              tried INTEGER NOT NULL DEFAULT 0,
              traceParent TEXT,
              result BLOB,
              checksum INTEGER NOT NULL,
              payload BLOB
            ) STRICT;
            CREATE INDEX IF NOT EXISTS ended_#_settled ON ended_# (settledAtMs);
            """, of: number)
    }

    /// What keeps many messages in one row: those of one commit that are queued, and of which nothing else is known
    /// (`BlockDraft`), and their receipts. The views show all messages, one by one. SQLite reads both parts of a view in the
    /// order of ids, and no further than necessary, only if their columns have the same affinities.
    ///
    /// - Parameters:
    ///   - scope: `TEMP ` for a connection that only reads.
    ///   - flags: What the view of receipts has as `tried` of those with a row of their own.
    static func createBlocks(
        of number: UpstreamNumber, _ scope: String = "", flags: String = "tried", with sql: SQL
    ) throws {
        let upstream = number
        let number = number.rawValue
        try sql.execute(
            """
            CREATE \(scope)TABLE IF NOT EXISTS blocks_\(number) (
              first INTEGER PRIMARY KEY,
              last INTEGER NOT NULL,
              count INTEGER NOT NULL,
              bytes INTEGER NOT NULL,
              acceptedAtMs INTEGER NOT NULL,
              turn INTEGER NOT NULL DEFAULT 0,
              heads BLOB NOT NULL,
              payloads BLOB NOT NULL
            ) STRICT;
            CREATE \(scope)TABLE IF NOT EXISTS receipts_\(number) (
              first INTEGER PRIMARY KEY,
              last INTEGER NOT NULL,
              count INTEGER NOT NULL,
              acceptedAtMs INTEGER NOT NULL,
              settledAtMs INTEGER NOT NULL,
              result BLOB,
              heads BLOB NOT NULL
            ) STRICT;
            """)
        try createViews(of: upstream, scope, flags: flags, with: sql)
    }

    private static func createViews(
        of number: UpstreamNumber, _ scope: String = "", flags: String = "tried", with sql: SQL
    ) throws {
        if sql.isPostgres { return try createViewsOfRows(of: number, with: sql) }
        let number = number.rawValue
        try sql.execute(
            """
            CREATE \(scope)VIEW IF NOT EXISTS queued_\(number) AS
              SELECT id, kind, lane, acceptedAtMs, waiting, nextAttemptAtMs, expiresAtMs, attempts, key, lastError, progress,
                tried, traceParent, checksum, CAST(length(payload) AS INTEGER) AS size, payload FROM queue_\(number)
              UNION ALL SELECT rowid, kind, lane, acceptedAtMs, CAST(0 AS INTEGER), CAST(NULL AS INTEGER),
                CAST(NULL AS INTEGER), CAST(0 AS INTEGER), key, CAST(NULL AS TEXT), CAST(NULL AS BLOB), tried,
                CAST(NULL AS TEXT), checksum, size, payload FROM postern_queued(\(number));
            CREATE \(scope)VIEW IF NOT EXISTS received_\(number) AS
              SELECT id, kind, acceptedAtMs, settledAtMs, attempts, key, result, \(flags) AS tried FROM delivered_\(number)
              UNION ALL SELECT rowid, kind, acceptedAtMs, settledAtMs, CAST(1 AS INTEGER), key, result, tried
                FROM postern_received(\(number));
            """)
    }

    /// The views where nothing is stored in blocks.
    private static func createViewsOfRows(of number: UpstreamNumber, with sql: SQL) throws {
        try sql.script(
            """
            CREATE OR REPLACE VIEW queued_# AS
              SELECT id, kind, lane, acceptedAtMs, waiting, nextAttemptAtMs, expiresAtMs, attempts, key, lastError, progress,
                tried, traceParent, checksum, length(payload)::bigint AS size, payload FROM queue_#;
            CREATE OR REPLACE VIEW received_# AS
              SELECT id, kind, acceptedAtMs, settledAtMs, attempts, key, result, tried FROM delivered_#;
            """, of: number)
    }

    /// What keeps the payloads of delivered messages, each alone, or those of a block with its heads. They have a table of
    /// their own, so that receipts cost the same whether payloads are kept or not.
    static func createPayloads(of number: UpstreamNumber, _ scope: String = "", with sql: SQL) throws {
        let number = number.rawValue
        try sql.execute(
            """
            CREATE \(scope)TABLE IF NOT EXISTS payloads_\(number) (
              first INTEGER PRIMARY KEY,
              last INTEGER NOT NULL,
              acceptedAtMs INTEGER NOT NULL,
              settledAtMs INTEGER NOT NULL,
              checksum INTEGER, -- of a payload alone
              heads BLOB,
              payloads BLOB NOT NULL
            ) STRICT;
            CREATE INDEX IF NOT EXISTS payloads_\(number)_settled ON payloads_\(number) (settledAtMs);
            """)
    }

    /// What is replayed, and which message is a copy of which.
    static func createReplays(_ scope: String = "", with sql: SQL) throws {
        try sql.execute(
            """
            CREATE \(scope)TABLE IF NOT EXISTS replays (
              number INTEGER PRIMARY KEY,
              id TEXT NOT NULL UNIQUE,
              finishedAtMs INTEGER,
              record TEXT NOT NULL
            ) STRICT;
            CREATE \(scope)TABLE IF NOT EXISTS replayed (
              id INTEGER PRIMARY KEY,
              replay INTEGER NOT NULL,
              original INTEGER NOT NULL,
              UNIQUE (replay, original)
            ) STRICT;
            """)
    }

    /// Lets a store of a release without blocks, replays, or flags of receipts be read without being changed.
    static func showWhatIsMissing(with sql: SQL) throws {
        guard try sql.value("PRAGMA application_id", as: Int.self) == applicationID else { return }
        let applied = try applied(with: sql)
        let (lacksReplays, lacksBlocks) = (!applied.contains("9 replay"), !applied.contains("7 blocks"))
        let lacksFlags = !applied.contains("12 SDKs")
        guard lacksReplays || lacksBlocks || lacksFlags else { return }
        if lacksReplays { try createReplays("TEMP ", with: sql) }
        for number in try sql.all("SELECT number FROM upstreams", read: { $0[0] as UpstreamNumber }) {
            if lacksReplays { try createPayloads(of: number, "TEMP ", with: sql) }
            let flags = lacksFlags ? "CAST(0 AS INTEGER)" : "tried"
            if lacksBlocks {
                try createBlocks(of: number, "TEMP ", flags: flags, with: sql)
            } else if lacksFlags {
                try createViews(of: number, "TEMP ", flags: flags, with: sql)
            }
        }
    }

    /// The index by which batches of one lane are found: by id what waits for no time, and by time what is scheduled.
    /// Upstreams with mixed lanes do not need it.
    static func createLaneIndex(of number: UpstreamNumber, with sql: SQL) throws {
        try sql.script(
            "CREATE INDEX IF NOT EXISTS queue_#_lane ON queue_# (lane, waiting, nextAttemptAtMs)", of: number)
        guard sql.isPostgres else { return }
        // There, an index does not contain the id by itself: each claim would read all of the lane to find its first messages.
        try sql.script(
            "CREATE INDEX IF NOT EXISTS queue_#_laneInOrder ON queue_# (lane, id) WHERE waiting < 2", of: number)
    }

    /// The indexes by which the next turn, the messages of a turn, and the turn of a lane are found. They exist as long as
    /// the messages of the upstream take turns.
    static func createTurns(of number: UpstreamNumber, _ rule: LaneRule, with sql: SQL) throws {
        switch rule {
        case .acrossLanes:
            try sql.script(
                """
                CREATE INDEX queue_#_turn ON queue_# (turn) WHERE waiting = 0;
                CREATE INDEX queue_#_turnOfLane ON queue_# (lane, turn) WHERE lane <> 0;
                CREATE INDEX blocks_#_turn ON blocks_# (turn);
                """, of: number)
        case .perLane:
            try sql.script(
                """
                CREATE INDEX queue_#_turn ON lanes (upstream, turn, readyAtMs)
                  WHERE upstream = # AND readyAtMs IS NOT NULL;
                """, of: number)
        }
    }

    static func dropTurns(of number: UpstreamNumber, with sql: SQL) throws {
        try sql.script(
            """
            DROP INDEX IF EXISTS queue_#_turn;
            DROP INDEX IF EXISTS queue_#_turnOfLane;
            DROP INDEX IF EXISTS blocks_#_turn;
            """, of: number)
    }

    static func hasTurns(of number: UpstreamNumber, with sql: SQL) throws -> Bool {
        try sql.exists(
            Statement(
                sqlite: "SELECT 1 FROM sqlite_master WHERE name = 'queue_#_turn'",
                postgres: "SELECT 1 WHERE to_regclass('queue_#_turn') IS NOT NULL"), of: number)
    }

    /// The columns by which rows name their lanes, for an engine whose lanes are admitted by the owner of the queue.
    static func createLaneNames(of number: UpstreamNumber, with sql: SQL) throws {
        let named = Statement(
            sqlite: "SELECT 1 FROM pragma_table_info('queue_#') WHERE name = 'laneName'",
            postgres: "SELECT 1 FROM pg_attribute WHERE attrelid = to_regclass('queue_#') AND attname = 'lanename'")
        guard try !sql.exists(named, of: number) else { return }
        try sql.script(
            """
            ALTER TABLE queue_# ADD COLUMN laneName TEXT;
            ALTER TABLE queue_# ADD COLUMN laneGroup TEXT;
            """, of: number)
        // As for the names of lanes.
        let index: Statement =
            sql.isPostgres
            ? "CREATE INDEX queue_#_group ON queue_# USING hash (laneGroup)"
            : "CREATE INDEX queue_#_group ON queue_# (laneGroup) WHERE laneGroup IS NOT NULL"
        try sql.run(index, of: number)
    }
}
