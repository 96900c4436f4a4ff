import PosternCore

/// The statements of the store on one connection to PostgreSQL: what `SQL` does with SQLite itself.
final class PostgresStatements {
    let connection: PostgresConnection
    /// The names under which statements are prepared.
    private var prepared: [Key: String] = [:]
    /// How many visits are open, one inside the other.
    private var depth = 0

    /// The same literal may be used with values of different types.
    private struct Key: Hashable {
        let literal: UnsafePointer<UInt8>
        let number: UInt8
        let use: Use
        let types: [UInt32]
    }

    private enum Use { case whole, insert, first }

    /// - Parameter connection: Has no other prepared statements.
    init(on connection: PostgresConnection) { self.connection = connection }

    func run(
        _ text: Statement, of number: UpstreamNumber?, _ values: borrowing PostgresValues
    ) throws -> PostgresResult {
        try connection.run(name(of: text, number, .whole, values), values)
    }

    func send(_ text: Statement, of number: UpstreamNumber?, _ values: borrowing PostgresValues) throws {
        try connection.send(name(of: text, number, .whole, values), values)
    }

    /// Returns the number that the row was given.
    func insert(_ text: Statement, _ values: borrowing PostgresValues) throws -> Int64 {
        try connection.run(name(of: text, nil, .insert, values), values).integer(0, 0)
    }

    func each(
        _ text: Statement, of number: UpstreamNumber?, _ values: borrowing PostgresValues,
        _ body: (borrowing SQLRow) throws -> Void
    ) throws {
        let result = try run(text, of: number, values)
        for row in 0..<result.rowCount { try result.read(row, body) }
    }

    func first<Result>(
        _ text: Statement, of number: UpstreamNumber?, _ values: borrowing PostgresValues,
        _ read: (borrowing SQLRow) throws -> Result
    ) throws -> Result? {
        let result = try connection.run(name(of: text, number, .first, values), values)
        return result.rowCount > 0 ? try result.read(0, read) : nil
    }

    // MARK: Visits that may end early

    private static let (firstRows, mostFirstRows) = (32, 64)
    private static let mostRows = 2048
    private static let bytesPerFetch = 1 << 20

    /// Fetches as many rows as are expected, or few, because most visits end after few, and then twice as many each time, as
    /// long as these have a megabyte or so. How large they are is not known before.
    ///
    /// - Precondition: A transaction has begun.
    func walk(
        _ text: Statement, of number: UpstreamNumber?, _ values: borrowing PostgresValues, expecting count: Int,
        _ body: (borrowing SQLRow) throws -> Bool
    ) throws {
        depth += 1
        let cursor = "visit\(depth)"
        defer { depth -= 1 }
        try connection.sendQuery("DECLARE \(cursor) NO SCROLL CURSOR FOR \(spelled(text, number))", values)
        var rows = min(max(count, Self.firstRows), Self.mostFirstRows)
        var expected = count
        while true {
            let result = try connection.query("FETCH \(rows) FROM \(cursor)", PostgresValues())
            let goesOn: Bool
            do {
                goesOn = try (0..<result.rowCount).allSatisfy { try result.read($0, body) } && result.rowCount == rows
            } catch {
                // The transaction may go on, unless the server has failed it.
                if !(error is PostgresError) { try connection.sendQuery("CLOSE \(cursor)", PostgresValues()) }
                throw error
            }
            guard goesOn else { return try connection.sendQuery("CLOSE \(cursor)", PostgresValues()) }
            expected -= rows
            let most = max(Self.bytesPerFetch / max(result.byteCount / rows, 1), Self.firstRows)
            rows = min(expected > 0 ? expected : 2 * rows, most, Self.mostRows)
        }
    }

    // MARK: Texts

    private func name(
        of text: Statement, _ number: UpstreamNumber?, _ use: Use, _ values: borrowing PostgresValues
    ) throws -> String {
        let key = Key(literal: text.postgres.utf8Start, number: number?.rawValue ?? 0, use: use, types: values.types)
        if let known = prepared[key] { return known }
        let name = "s\(prepared.count)"
        let spelled = spelled(text, number)
        let whole =
            switch use {
            case .whole: spelled
            case .insert: "\(spelled) RETURNING number"
            // SQLite stops at the first row.
            case .first where spelled.hasPrefix("SELECT"): "SELECT * FROM (\(spelled)) AS found LIMIT 1"
            case .first: spelled
            }
        try connection.prepare(name, whole, types: values.types)
        prepared[key] = name
        return name
    }

    /// With `$1` for `?` and `?1`.
    private func spelled(_ text: Statement, _ number: UpstreamNumber?) -> String {
        var spelled = ""
        var count = 0
        let text = SQL.spelled(text.postgres, number?.rawValue ?? 0)
        let parts = text.split(separator: "?", omittingEmptySubsequences: false)
        for (index, part) in parts.enumerated() {
            if index > 0 {
                count += 1
                spelled += part.first?.isWholeNumber == true ? "$" : "$\(count)"
            }
            spelled += part
        }
        return spelled
    }
}

extension PostgresResult {
    fileprivate func read<Result>(_ row: Int, _ body: (borrowing SQLRow) throws -> Result) rethrows -> Result {
        try withExtendedLifetime(self) {
            try body(SQLRow(RowPosition(statement: nil, result: .passUnretained(self), row: row)))
        }
    }
}
