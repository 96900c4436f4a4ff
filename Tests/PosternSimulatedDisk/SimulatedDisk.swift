internal import CSimulatedDisk

/// A disk in memory that distinguishes what is written from what is synced, and fails as its seed or the test says.
///
/// A store is opened at `path("store.sqlite")`, on the production code and SQLite's own VFS; nothing has to be passed to
/// it. The disk replaces the functions of the C library that concern files (`open`, `pwrite`, `fdatasync`, `rename` …)
/// in this test process, and takes those calls whose path or descriptor is below `folder`. A VFS of the tests' own, or
/// a seam in the store, would see less: the store allocates blocks, syncs, renames and examines its files past SQLite,
/// and how SQLite's VFS treats a short read, `ENOSPC` or the sync of a folder is part of what is tested. The bytes are
/// in memory. The real files in `folder` (on `/dev/shm`) are empty, and serve for `stat`, locks and the index of the log,
/// which SQLite maps into memory: programs other than this process see zeros in them.
///
/// A gateway's process lives from one `kill()` or `powerCut()` to the next. Each life has a folder of its own, and what
/// is left of an earlier one has no effect any more: reads, writes and syncs of its descriptors fail with `EIO`, and its
/// paths do not exist. So the store of a dead gateway is released without being closed (`ManualThreads.abandon`); its
/// descriptors are closed when its last reference goes.
///
/// The calls of one thread, or of loops on one thread, in the same order give the same results for the same seed.
public final class SimulatedDisk: @unchecked Sendable {
    // @unchecked: the C functions lock the disk; `folder` changes between lives, when nothing runs on it.
    private let disk: OpaquePointer

    /// - Parameter capacityBytes: The size of the disk. Blocks have 4096 bytes.
    public init(seed: UInt64, capacityBytes: Int = 256 << 20) {
        guard let disk = postern_disk_new(seed, Int64(capacityBytes)) else {
            preconditionFailure("neither /dev/shm nor /tmp can be written to")
        }
        self.disk = disk
    }

    deinit { postern_disk_free(disk) }

    /// Deletes what processes left on `/dev/shm` that were killed. Each process does so before its first disk.
    public static func deleteLeftOver() { postern_disk_delete_left_over() }

    // MARK: Lives

    /// The folder of the current life.
    public var folder: String { String(cString: postern_disk_folder(disk)) }

    /// The folder of all disks of this process. What else is in it is on a real disk.
    public var processFolder: String { String(folder[..<(folder.lastIndex(of: "/") ?? folder.startIndex)]) }

    /// The path of a file in the current life.
    public func path(_ name: String) -> String { folder + "/" + name }

    /// Ends the process: what was written stays, synced or not.
    public func kill() { postern_disk_next_life(disk, false) }

    /// Ends the power: of what was not synced, any sectors, sizes and names are lost.
    public func powerCut() { postern_disk_next_life(disk, true) }

    /// Whether the process stopped in the middle of a call (`DiskFault.stop`). Nothing that it does, answers or sends
    /// from then on counts. `kill()` or `powerCut()` follows.
    public var hasStopped: Bool { postern_disk_has_stopped(disk) }

    /// A text without what differs from run to run: the folder's path.
    public func neutral(_ text: String) -> String {
        var parts = text[...]
        var result = ""
        while let range = parts.firstRange(of: folder) {
            result += parts[..<range.lowerBound] + "DISK"
            parts = parts[range.upperBound...]
        }
        return result + parts
    }

    // MARK: Faults

    /// What strikes calls by chance, from now on.
    public var faults = DiskFaults() {
        didSet {
            for (call, fault, odds) in faults.all {
                postern_disk_set_odds(disk, call.code, fault.code, UInt32((odds * 1_000_000).rounded()))
            }
        }
    }

    /// For what looks at the files in the test's name: no fault strikes it, and its calls do not count towards one that is
    /// planned.
    public func withoutFaults<T>(_ body: () throws -> T) rethrows -> T {
        postern_disk_set_calm(disk, true)
        defer { postern_disk_set_calm(disk, false) }
        return try body()
    }

    /// Whether allocations of SQLite can be seen at all: only if this is asked before SQLite is first used in this process.
    public static let seesMemory = postern_disk_prepare_memory()

    /// Whether allocations of SQLite on this thread count as calls of the disk, which a planned fault may strike. End it on the
    /// same thread, before the disk is released.
    public func watchMemory(_ isWatched: Bool) { postern_disk_watch_memory(isWatched ? disk : nil) }

    /// Lets a fault strike by plan.
    ///
    /// - Parameters:
    ///   - call: Nil for every call that changes something.
    ///   - file: The end of the file's name, such as `-wal`, or `/` for the disk's folder. By default any.
    ///   - after: How many such calls succeed before.
    public func strike(
        _ fault: DiskFault, on call: DiskCall?, of file: String = "", after: Int = 0, times: Int = 1
    ) {
        postern_disk_strike(
            disk, call?.code ?? POSTERN_DISK_CALLS, fault.code, file, Int64(after), Int64(times))
    }

    /// How many of the planned faults have not struck yet.
    public var strikesLeft: Int { Int(postern_disk_strikes_left(disk)) }

    /// Forgets what was planned and did not strike.
    public func endStrikes() { postern_disk_strike_no_more(disk) }

    /// The size of the disk. May be less than what is used: then nothing more can be allocated.
    public var capacityBytes: Int {
        get { Int(postern_disk_capacity(disk)) }
        set { postern_disk_set_capacity(disk, Int64(newValue)) }
    }

    public var usedBytes: Int { Int(postern_disk_used(disk)) }

    /// Flips a bit in what was written and synced. Returns where; nil if there is nothing.
    @discardableResult public func flipBit(in file: String? = nil) -> String? {
        var name: UnsafePointer<CChar>?
        var offset: Int64 = 0
        guard postern_disk_flip(disk, file, &name, &offset), let name else { return nil }
        return "\(String(cString: name)) at byte \(offset)"
    }

    // MARK: What the disk did

    /// How often a power cut, or a sync that failed, lost what a lying sync had promised.
    public var losses: Int { Int(postern_disk_broken_promises(disk)) }

    public var isLossAllowed: Bool { losses > 0 }

    /// Whether a bit was flipped.
    public var isDamageMarked: Bool { postern_disk_is_damaged(disk) }

    public struct Counts: Sendable, Equatable {
        public let reads, writes, syncs: Int
    }

    /// The calls for a file so far, over all lives; "" is the disk's folder.
    public func counts(of file: String) -> Counts {
        let counts = postern_disk_counts(disk, file)
        return Counts(reads: Int(counts.reads), writes: Int(counts.writes), syncs: Int(counts.syncs))
    }

    /// How many calls so far a fault could have struck.
    public func calls(of call: DiskCall) -> Int { Int(postern_disk_calls_of(disk, call.code)) }

    /// How many calls so far changed something or synced.
    public var changes: Int { Int(postern_disk_changes(disk)) }

    /// A digest of all calls and their results: the same for the same run.
    public var digest: UInt64 { postern_disk_digest(disk) }

    /// The last calls, one line for each, oldest first; at most 256. Reads are listed if a fault struck.
    public func calls(last most: Int = 30) -> [String] {
        var records = [postern_disk_record](repeating: .init(), count: min(max(most, 0), 256))
        let count = postern_disk_last_calls(disk, &records, Int32(records.count))
        return records.prefix(Int(count)).map(\.line)
    }
}
