import Foundation
import GRDB
import PosternCore
import PosternTestKit

@testable import PosternStore

/// Test helpers that use SQLite rather than the store. Another engine would have a file like this one.
extension TestStore {
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

    func execute(_ sql: String) throws { try transact { try $0.db.execute(sql: sql) } }

    func integer(_ sql: String) throws -> Int { try outbox.pool.read { try Int.fetchOne($0, sql: sql) ?? -1 } }

    /// How many queued messages a kill at this moment would leave.
    func survivors() throws -> Int {
        let folder = ScratchFolder()
        let copy = folder.file("killed.sqlite")
        // With the writer's connection held: the files must not change meanwhile, and a copy of one that is cut never
        // ends.
        try outbox.pool.writeWithoutTransaction { _ in
            for tail in ["", "-wal", "-shm"] {
                try FileManager.default.copyItem(atPath: path + tail, toPath: copy + tail)
            }
        }
        let outbox = try Self.open(OutboxOptions(path: copy))
        defer { outbox.close() }
        return outbox.ledgers.values.reduce(0) { $0 + $1.queued }
    }

    /// How many rows there are of what is stored in addition to messages: `rows` is the name of a table, or
    /// `lanes WHERE isParked`.
    func count(_ rows: String) throws -> Int { try integer("SELECT count(*) FROM \(rows)") }
}
