internal import CSimulatedDisk
internal import Glibc

/// A system call of a disk, or an allocation of memory by SQLite (`SimulatedDisk.watchMemory`).
public enum DiskCall: String, Sendable, CaseIterable {
    case open, read, write, truncate, allocate, sync, delete, rename, makeFolder, status, memory

    var code: postern_disk_call {
        switch self {
        case .open: POSTERN_DISK_OPEN
        case .read: POSTERN_DISK_READ
        case .write: POSTERN_DISK_WRITE
        case .truncate: POSTERN_DISK_TRUNCATE
        case .allocate: POSTERN_DISK_ALLOCATE
        case .sync: POSTERN_DISK_SYNC
        case .delete: POSTERN_DISK_DELETE
        case .rename: POSTERN_DISK_RENAME
        case .makeFolder: POSTERN_DISK_MAKE_FOLDER
        case .status: POSTERN_DISK_STATUS
        case .memory: POSTERN_DISK_MEMORY
        }
    }

    init?(_ code: postern_disk_call) {
        guard let found = Self.allCases.first(where: { $0.code == code }) else { return nil }
        self = found
    }
}

/// The faults that a call can have.
public enum DiskFault: String, Sendable, CaseIterable {
    /// A read or a write transfers only a part.
    case short
    /// `ENOSPC`.
    case noSpace
    /// `EIO`. A write may have written a part. After a sync, as on Linux, some of what was not synced is lost and counts
    /// as clean: no later sync writes it, and a later read may show the former content.
    case ioError
    /// A sync that reports success and does nothing. A loss by it is marked (`isLossAllowed`).
    case lie
    /// The same without the mark: a test uses it to see that it finds the loss.
    case secretLie
    /// The process stops in the middle of the call. This one and all that follow fail, until `kill()` or `powerCut()`.
    case stop

    var code: postern_disk_fault {
        switch self {
        case .short: POSTERN_DISK_SHORT
        case .noSpace: POSTERN_DISK_NO_SPACE
        case .ioError: POSTERN_DISK_IO_ERROR
        case .lie: POSTERN_DISK_LIE
        case .secretLie: POSTERN_DISK_SECRET_LIE
        case .stop: POSTERN_DISK_STOP
        }
    }

    init?(_ code: postern_disk_fault) {
        guard let found = Self.allCases.first(where: { $0.code == code }) else { return nil }
        self = found
    }
}

/// How likely a fault is, for each call that it can strike: 0 to 1.
public struct DiskFaults: Sendable, Equatable {
    public var shortReads = 0.0
    public var shortWrites = 0.0
    public var failedOpens = 0.0
    public var failedReads = 0.0
    public var failedWrites = 0.0
    public var failedSyncs = 0.0
    public var lyingSyncs = 0.0
    public var secretlyLyingSyncs = 0.0
    /// Writes and allocations for which there is no room, whatever the size of the disk.
    public var noSpace = 0.0

    public init() {}

    var all: [(DiskCall, DiskFault, Double)] {
        [
            (.read, .short, shortReads), (.write, .short, shortWrites), (.open, .ioError, failedOpens),
            (.read, .ioError, failedReads), (.write, .ioError, failedWrites), (.sync, .ioError, failedSyncs),
            (.sync, .lie, lyingSyncs), (.sync, .secretLie, secretlyLyingSyncs), (.write, .noSpace, noSpace),
            (.allocate, .noSpace, noSpace),
        ]
    }
}

extension postern_disk_record {
    /// Such as `write store.sqlite-wal 8248@32 short` or `sync store.sqlite ioError EIO`.
    var line: String {
        var words = [DiskCall(call)?.rawValue ?? "call", name.map { String(cString: $0) } ?? ""]
        if words[1].isEmpty { words[1] = "(folder)" }
        switch call {
        case POSTERN_DISK_READ, POSTERN_DISK_WRITE, POSTERN_DISK_ALLOCATE: words.append("\(length)@\(offset)")
        case POSTERN_DISK_TRUNCATE: words.append("to \(offset)")
        default: break
        }
        if let fault = DiskFault(fault) { words.append(fault.rawValue) }
        switch error {
        case 0: break
        case ENOSPC: words.append("ENOSPC")
        case EIO: words.append("EIO")
        default: words.append("errno \(error)")
        }
        return words.joined(separator: " ")
    }
}
