import CSQLite
import PosternCore

/// SQL on one connection, to an SQLite file or to PostgreSQL. A statement is written next to its values and prepared once.
///
///     try sql.run("UPDATE lanes SET readyAtMs = ? WHERE number = ?", moment, lane)
///     let lane = try sql.value("SELECT lane FROM queue_# WHERE id = ?", of: number, id, as: Int64.self)
///     try sql.each("SELECT id, length(payload) FROM queue_#", of: number) { row in … }
///
/// Statements are written in the dialect that SQLite 3.40 and PostgreSQL 13 share; see `Statement`. `#` in one is the number
/// of the upstream that `of` names. Statements are literals, so nothing from outside can become SQL, and a literal's
/// address is enough to find it prepared. Values are bound and read through the library's own
/// functions: to box them would cost more than an insert does. Not for two threads at once.
final class SQL {
    /// What the statements go to if it is not SQLite.
    let postgres: PostgresStatements?
    private let file: SQLiteConnection?
    /// Whether rows of queues name their lanes in columns of their own, because lanes are admitted by the owner of the queue.
    let admitsLate: Bool
    private var prepared: [Key: OpaquePointer] = [:]
    /// Statements by the address of their text, before `prepared` is used: hashing would cost a tenth of binding and
    /// reading.
    private let recent = UnsafeMutablePointer<(key: Key, statement: OpaquePointer?)>.allocate(capacity: recentCount)
    private static let recentCount = 128

    private struct Key: Hashable {
        let literal: UnsafePointer<UInt8>
        let number: UInt8

        static var none: Key { Key(literal: ("" as StaticString).utf8Start, number: 0) }

        @inline(__always)
        var slot: Int { (Int(bitPattern: literal) >> 4 &+ Int(number) &* 37) & (recentCount - 1) }
    }

    /// - Parameter connection: Has no other statements as long as this exists.
    init(_ connection: SQLiteConnection, admitsLate: Bool = false) {
        (file, postgres) = (connection, nil)
        self.admitsLate = admitsLate
        recent.initialize(repeating: (.none, nil), count: Self.recentCount)
    }

    init(postgres connection: PostgresConnection) {
        (file, postgres) = (nil, PostgresStatements(on: connection))
        admitsLate = true
        recent.initialize(repeating: (.none, nil), count: Self.recentCount)
    }

    deinit {
        finalizeStatements()
        recent.deallocate()
    }

    /// Of the SQLite file. Only SQLite's engine asks for it.
    @inline(__always)
    var connection: SQLiteConnection {
        guard let file else { preconditionFailure("the statements go to PostgreSQL") }
        return file
    }

    /// Closes the connection. Statements that are run later throw.
    func close() throws(SQLiteError) {
        finalizeStatements()
        postgres?.connection.close()
        try file?.close()
    }

    /// Whether the connection is lost, so that only another one can be used.
    var isLost: Bool { postgres?.connection.isLost ?? false }

    /// Runs statements that read a whole queue, which may have millions of messages. Until they end, the connection is not
    /// taken for lost; if its host is gone, the system says so.
    func patiently<Result>(_ body: () throws -> Result) rethrows -> Result {
        guard let connection = postgres?.connection else { return try body() }
        let patience = connection.patience
        connection.patience = nil
        defer { connection.patience = patience }
        return try body()
    }

    /// Runs a statement and returns how many rows it changed.
    @discardableResult @inline(__always)
    func run<each Value: SQLValue>(
        _ text: Statement, of number: UpstreamNumber? = nil, _ values: repeat each Value
    ) throws -> Int {
        if let postgres { return try postgres.run(text, of: number, bound(repeat each values)).changedRows }
        let statement = try statement(text, of: number)
        try bind(repeat each values, to: statement)
        return try finish(statement)
    }

    /// Runs a statement of whose outcome nothing is needed: if it fails, that may show at a later statement. So a transaction
    /// of many statements does not wait for each.
    @inline(__always)
    func send<each Value: SQLValue>(
        _ text: Statement, of number: UpstreamNumber? = nil, _ values: repeat each Value
    ) throws {
        if let postgres { return try postgres.send(text, of: number, bound(repeat each values)) }
        let statement = try statement(text, of: number)
        try bind(repeat each values, to: statement)
        _ = try finish(statement)
    }

    /// As `send`, once for each of `ids`, as the last value. In PostgreSQL, one statement gets all of them, as an array.
    func sendEach<each Value: SQLValue>(
        _ text: Statement, of number: UpstreamNumber, _ values: repeat each Value, for ids: some Collection<MessageID>
    ) throws {
        guard let postgres else {
            for id in ids { try send(text, of: number, repeat each values, id) }
            return
        }
        guard !ids.isEmpty else { return }
        var bound = bound(repeat each values)
        var array = PostgresArray.bigint
        for id in ids { array.append(id.rawValue) }
        bound.add(array)
        try postgres.send(text, of: number, bound)
    }

    /// Runs an `INSERT`, and returns the number that the store has given to the row: its column `number`.
    ///
    /// For `RETURNING`, SQLite makes a temporary table, which triples the cost.
    @inline(__always)
    func insert<each Value: SQLValue>(_ text: Statement, _ values: repeat each Value) throws -> Int64 {
        if let postgres { return try postgres.insert(text, bound(repeat each values)) }
        try run(text, repeat each values)
        return sqlite3_last_insert_rowid(connection.handle)
    }

    var isPostgres: Bool { postgres != nil }
    /// Whether the server has ended the connection since its last use.
    var isStale: Bool { postgres?.connection.isStale ?? false }

    /// Runs several statements without values, separated by semicolons: a schema, in SQLite's types.
    func script(_ text: StaticString, of number: UpstreamNumber? = nil) throws {
        try execute(Self.spelled(text, number?.rawValue ?? 0))
    }

    /// The same with a text that is put together at run time. It may take as long as it does: an index is made of all that is
    /// queued.
    func execute(_ text: String) throws {
        guard let postgres = postgres?.connection else { return try connection.execute(text) }
        let patience = postgres.patience
        postgres.patience = nil
        defer { postgres.patience = patience }
        try postgres.execute(PostgresSchema.translated(text))
    }

    /// Calls `body` for each row.
    @inline(__always)
    func each<each Value: SQLValue>(
        _ text: Statement, of number: UpstreamNumber? = nil, _ values: repeat each Value,
        body: (borrowing SQLRow) throws -> Void
    ) throws {
        if let postgres { return try postgres.each(text, of: number, bound(repeat each values), body) }
        try walk(text, of: number, repeat each values) { row in
            try body(row)
            return true
        }
    }

    /// Calls `body` for each row until it returns false, which is expected after so many rows.
    @inline(__always)
    func walk<each Value: SQLValue>(
        _ text: Statement, of number: UpstreamNumber? = nil, _ values: repeat each Value, expecting count: Int = 0,
        body: (borrowing SQLRow) throws -> Bool
    ) throws {
        if let postgres {
            return try postgres.walk(text, of: number, bound(repeat each values), expecting: count, body)
        }
        let statement = try statement(text, of: number)
        try bind(repeat each values, to: statement)
        defer { sqlite3_reset(statement) }
        while try step(statement), try body(SQLRow(statement)) {}
    }

    /// The result of `read` for the first row; nil if there is none.
    @inline(__always)
    func first<Result, each Value: SQLValue>(
        _ text: Statement, of number: UpstreamNumber? = nil, _ values: repeat each Value,
        read: (borrowing SQLRow) throws -> Result
    ) throws -> Result? {
        if let postgres { return try postgres.first(text, of: number, bound(repeat each values), read) }
        let statement = try statement(text, of: number)
        try bind(repeat each values, to: statement)
        defer { sqlite3_reset(statement) }
        return try step(statement) ? try read(SQLRow(statement)) : nil
    }

    /// The results of `read` for each row.
    func all<Result, each Value: SQLValue>(
        _ text: Statement, of number: UpstreamNumber? = nil, _ values: repeat each Value,
        read: (borrowing SQLRow) throws -> Result
    ) throws -> [Result] {
        var results: [Result] = []
        try each(text, of: number, repeat each values) { results.append(try read($0)) }
        return results
    }

    /// The first column of the first row; nil if there is no row.
    @inline(__always)
    func value<Result: SQLValue, each Value: SQLValue>(
        _ text: Statement, of number: UpstreamNumber? = nil, _ values: repeat each Value, as type: Result.Type
    ) throws -> Result? {
        try first(text, of: number, repeat each values) { $0[0] }
    }

    /// Whether there is a row.
    @inline(__always)
    func exists<each Value: SQLValue>(
        _ text: Statement, of number: UpstreamNumber? = nil, _ values: repeat each Value
    ) throws -> Bool {
        try first(text, of: number, repeat each values) { _ in true } ?? false
    }

    /// Runs `body` in a transaction, which is rolled back if `body` or the commit fails.
    func transaction<Result>(_ access: Access, _ body: () throws -> Result) throws -> Result {
        try begin(access)
        do {
            let result = try body()
            try run("COMMIT")
            return result
        } catch {
            rollBack()
            throw error
        }
    }

    /// Begins a transaction that the caller ends.
    func begin(_ access: Access) throws {
        // SQLite cannot roll back without memory. What was left of the former transaction must not get into this one.
        if hasLeftTransaction { try run("ROLLBACK") }
        try send(access.begin)
    }

    /// Whether a transaction is open in the file. Between transactions: one whose rollback has failed.
    var hasLeftTransaction: Bool { postgres == nil && connection.isInTransaction }

    /// Ends the transaction, unless an error has ended it already.
    func rollBack() {
        // If any of it fails, the server skips what is sent behind it.
        try? postgres?.connection.flush()
        if postgres?.connection.isInTransaction ?? connection.isInTransaction { _ = try? run("ROLLBACK") }
    }

    /// Runs `body` inside a transaction. If it returns false or throws, what it changed is undone.
    func savepoint(_ body: () throws -> Bool) throws {
        try send("SAVEPOINT attempt")
        do {
            if try !body() { try send("ROLLBACK TO attempt") }
            try send("RELEASE attempt")
        } catch {
            try? postgres?.connection.flush()
            // Without effect if the error has ended the transaction.
            _ = try? run("ROLLBACK TO attempt")
            _ = try? run("RELEASE attempt")
            throw error
        }
    }

    enum Access {
        /// Sees one snapshot, from its first statement on.
        case read
        /// Locks other writers out.
        case write

        fileprivate var begin: Statement {
            switch self {
            case .read:
                Statement(sqlite: "BEGIN DEFERRED", postgres: "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            case .write: Statement(sqlite: "BEGIN IMMEDIATE", postgres: "BEGIN")
            }
        }
    }

    /// The `errno` of the last call of the connection that failed in the file system.
    var systemError: Int32 { sqlite3_system_errno(connection.handle) }

    // MARK: Statements

    private func bound<each Value: SQLValue>(_ values: repeat each Value) -> PostgresValues {
        var bound = PostgresValues()
        repeat (each values).add(to: &bound)
        return bound
    }

    @inline(__always)
    private func bind<each Value: SQLValue>(_ values: repeat each Value, to statement: OpaquePointer) throws {
        var (index, result): (Int32, Int32) = (0, SQLITE_OK)
        repeat (each values).bind(to: statement, after: &index, &result)
        // A value that is not bound would be stored as NULL.
        try connection.check(result)
    }

    @inline(__always)
    private func statement(_ source: Statement, of number: UpstreamNumber?) throws -> OpaquePointer {
        let text = source.text
        let key = Key(literal: text.utf8Start, number: number?.rawValue ?? 0)
        let slot = recent + key.slot
        if slot.pointee.key == key, let known = slot.pointee.statement { return known }
        let statement = try prepared[key] ?? prepare(text, as: key)
        slot.pointee = (key, statement)
        return statement
    }

    private func prepare(_ text: StaticString, as key: Key) throws -> OpaquePointer {
        let statement = try connection.prepare(Self.spelled(text, key.number))
        prepared[key] = statement
        return statement
    }

    private func finalizeStatements() {
        for slot in 0..<Self.recentCount { recent[slot].statement = nil }
        for statement in prepared.values { sqlite3_finalize(statement) }
        prepared = [:]
    }

    /// The text for the tables of an upstream.
    static func spelled(_ text: StaticString, _ number: UInt8) -> String {
        // By bytes: to look for a character of Unicode would take longer than a short query.
        let parts = UnsafeBufferPointer(start: text.utf8Start, count: text.utf8CodeUnitCount)
            .split(separator: UInt8(ascii: "#"), omittingEmptySubsequences: false)
        return String(decoding: Array(parts.joined(separator: String(number).utf8)), as: UTF8.self)
    }

    /// Whether there is a row.
    @inline(__always)
    private func step(_ statement: OpaquePointer) throws -> Bool {
        switch sqlite3_step(statement) {
        case SQLITE_ROW: return true
        case SQLITE_DONE: return false
        case let code: throw connection.error(code)
        }
    }

    @inline(__always)
    private func finish(_ statement: OpaquePointer) throws -> Int {
        defer { sqlite3_reset(statement) }
        while try step(statement) {}
        return Int(sqlite3_changes(connection.handle))
    }
}

/// The row on which a statement is positioned, for the duration of a call. Columns count from 0.
struct SQLRow: ~Copyable {
    let position: RowPosition

    @inline(__always)
    init(_ statement: OpaquePointer) { position = RowPosition(statement: statement, result: nil, row: 0) }
    @inline(__always)
    init(_ position: RowPosition) { self.position = position }

    subscript<Value: SQLValue>(_ column: Int32) -> Value {
        @inline(__always) get {
            if let statement = position.statement { return Value(from: statement, column: column) }
            return Value(from: position.cell(column))
        }
    }

    func byteCount(_ column: Int32) -> Int {
        if let statement = position.statement { return Int(sqlite3_column_bytes(statement, column)) }
        return position.cell(column).bytes.count
    }
}

/// Where a row is: in SQLite, the statement that is positioned on it.
struct RowPosition {
    let statement: OpaquePointer?
    /// Who uses the position keeps it.
    let result: Unmanaged<PostgresResult>?
    let row: Int

    func cell(_ column: Int32) -> PostgresCell {
        guard let result else { preconditionFailure("the row is SQLite's") }
        return PostgresCell(result: result.takeUnretainedValue(), row: row, column: Int(column))
    }
}
