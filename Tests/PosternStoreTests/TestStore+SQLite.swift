import CSQLite
import Foundation
import PosternCore
import PosternTestKit

@testable import PosternStore

/// Test helpers that use SQLite rather than the store. Another engine would have a file like this one.
extension TestStore {
    /// For tests of the file.
    var sqlite: SQLiteEngine {
        guard let engine = outbox.engine as? SQLiteEngine else { preconditionFailure("the store is not a file") }
        return engine
    }

    func transact(_ body: @escaping @Sendable (Transaction) throws -> Void) throws {
        try threads.result { outbox.writer.change(body, completion: $0) }
    }

    /// Waits until what was handed to the writer is committed, completions included.
    func settleDown() throws { try transact { _ in } }

    func runMaintenance(_ former: Maintenance? = nil) throws {
        let maintenance = former ?? Maintenance(outbox: outbox)
        let hasMore = SharedValue(true)
        while hasMore.value {
            try transact { hasMore.set(try maintenance.run(in: $0)) }
            maintenance.didCommit()
        }
    }

    /// Runs statements in SQLite's dialect, with blobs as `x'01'`.
    func execute(_ text: String) throws {
        let text = !options.engine.isPostgres ? text : text.replacing(#/x'(\w*)'/#) { "'\\x\($0.1)'::bytea" }
        try transact { try $0.sql.execute(text) }
    }

    /// The first column of the first row; -1 if there is none, or it is NULL.
    func integer(_ text: String) throws -> Int {
        let values: [Int?] = try outbox.readers.readSnapshot { try $0.column(0, of: text) }
        return values.first.flatMap { $0 } ?? -1
    }

    /// Copies the files of the store to `copy`, as a kill at this moment would leave them.
    func copyFiles(to copy: String, _ tails: [String] = StoreFile.tails) throws {
        // On the writer's thread: the files must not change meanwhile, and a copy of one that is cut never ends.
        try transact { [path] _ in
            for tail in tails { try FileManager.default.copyItem(atPath: path + tail, toPath: copy + tail) }
        }
    }

    /// How many queued messages a kill at this moment would leave.
    func survivors() throws -> Int {
        let folder = ScratchFolder()
        let copy = folder.file("killed.sqlite")
        try copyFiles(to: copy)
        let outbox = try Self.open(OutboxOptions(path: copy))
        defer { outbox.close() }
        return outbox.ledgers.values.reduce(0) { $0 + $1.queued }
    }

    /// How many rows there are of what is stored in addition to messages: `rows` is the name of a table, or
    /// `lanes WHERE isParked`.
    func count(_ rows: String) throws -> Int { try integer("SELECT count(*) FROM \(rows)") }
}

extension SQL {
    /// One column of all rows of a statement that is put together at run time.
    func column<Value: SQLValue>(_ column: Int32, of text: String) throws -> [Value] {
        if let postgres = postgres?.connection {
            try postgres.prepare("column", text, types: [])
            defer { _ = try? postgres.execute("DEALLOCATE \"column\"") }
            let result = try postgres.run("column", PostgresValues())
            return (0..<result.rowCount).map {
                Value(from: PostgresCell(result: result, row: $0, column: Int(column)))
            }
        }
        let statement = try connection.prepare(text)
        defer { sqlite3_finalize(statement) }
        var values: [Value] = []
        while sqlite3_step(statement) == SQLITE_ROW { values.append(SQLRow(statement)[column]) }
        try connection.check(sqlite3_reset(statement))
        return values
    }
}
