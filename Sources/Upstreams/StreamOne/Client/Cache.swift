import PosternCore
import PosternUpstream
import Synchronization

/// Cached responses, and reads in flight that several callers share (the specification's 7.4).
///
/// Bounded: the oldest responses are evicted. Any thread.
///
/// What the policy keeps in the store is a copy of entries: it is written with them, deleted with them, and read once,
/// before the first call. So a response in memory is found without the store.
final class Cache: Sendable {
    /// What a response depends on. Timestamps, signatures, and the order of arguments are not part of it.
    struct Key: Hashable, Sendable {
        let actor: StreamOneActor
        /// The session's user; nil outside sessions.
        let user: String?
        let use: Use
        let call: StreamOneCall

        enum Use: Hashable, Sendable {
            case requests
            /// For `hasToken` and roles. With a session, it is kept for that one alone.
            case rights(session: String?)
        }

        init(_ call: StreamOneCall, by actor: StreamOneActor, user: String? = nil, for use: Use = .requests) {
            var call = call
            call.arguments.sort { $0.name.utf8.lexicographicallyPrecedes($1.name.utf8) }
            self.call = call
            self.actor = actor
            self.user = user
            self.use = use
        }

        var cost: Int {
            call.arguments.reduce(512) { $0 + $1.name.utf8.count + $1.value.utf8.count }
        }
    }

    /// A read in flight. Its leader sends it; other callers with the same read wait for that response.
    final class SharedRead: @unchecked Sendable {
        // @unchecked: the variables are touched with the cache's lock held.
        fileprivate let key: Key
        /// Responses are not shared between sessions: they contain the session's remaining time, and its end.
        fileprivate let session: String?
        fileprivate var deadline: MonotonicInstant
        fileprivate var waiters: [Waiter] = []
        /// Whether there was a write meanwhile, so that the result of this read may be stale.
        fileprivate var isStale = false

        fileprivate init(_ key: Key, session: String?, deadline: MonotonicInstant) {
            self.key = key
            self.session = session
            self.deadline = deadline
        }
    }

    /// A caller that waits for the response of a shared read.
    struct Waiter {
        let number: Int
        let deadline: MonotonicInstant
        let continuation: CheckedContinuation<Lookup, Never>
    }

    enum Lookup: Sendable {
        case hit(Answer, age: Duration)
        /// The response that the leader of the same read got.
        case shared(Result<Answer, CallFailure>)
        /// The caller has to send the read, and then calls `complete` or `passOn` exactly once.
        case lead(SharedRead)
    }

    /// How long a response is kept, and its copy for the store.
    struct Retention: Sendable {
        let lifetime: Duration
        /// Nil if it is kept in memory only.
        var copy: (row: String, change: StateChange)?
    }

    struct Entry {
        let answer: Answer
        let storedAt: MonotonicInstant
        let expiresAt: MonotonicInstant
        let number: Int
        let cost: Int
        /// The session in which it was received. It ends with that one.
        let session: String?
        /// The row of its copy in the store.
        let row: String?
    }

    /// Whether the copies in the store have been read.
    enum Loading {
        case needed, ended
        /// - Parameter isStale: Whether something was removed meanwhile, so that what is read may be stale.
        case running(waiting: [CheckedContinuation<Bool, Never>], isStale: Bool)
    }

    struct State {
        /// By command: a write concerns those of its own.
        var entries: [String: [Key: Entry]] = [:]
        /// In the order of storing, including some that have been removed; the first `evicted` certainly have.
        var order: [(key: Key, number: Int)] = []
        var evicted = 0
        var bytes = 0
        var stored = 0
        var reads: [Key: [SharedRead]] = [:]
        /// The entries of each session.
        var ofSessions: [String: Set<Key>] = [:]
        /// The rows of entries that were removed.
        var evictedRows: [StateChange] = []
        var loading = Loading.needed

        var count: Int { entries.values.reduce(0) { $0 + $1.count } }
        subscript(key: Key) -> Entry? { entries[key.call.command]?[key] }
    }

    let state = Mutex(State())
    private let waiterNumbers = Atomic<Int>(0)
    let isLoaded: Atomic<Bool>
    let policy: CachePolicy
    let cipher: CacheCipher?

    /// - Parameter cipher: For the copies in the store; nil if there are none.
    init(_ policy: CachePolicy, cipher: CacheCipher? = nil) {
        self.policy = policy
        self.cipher = cipher
        isLoaded = Atomic(cipher == nil)
    }

    var bytes: Int { state.withLock { $0.bytes } }
    var count: Int { state.withLock { $0.count } }

    // MARK: Queries

    /// Returns a cached response, the response of a shared read that has no more time than the caller, or a new shared
    /// read to lead. If the task is cancelled while it waits, it gets `.abandoned`; the shared read continues.
    func find(_ key: Key, session: String?, deadline: MonotonicInstant, now: MonotonicInstant) async -> Lookup {
        let number = waiterNumbers.wrappingAdd(1, ordering: .relaxed).newValue
        return await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                let found = state.withLock { state -> Lookup? in
                    if let entry = state[key], entry.expiresAt > now {
                        return .hit(entry.answer, age: now - entry.storedAt)
                    }
                    let latest = state.reads[key]?.last { $0.session == session }
                    if let read = latest, !read.isStale, read.deadline <= deadline {
                        read.waiters.append(
                            Waiter(number: number, deadline: deadline, continuation: continuation))
                        return nil
                    }
                    let read = SharedRead(key, session: session, deadline: deadline)
                    state.reads[key, default: []].append(read)
                    return .lead(read)
                }
                if let found { return continuation.resume(returning: found) }
                // The task may have been cancelled before there was a waiter to remove.
                if Task.isCancelled { leave(number) }
            }
        } onCancel: {
            leave(number)
        }
    }

    private func leave(_ number: Int) {
        let waiter = state.withLock { state -> Waiter? in
            for read in state.reads.values.joined() {
                guard let index = read.waiters.firstIndex(where: { $0.number == number }) else { continue }
                return read.waiters.remove(at: index)
            }
            return nil
        }
        waiter?.continuation.resume(returning: .shared(.failure(.abandoned)))
    }

    /// Ends the shared read with `result` for all its waiters. A response is cached as `keeping` says, unless there was a
    /// write meanwhile.
    ///
    /// - Parameter context: For the copies in the store; nil if there are none.
    func complete(
        _ read: SharedRead, _ result: Result<Answer, CallFailure>, keeping: Retention? = nil, now: MonotonicInstant,
        _ context: (any UpstreamRouteContext)? = nil
    ) {
        let waiters = state.withLock { state in
            end(read, &state)
            if let keeping, !read.isStale, case .success(let answer) = result {
                let isStored = store(answer, of: read, keeping, now, &state)
                let changes = state.takeEvictedRows() + (isStored ? [keeping.copy?.change].compactMap(\.self) : [])
                // While the lock is held: a copy that was written after its removal would stay.
                if !changes.isEmpty { context?.enqueue(changes) }
            }
            return read.waiters
        }
        for waiter in waiters { waiter.continuation.resume(returning: .shared(result)) }
    }

    /// The leader has run out of time, or has hung up. The waiter with the least remaining time becomes the leader;
    /// without one, the shared read ends.
    func passOn(_ read: SharedRead, now: MonotonicInstant) {
        let (next, late) = state.withLock { state in
            let late = read.waiters.filter { $0.deadline <= now }
            read.waiters.removeAll { $0.deadline <= now }
            let next = read.waiters.min { $0.deadline < $1.deadline }
            if let next {
                read.waiters.removeAll { $0.number == next.number }
                read.deadline = next.deadline
            } else {
                end(read, &state)
            }
            return (next, late)
        }
        for waiter in late {
            waiter.continuation.resume(returning: .shared(.failure(.late(CallFailure.lateness))))
        }
        next?.continuation.resume(returning: .lead(read))
    }

    private func end(_ read: SharedRead, _ state: inout State) {
        state.reads[read.key]?.removeAll { $0 === read }
        if state.reads[read.key]?.isEmpty ?? false { state.reads[read.key] = nil }
    }

    // MARK: Storing

    private func store(
        _ answer: Answer, of read: SharedRead, _ keeping: Retention, _ now: MonotonicInstant, _ state: inout State
    ) -> Bool {
        let cost = answer.bytes.count + read.key.cost
        guard keeping.lifetime > .zero, cost <= policy.maxBytes / 4 else { return false }
        let entry = Entry(
            answer: answer, storedAt: now, expiresAt: now + keeping.lifetime, number: state.stored + 1, cost: cost,
            session: read.session, row: keeping.copy?.row)
        insert(entry, under: read.key, now, &state)
        return true
    }

    func insert(_ entry: Entry, under key: Key, _ now: MonotonicInstant, _ state: inout State) {
        remove(key, &state)
        state.stored = entry.number
        state.entries[key.call.command, default: [:]][key] = entry
        state.order.append((key, entry.number))
        state.bytes += entry.cost
        if let session = entry.session { state.ofSessions[session, default: []].insert(key) }
        makeRoom(now, &state)
    }

    /// Removes the oldest responses: those that have expired, and as many as needed to make room.
    private func makeRoom(_ now: MonotonicInstant, _ state: inout State) {
        while state.evicted < state.order.count {
            let oldest = state.order[state.evicted]
            if let entry = state[oldest.key], entry.number == oldest.number {
                guard entry.expiresAt <= now || state.bytes > policy.maxBytes else { break }
                remove(oldest.key, &state)
            }
            state.evicted += 1
        }
        guard state.order.count > 2 * state.count + 256 else { return }
        state.order = state.order.filter { state[$0.key]?.number == $0.number }
        state.evicted = 0
    }

    private func remove(_ key: Key, _ state: inout State) {
        let command = key.call.command
        guard let entry = state.entries[command]?.removeValue(forKey: key) else { return }
        state.bytes -= entry.cost
        if state.entries[command]?.isEmpty ?? false { state.entries[command] = nil }
        if let row = entry.row { state.evictedRows.append(.remove(key: row)) }
        guard let session = entry.session else { return }
        state.ofSessions[session]?.remove(key)
        if state.ofSessions[session]?.isEmpty ?? false { state.ofSessions[session] = nil }
    }

    // MARK: Invalidation: each of these returns what is to be removed from the store

    /// A write of `command` about `scope` took effect, or may have: removes what it can have changed. Which customer an
    /// account belongs to is not known, so only responses about other accounts are kept.
    func invalidate(_ command: String, _ scope: Scope) -> [StateChange] {
        drop([command]) { Self.touches(scope, $0.call.scope) }
    }

    private static func touches(_ written: Scope, _ read: Scope) -> Bool {
        guard case .accounts(let written) = written, case .accounts(let read) = read else { return true }
        return !Set(written).isDisjoint(with: read)
    }

    /// Removes what is cached about the rights of a user, or of the actor itself.
    func forgetRights(of user: String?) -> [StateChange] {
        drop(ActionCatalog.commandsAboutRights) { $0.user == user && ActionCatalog.isAboutRights($0.call) }
    }

    private func drop(_ commands: [String], where isDue: (Key) -> Bool) -> [StateChange] {
        state.withLock { state in
            for command in commands {
                for key in (state.entries[command] ?? [:]).keys where isDue(key) { remove(key, &state) }
            }
            for read in state.reads.values.joined()
            where commands.contains(read.key.call.command) && isDue(read.key) {
                read.isStale = true
            }
            guard state.markLoadingStale(), cipher != nil else { return state.takeEvictedRows() }
            return CacheCipher.removal(of: commands)
        }
    }

    /// Removes what was received in the session.
    func forget(session: String) -> [StateChange] {
        state.withLock { state in
            for key in state.ofSessions[session] ?? [] { remove(key, &state) }
            for read in state.reads.values.joined() where read.session == session { read.isStale = true }
            guard state.markLoadingStale(), cipher != nil else { return state.takeEvictedRows() }
            return [.removeAll(below: CacheCipher.root)]
        }
    }
}
