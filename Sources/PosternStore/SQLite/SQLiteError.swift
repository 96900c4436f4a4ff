import CSQLite

/// An error that SQLite reports (https://www.sqlite.org/rescode.html).
struct SQLiteError: Error, Equatable, CustomStringConvertible {
    /// The extended result code.
    let code: Int32
    let message: String

    /// - Parameter message: By default, SQLite's text for the code.
    init(_ code: Int32, _ message: String? = nil) {
        self.code = code
        self.message = message ?? Self.text(code)
    }

    /// The primary result code: `SQLITE_FULL`, `SQLITE_IOERR`, and so on.
    var kind: Int32 { code & 0xFF }
    /// The primary result code with SQLite's text for it.
    var name: String { "\(kind) (\(Self.text(kind)))" }
    var description: String { "SQLite error \(kind): \(message)" }

    /// Whether it is not known if data is on the disk: the kernel does not report such an error twice.
    var isFailedSync: Bool { [POSTERN_IOERR_FSYNC, POSTERN_IOERR_DIR_FSYNC].contains(code) }

    /// Whether the index of the log could not be made longer, or mapped.
    var isOfIndex: Bool { [POSTERN_IOERR_SHMSIZE, POSTERN_IOERR_SHMMAP].contains(code) }

    private static func text(_ code: Int32) -> String { String(cString: sqlite3_errstr(code)) }
}
