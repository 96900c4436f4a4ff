/// The text of an SQL statement, written in the dialect that SQLite 3.40 and PostgreSQL 13 share.
///
/// Parameters are `?` or `?1`, not both in one statement. Columns `is…` are Boolean; an integer is compared. Texts are compared
/// byte by byte. `SharedDialectTests` lists what only one of them understands, and `make dialect` prepares every
/// statement in PostgreSQL.
struct Statement: ExpressibleByStringLiteral {
    /// What SQLite gets.
    let text: StaticString
    /// What PostgreSQL gets, once its parameters are `$1`.
    let postgres: StaticString

    @inline(__always)
    init(stringLiteral text: StaticString) { (self.text, postgres) = (text, text) }

    /// A statement for which there is no common text.
    @inline(__always)
    init(sqlite: StaticString, postgres: StaticString) { (text, self.postgres) = (sqlite, postgres) }
}
