import GRDB
import Synchronization

/// Read-only connections, each with the statements that it has prepared. As many are open as were in use at the same time.
///
/// GRDB's own readers would ask for the version of the schema before each read, and find a statement by its text, which
/// takes longer than most reads.
final class Readers: Sendable {
    private let path: String
    private let configuration: Configuration
    private let state = Mutex(State())

    private struct State {
        var free: [Reader] = []
        /// How often all were closed. What was opened before is not used again.
        var generation = 0
        var isClosed = false
    }

    private final class Reader: @unchecked Sendable {
        // @unchecked: only the read that has taken it uses it.
        let generation: Int
        private let queue: DatabaseQueue
        private var sql: SQL

        init(_ path: String, _ configuration: Configuration, _ generation: Int) throws {
            self.generation = generation
            queue = try DatabaseQueue(path: path, configuration: configuration)
            sql = queue.unsafeRead { SQL($0) }
        }

        func readSnapshot<Result>(_ body: (SQL) throws -> Result) throws -> Result {
            try queue.unsafeRead { _ in try sql.transaction(.read) { try body(sql) } }
        }

        func close() {
            // A connection with statements would not close.
            sql = queue.unsafeRead { SQL($0) }
            try? queue.close()
        }
    }

    /// - Parameter configuration: That of the connection that writes.
    init(_ path: String, like configuration: Configuration) {
        self.path = path
        var configuration = configuration
        configuration.readonly = true
        // A reader may find the store locked for a moment (https://www.sqlite.org/wal.html, section 2.4).
        configuration.busyMode = .timeout(10)
        self.configuration = configuration
    }

    /// Runs `body` on one snapshot. Blocks.
    func readSnapshot<Result>(_ body: (SQL) throws -> Result) throws -> Result {
        let reader = try take()
        defer { giveBack(reader) }
        return try reader.readSnapshot(body)
    }

    private func take() throws -> Reader {
        let (free, generation) = try state.withLock { state in
            if state.isClosed { throw DatabaseError(resultCode: .SQLITE_MISUSE, message: "the store is closed") }
            return (state.free.popLast(), state.generation)
        }
        return try free ?? Reader(path, configuration, generation)
    }

    private func giveBack(_ reader: Reader) {
        let isKept = state.withLock { state in
            guard reader.generation == state.generation else { return false }
            state.free.append(reader)
            return true
        }
        if !isKept { reader.close() }
    }

    /// Closes those that are not in use, and the others after their use. Later reads use new ones.
    func renew() { close(permanently: false) }

    /// As `renew`, but later reads throw.
    func close() { close(permanently: true) }

    private func close(permanently: Bool) {
        let free = state.withLock { state in
            state.generation += 1
            if permanently { state.isClosed = true }
            defer { state.free = [] }
            return state.free
        }
        for reader in free { reader.close() }
    }
}
