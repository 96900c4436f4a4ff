import Logging
import PosternCore
import PosternMetrics
import PosternThreads

/// What a store is kept in. It opens and reads the store, and knows where that is and in which condition. Any thread.
///
/// What messages, lanes and settlements are is above it, and the same for each engine: statements that the engine runs
/// in a transaction (`StoreWriter`) or on a snapshot.
protocol StoreEngine: AnyObject, Sendable {
    /// Where the store is, in the words of the configuration.
    var place: String { get }
    /// Why the store cannot be relied on, apart from what commits reported; nil if it can.
    var failure: StoreError? { get }
    var figures: StoreFigures { get }
    /// Read-only connections.
    var readers: Readers { get }
    /// When lanes get their rows.
    var laneAdmission: LaneAdmission { get }
    /// The number of messages of one commit for which there is room, wherever they are, although the medium is full.
    var messagesPerCommitWhenFull: Int { get }

    /// What one commit loop writes with.
    func makeWriter() -> any StoreWriter
    /// The next number of a batch. It is used once, also if nothing is sent.
    func nextBatch() -> BatchID
    /// The error of a commit or a read, in terms of the store.
    func error(_ error: any Error) -> StoreError
    /// The same for an error that ends the start.
    func startError(_ error: any Error) -> StoreError
    /// Whether this process does what concerns no queue, or one on which no process works.
    var isKeeper: Bool { get }
    /// Whether other processes may use the store, too.
    var isShared: Bool { get }
    /// The name of the node that works on a queue, as far as it is known; nil: none does, or the store is not shared.
    func ownerName(of number: UpstreamNumber) -> String?
    /// Whether another process works on a queue, as far as it is known.
    func isOfAnother(_ number: UpstreamNumber) -> Bool
    /// Which queues this process may adopt, and which it is to release; nil if the store is not shared.
    var assignment: QueueAssignment? { get }
    /// Shows other processes on which queues this one can work, and which of them belong together.
    func serve(_ queues: Set<UpstreamNumber>, joint: Set<UpstreamNumber>)
    /// The number of this process among those that share the store; nil if there are none.
    var node: Int64? { get }
    /// What other processes have done; nil if there are none, or this one has not joined them. Blocks.
    func glance() throws -> Glance?
    /// Shows other processes whether clients listen to events here.
    func listen(_ listens: Bool)
    /// How often the writer looks for what others have done; nil if there are no others.
    var pollInterval: Duration? { get }
    /// Whether this process may send what it has claimed.
    var mayStillSend: Bool { get }
    /// Whether the medium keeps what was deleted for as long as it likes, so that it cannot be overwritten.
    var keepsDeleted: Bool { get }
    /// `close` follows soon: what waits for the medium waits no longer than a few seconds from now on.
    func willClose()
    /// Closes the store, once the writers have ended.
    func close()
}

extension StoreEngine {
    var isKeeper: Bool { true }
    var isShared: Bool { false }
    func ownerName(of number: UpstreamNumber) -> String? { nil }
    func isOfAnother(_ number: UpstreamNumber) -> Bool { false }
    var assignment: QueueAssignment? { nil }
    func serve(_ queues: Set<UpstreamNumber>, joint: Set<UpstreamNumber>) {}
    var node: Int64? { nil }
    func glance() throws -> Glance? { nil }
    func listen(_ listens: Bool) {}
    var pollInterval: Duration? { nil }
    var mayStillSend: Bool { true }
    var keepsDeleted: Bool { false }
    func willClose() {}
}

/// The part of an engine that writes. Belongs to the thread of a commit loop.
protocol StoreWriter: AnyObject {
    func begin()
    func end()

    // MARK: Commits

    /// Runs `body` in one transaction, which is durable when this returns. `body` returns by how much the store grows at
    /// most; nil if that is not known.
    func commit(_ body: (SQL) throws -> Growth?) throws
    /// Reacts to the error of a commit, and says what is to be done with its jobs.
    func recover(from error: any Error) -> CommitFailure
    /// Makes certain that nothing of a commit for which there was no room becomes valid later, for example if the process
    /// is killed. Returns false if that is not known.
    func undoFailedCommit() -> Bool
    /// A commit succeeded, and its completions were called. `isQuiet`: no other job waits.
    func didReply(isQuiet: Bool)
    /// Examines the medium, and looks whether it can be used again. `work` is the store's own maintenance, a commit.
    func maintain(_ work: () -> Void)
    /// Overwrites in the medium a portion of what deletions have left. What is deleted after it has begun may stay.
    ///
    /// - Parameter position: Where the former portion ended; nil for the first one.
    func overwriteUnused(from position: Int?) throws(StoreError) -> OverwriteProgress

    // MARK: Inside a transaction

    /// The next numbers of messages, above all that were committed. The transaction may need as many as `count`.
    func nextSequences(_ count: Int, in sql: SQL) throws -> ClosedRange<Int64>
    /// Those up to this one were committed. The others may be assigned again.
    func didAssign(through sequence: Int64)
    /// The next version of a credential.
    func nextVersion(in sql: SQL) throws -> Int64
    /// Whether the transaction takes it that no other process has stored a record of its requests. If one has, it fails, and
    /// is run again without that.
    var expectsNewRecords: Bool { get }
    /// Records what this transaction adds to a queue, for the process that works on it.
    func tell(of arrival: Arrival, in sql: SQL) throws
    /// Makes this process the one that works on a queue. Throws `StoreError.notOwner` if another one does.
    func own(_ number: UpstreamNumber, in sql: SQL) throws
    /// Ends that.
    func disown(_ number: UpstreamNumber, in sql: SQL) throws
    /// Makes certain that until the transaction ends no other process works on a queue, on which this one does not either.
    /// Throws `StoreError.notOwner` if one does.
    func borrow(_ number: UpstreamNumber, in sql: SQL) throws
    /// Has other transactions that call this for the same queue wait for the end of this one.
    func lock(_ number: UpstreamNumber, in sql: SQL) throws
    /// What the keeper does first.
    func beginKeeping(in sql: SQL) throws
    /// Keeps the number of the latest batch: no attempt shows it.
    func keepBatch(in sql: SQL) throws
    /// The room for messages that a full medium still has, without what settlements may need.
    func spareBytes(in sql: SQL) throws -> Int
    /// Returns unused space to the system, a little in each turn. Returns true if there is more.
    func shrink(_ sql: SQL) throws -> Bool
}

extension StoreWriter {
    var expectsNewRecords: Bool { false }
    func tell(of arrival: Arrival, in sql: SQL) throws {}
    func own(_ number: UpstreamNumber, in sql: SQL) throws {}
    func disown(_ number: UpstreamNumber, in sql: SQL) throws {}
    func borrow(_ number: UpstreamNumber, in sql: SQL) throws {}
    func lock(_ number: UpstreamNumber, in sql: SQL) throws {}
    func beginKeeping(in sql: SQL) throws {}
}

/// What a transaction adds to the store.
struct Growth {
    var messages = 0
    /// The bytes of their payloads.
    var bytes = 0
}

/// What an error of a commit means for its jobs. Nothing of them was stored, as far as is known.
enum CommitFailure {
    /// There was no room. `hasMoreRoom`: there is some now, so that the same may succeed.
    case full(hasMoreRoom: Bool)
    /// The medium failed, and accepts nothing for now. Whether it is known that nothing was stored.
    case broken(isUndone: Bool)
    /// The medium is not at fault. One of the jobs may be, so each is tried again alone.
    case other
    /// They are to be done again: the connection was replaced, or another transaction was in the way.
    case again
}

/// What is left to overwrite after a portion.
enum OverwriteProgress {
    case more(from: Int)
    /// Nothing was done, because a read needs the former content. Later, the same may succeed.
    case heldUp
    case done
}

/// The sizes of a store, in bytes.
public struct StoreFigures: Sendable {
    public var store: Int
    /// What is committed and not in the database yet; nil if that is a matter of the server.
    public var log: Int?
    /// What this process could still write; nil if that is not known.
    public var free: Int?
}

/// The engines.
enum StoreEngineKind: Equatable, Sendable {
    case sqlite
    case postgres(PostgresOptions)
    /// For tests of what an engine with several writers relies on. No other process can show the names of lanes that were
    /// not admitted, and a store stays with its kind of engine.
    case sqliteAdmittingLate(after: Duration = .zero)

    var laneAdmission: LaneAdmission {
        switch self {
        case .sqlite: .inAppend
        case .postgres: .byOwner(after: .zero)
        case .sqliteAdmittingLate(let delay): .byOwner(after: delay)
        }
    }

    /// How long an append waits for a commit before it is told that the outcome is not known; nil: as long as it takes.
    var commitTimeout: Duration? {
        if case .postgres(let options) = self { .seconds(options.commitTimeoutSeconds) } else { nil }
    }

    /// Opens a store, or creates it.
    ///
    /// - Parameters:
    ///   - lease: Of a store that is shared; nil: one is waited for, and ended by `close`.
    ///   - health: Where the engine reports the condition of its medium.
    ///   - prepare: The first transaction, of the keeper if the store is shared.
    ///   - read: Runs after it, on a snapshot.
    func open(
        _ options: OutboxOptions, startFresh: Bool, recover: Bool, lease: StoreLease?, health: StoreHealth,
        time: any TimeSource, threads: any Threads, metrics: Metrics, logger: Logger, prepare: (SQL) throws -> Void,
        read: (SQL) throws -> Void
    ) throws(StoreError) -> any StoreEngine {
        switch self {
        case .sqlite, .sqliteAdmittingLate:
            try SQLiteEngine(
                options, startFresh: startFresh, recover: recover, health: health, time: time, threads: threads,
                logger: logger, prepare: prepare, read: read)
        case .postgres(let settings):
            try PostgresEngine(
                options, settings, lease: lease, health: health, time: time, threads: threads, metrics: metrics,
                logger: logger, prepare: prepare, read: read)
        }
    }

    /// Connections to a store that another process may be using. Writes nothing.
    func view(_ place: String) throws -> Readers {
        switch self {
        case .sqlite, .sqliteAdmittingLate: try SQLiteEngine.view(place)
        case .postgres(let options): PostgresEngine.view(options)
        }
    }

    /// As `StoreEngine.error`.
    func error(_ error: any Error, at place: String) -> StoreError {
        switch self {
        case .sqlite, .sqliteAdmittingLate: StoreError(error, path: place)
        case .postgres: StoreError(postgres: error)
        }
    }
}
