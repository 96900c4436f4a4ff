import Logging
import PosternAPI
import PosternCore
public import PosternGateway
import PosternStore
import PosternThreads
import PosternUpstream

/// `postern outbox migrate-store`: moves a store from an SQLite file to PostgreSQL.
public enum StoreMigration {
    /// Fails while a gateway uses either store. `progress`: see `StoreMove.run`.
    public static func run(
        _ old: ConfigurationLoader, to new: ConfigurationLoader, progress: @escaping (Int, Int) -> Void
    ) throws(CommandFailure) -> MigrationReport {
        let (source, target) = (try old.outbox(), try new.outbox())
        guard source.kind == .sqlite, target.kind == .postgres else {
            throw CommandFailure(
                CommandFailure.usage,
                """
                A store is moved from SQLite to PostgreSQL only: outbox.engine is \(source.kind.rawValue) in \(old.file), and \
                \(target.kind.rawValue) in \(new.file). Anything else is a matter of postern outbox export and import.
                """)
        }
        try source.requireFile()
        let start = SystemTime().instant
        let move = try onStore { () throws(StoreError) in
            try StoreMove.run(
                source, to: target, threads: DedicatedThreads(), logger: Logger(label: "postern.outbox"),
                progress: progress)
        }
        return MigrationReport(move: move, seconds: (SystemTime().instant - start).inSeconds)
    }
}

/// What was moved.
public struct MigrationReport: Sendable {
    let move: StoreMove
    let seconds: Double

    private var accepted: Int { move.audit.accounts.reduce(0) { $0 + $1.ledger.accepted } }
    private var queued: Int { move.audit.accounts.reduce(0) { $0 + $1.ledger.queued } }
    private var rows: Int { move.rows.values.reduce(0, +) }

    /// The result as text for people.
    public var text: String {
        """
        moved \(move.file) to \(move.place): \(accepted) messages accepted, \(queued) queued
        \(rows) rows copied in \(Int(seconds.rounded())) s, \(Int(Double(rows) / max(seconds, 0.001)))/s; the audits agree
        """
    }

    /// The result as JSON for programs.
    public var json: String {
        JSONWriter.object { json in
            json.string("from", move.file)
            json.string("to", move.place)
            json.number("accepted", accepted)
            json.number("queued", queued)
            json.number("rows", rows)
            json.number("milliseconds", Int(seconds * 1000))
        }
    }
}
