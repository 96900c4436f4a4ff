import GRDB

/// What can go wrong with the store: what, where, and what to do.
public enum StoreError: Error, Sendable, Equatable, CustomStringConvertible {
    /// The file or its folder cannot be made or written.
    case cannotCreate(path: String, detail: String)
    /// Another process works on this store.
    case alreadyRunning(path: String)
    /// The file is damaged.
    case corrupt(path: String, detail: String)
    /// Another program's SQLite database, or not a database at all.
    case foreign(path: String)
    /// Written by a later version.
    case newer(path: String)
    /// No room for more messages.
    case full(detail: String)
    /// Anything else SQLite reports.
    case failed(detail: String)
    /// Closed, or closing.
    case closed

    public var description: String {
        switch self {
        case .cannotCreate(let path, let detail):
            "cannot open the store at \(path): \(detail). Check that the folder exists and may be written to"
        case .alreadyRunning(let path):
            "another process is running on the store at \(path). Stop it, or give this one another outbox.path"
        case .corrupt(let path, let detail):
            "the store at \(path) is damaged: \(detail). Restore a copy, or start with --start-fresh, which keeps the "
                + "damaged file under a new name and begins an empty store"
        case .foreign(let path):
            "\(path) is not a Postern store; it was left alone. Set outbox.path to another file"
        case .newer(let path):
            "the store at \(path) was written by a later version of Postern; it was left alone. Run that version"
        case .full(let detail): "no room to store more: \(detail)"
        case .failed(let detail): "the store failed: \(detail)"
        case .closed: "the store is closed"
        }
    }

    init(_ error: any Error, path: String) {
        switch error {
        case let known as StoreError: self = known
        case let error as DatabaseError:
            switch error.resultCode {
            case .SQLITE_NOTADB where !StoreFile.holdsOurTables(path): self = .foreign(path: path)
            case .SQLITE_CORRUPT, .SQLITE_NOTADB: self = .corrupt(path: path, detail: error.message ?? "\(error)")
            case .SQLITE_FULL: self = .full(detail: error.message ?? "disk full")
            case .SQLITE_IOERR where Self.writeErrors.contains(error.extendedResultCode):
                self = .full(detail: error.message ?? "write failed")
            case .SQLITE_CANTOPEN, .SQLITE_READONLY, .SQLITE_PERM:
                self = .cannotCreate(path: path, detail: error.message ?? "\(error)")
            default: self = .failed(detail: "\(error.resultCode): \(error.message ?? "no detail")")
            }
        default: self = .failed(detail: "\(error)")
        }
    }

    /// Failures of the file system to take more; quota and file-size limits come as these, not as `SQLITE_FULL`.
    private static let writeErrors: [ResultCode] = [
        .SQLITE_IOERR_WRITE, .SQLITE_IOERR_SHMSIZE, .SQLITE_IOERR_FSYNC, .SQLITE_IOERR_TRUNCATE,
        .SQLITE_IOERR_DIR_FSYNC,
    ]

    var isFull: Bool { if case .full = self { true } else { false } }
}
