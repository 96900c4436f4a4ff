public import PosternCore

/// Whose messages are erased: those with a key, or with a value in their payload.
public struct EraseRequest: Sendable {
    public enum Selection: Sendable {
        case key(String)
        /// Whether the payload is one of them. `ofEvent`: it is that of a callback's event, and what matters is the payload
        /// that the event contains.
        case payload(@Sendable (_ payload: [UInt8], _ ofEvent: Bool) -> Bool)
    }

    let selection: Selection
    /// The response to keep for a request that stored messages of others, too, instead of one that may quote what is erased.
    let neutral: @Sendable (_ response: [UInt8]) -> [UInt8]
    /// Nil means all, as in `visible`.
    public var upstream: UpstreamName?
    /// The upstreams whose messages are erased.
    public var visible: Set<UpstreamName>?
    /// Whether to count only.
    public var isDryRun = false
    /// The name of the caller's key, for events.
    public var by: String?

    public init(_ selection: Selection, neutral: @escaping @Sendable (_ response: [UInt8]) -> [UInt8]) {
        self.selection = selection
        self.neutral = neutral
    }

    /// The key whose messages are erased, if that is what selects them.
    var keys: [String] { if case .key(let key) = selection { [key] } else { [] } }

    func shows(_ name: UpstreamName) -> Bool {
        (upstream == nil || upstream == name) && visible?.contains(name) != false
    }
}

/// What was erased, or would be.
public struct EraseCounts: Sendable, Equatable {
    /// Messages, by the state in which the request found them: queued ones are cancelled.
    public internal(set) var messages: [MessageState: Int] = [:]
    /// Events about these messages, whatever their state.
    public internal(set) var callbacks = 0
    /// Records of requests with an `Idempotency-Key`.
    public internal(set) var idempotencyRecords = 0
    /// Identities of events, by which a repeat is recognized.
    public internal(set) var events = 0
    /// Whether the database may keep what was deleted for some time, where no statement reads it.
    public internal(set) var isKeptByDatabase = false

    public init() {}
}

/// Why a request was not carried out to its end. What was erased stays erased; the same request does the rest.
public enum EraseFailure: Error, Sendable {
    /// So many messages were being sent for longer than it waits, or were queued again meanwhile.
    case beingSent(Int)
    /// A read, for example a backup, needs the former content of the files, so it is not overwritten yet.
    case heldUp
    case store(StoreError)
}

/// Where the work is done that is not the writer's. Any thread.
public struct EraseExecutor: Sendable {
    /// Runs work that reads the store.
    let run: @Sendable (@escaping @Sendable () -> Void) -> Void
    /// Runs work after a pause.
    let later: @Sendable (Duration, @escaping @Sendable () -> Void) -> Void
    /// Whether the process is about to stop.
    let isStopping: @Sendable () -> Bool

    public init(
        run: @escaping @Sendable (@escaping @Sendable () -> Void) -> Void,
        later: @escaping @Sendable (Duration, @escaping @Sendable () -> Void) -> Void,
        isStopping: @escaping @Sendable () -> Bool
    ) {
        self.run = run
        self.later = later
        self.isStopping = isStopping
    }
}

extension Outbox {
    /// Erases messages, with all that the store has of them: those that have been accepted until now. Queued ones are
    /// cancelled; what is being sent is settled first, for up to `EraseRun.patience`.
    ///
    /// It does so in short transactions. If the process ends meanwhile, each message is either erased, with its callbacks, or
    /// found again by the same request.
    ///
    /// - Parameter completion: Called on any thread once nothing of them can be read in the files of the store, or in the tables if
    ///   it is in a database.
    public func erase(
        _ request: EraseRequest, on executor: EraseExecutor,
        completion: @escaping @Sendable (Result<EraseCounts, EraseFailure>) -> Void
    ) {
        EraseRun(request, of: self, on: executor, completion).begin()
    }
}
