import CSQLite
import Glibc
import PosternCore
import PosternThreads

extension StoreError {
    /// - Parameter path: Of the store.
    init(_ error: any Error, path: String) {
        switch error {
        case let known as StoreError: self = known
        case let error as SystemLimitError: self = .systemLimit(error)
        case let error as FileError: self = error.isFull ? .full(detail: "\(error)") : .failed(detail: "\(error)")
        case let error as SQLiteError:
            switch error.kind {
            case SQLITE_NOTADB:
                do throws(StoreError) {
                    let isOurs = try StoreFile.holdsOurTables(path)
                    self = isOurs ? .corrupt(path: path, detail: error.message) : .foreign(path: path)
                } catch {
                    self = error
                }
            case SQLITE_CORRUPT: self = .corrupt(path: path, detail: error.message)
            case SQLITE_FULL: self = .full(detail: error.message)
            case SQLITE_IOERR where error.isOfIndex:
                self = .full(detail: "no room for the index of the write-ahead log")
            case SQLITE_CANTOPEN, SQLITE_READONLY, SQLITE_PERM:
                self = .cannotCreate(path: path, detail: error.message)
            default: self = .failed(detail: "\(error.name): \(error.message)")
            }
        default: self = .failed(detail: "\(error)")
        }
    }
}

/// What a failed commit reveals about the disk.
enum DiskFailure {
    case full, broken

    /// Nil if the disk is not at fault. `systemError` is the `errno` of the connection's last failed call. Quotas and
    /// limits of the file size are reported as an error of the write, not as `SQLITE_FULL`. An error of the log's index
    /// leaves the `errno` of an earlier one; there is room for that index, which `LogIndex` allocates.
    init?(_ error: any Error, systemError: Int32) {
        switch error {
        case StoreError.full: self = .full
        case let error as FileError: self = error.isFull ? .full : .broken
        case let error as SQLiteError:
            switch error.kind {
            case SQLITE_FULL: self = .full
            case SQLITE_IOERR
            where [ENOSPC, EDQUOT, EFBIG].contains(systemError) && !error.isFailedSync && !error.isOfIndex: self = .full
            case SQLITE_IOERR, SQLITE_READONLY, SQLITE_CANTOPEN, SQLITE_PERM: self = .broken
            default: return nil
            }
        default: return nil
        }
    }
}
