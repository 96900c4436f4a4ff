import PosternCore

/// What a database is, and why it cannot hold a store.
public struct PostgresReport: Sendable {
    /// One line without a full stop: the version, the place, and the settings on which durability depends.
    public internal(set) var summary = ""
    /// Each a sentence without its full stop; empty if a gateway would start.
    public internal(set) var problems: [String] = []
    /// Whether there is a store.
    public internal(set) var hasTables = false
}

extension PostgresOptions {
    /// Connects to the database and reports what it finds, in the words of `postern check`. Creates nothing. Blocks.
    public func examine() throws(StoreError) -> PostgresReport {
        do {
            let sql = SQL(postgres: try PostgresConnection(self))
            defer { try? sql.close() }
            return try report(with: sql)
        } catch {
            throw StoreError(postgres: error)
        }
    }

    private func report(with sql: SQL) throws -> PostgresReport {
        func setting(_ name: String) throws -> String {
            try sql.value("SELECT current_setting(?)", name, as: String.self) ?? ""
        }
        var report = PostgresReport()
        let standbys = try setting("synchronous_standby_names")
        report.summary =
            "PostgreSQL \(try setting("server_version")) at \(place); fsync \(try setting("fsync")), "
            + "synchronous_commit \(try setting("synchronous_commit")), "
            + (standbys.isEmpty ? "no synchronous standby" : "synchronous_standby_names \(standbys)")
        do { try PostgresSchema.check(sql, self) } catch let error as StoreError {
            report.problems.append("cannot be used: \(error)")
        }
        let hasSchema = try sql.exists("SELECT 1 WHERE to_regnamespace(?) IS NOT NULL", schema)
        report.hasTables = try hasSchema && sql.exists("SELECT 1 WHERE to_regclass('store') IS NOT NULL")
        let right = migrate == .auto ? "CREATE" : "USAGE"
        let mayUse =
            hasSchema
            ? try sql.value("SELECT has_schema_privilege(?, ?)", schema, right, as: Bool.self)
            : try sql.value("SELECT has_database_privilege(current_database(), 'CREATE')", as: Bool.self)
        if mayUse != true {
            let place = hasSchema ? "the schema \(schema)" : "the database, which has no schema \(schema)"
            report.problems.append("cannot be used: the user lacks the right \(right) on \(place)")
        }
        if !report.hasTables, migrate == .never {
            report.problems.append("cannot be used: it has no store, and outbox.postgres.migrate is never")
        }
        if report.hasTables,
            try sql.value("SELECT minFormat FROM store", as: Int.self) ?? 0 > Migrations.format
        {
            report.problems.append("cannot be used: \(StoreError.newer(path: place))")
        }
        // A store of an earlier format has no such column.
        if report.hasTables,
            let file = try sql.value("SELECT to_jsonb(store) ->> 'movingfrom' FROM store", as: String?.self) ?? nil
        {
            report.problems.append("cannot be used: \(StoreError.moving(place: place, from: file))")
        }
        return report
    }
}
