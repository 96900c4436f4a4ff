import Synchronization

/// Read-only connections, each with the statements that it has prepared. As many are open as were in use at the same time.
final class Readers: Sendable {
    private let open: @Sendable () throws -> SQL
    private let state = Mutex(State())

    private struct State {
        var free: [Reader] = []
        /// How often all were closed. What was opened before is not used again.
        var generation = 0
        var isClosed = false
    }

    fileprivate final class Reader: @unchecked Sendable {
        // @unchecked: only the read that has taken it uses it.
        let generation: Int
        let sql: SQL

        init(_ sql: SQL, _ generation: Int) {
            self.generation = generation
            self.sql = sql
        }

        func readSnapshot<Result>(_ body: (SQL) throws -> Result) throws -> Result {
            try sql.transaction(.read) { try body(sql) }
        }

        func close() { try? sql.close() }
    }

    /// - Parameter open: Opens a read-only connection.
    init(_ open: @escaping @Sendable () throws -> SQL) { self.open = open }

    /// Runs `body` on one snapshot. Blocks.
    func readSnapshot<Result>(_ body: (SQL) throws -> Result) throws -> Result {
        let reader = try take()
        defer { giveBack(reader) }
        return try reader.readSnapshot(body)
    }

    /// Runs a single statement. Blocks.
    func readOnce<Result>(_ body: (SQL) throws -> Result) throws -> Result {
        let reader = try take()
        defer { giveBack(reader) }
        return try body(reader.sql)
    }

    /// Runs `body` on one snapshot, which begins when `body` reads for the first time. Blocks then.
    func readLazily<Result>(_ body: (LazySnapshot) throws -> Result) rethrows -> Result {
        let snapshot = LazySnapshot(of: self)
        defer { snapshot.end() }
        return try body(snapshot)
    }

    fileprivate func take() throws -> Reader {
        let (free, generation) = try state.withLock { state in
            if state.isClosed { throw StoreError.closed }
            return (state.free.popLast(), state.generation)
        }
        if let free {
            guard free.sql.isStale else { return free }
            free.close()
        }
        return try Reader(open(), generation)
    }

    fileprivate func giveBack(_ reader: Reader) {
        let isKept = state.withLock { state in
            guard reader.generation == state.generation, !reader.sql.isLost, !reader.sql.hasLeftTransaction else {
                return false
            }
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

/// A snapshot that costs nothing until something is read.
final class LazySnapshot {
    private let readers: Readers
    private var reader: Readers.Reader?

    fileprivate init(of readers: Readers) { self.readers = readers }

    /// The connection, inside the transaction. Not for use after the read.
    var sql: SQL {
        get throws {
            if let reader { return reader.sql }
            let reader = try readers.take()
            self.reader = reader
            try reader.sql.begin(.read)
            return reader.sql
        }
    }

    fileprivate func end() {
        guard let reader else { return }
        reader.sql.rollBack()
        readers.giveBack(reader)
    }
}
