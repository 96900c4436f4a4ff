import PosternCore
import PosternUpstream
import Synchronization

/// A user's session at the platform (the specification's section 5). Its description does not show the key.
struct Session: Sendable, Equatable, CustomStringConvertible {
    let id: String
    /// Signs requests, appended to the application's own key.
    let key: String
    /// The id of the user, not the name.
    let user: String
    var deadline: Timestamp

    var description: String { "session \(id)" }
}

/// The sessions that are alive. They are stored, with their keys encrypted; this copy saves reading the store. Any
/// thread.
final class Sessions: Sendable {
    fileprivate struct State {
        var known: [String: Known] = [:]
        /// Being removed from the store.
        var ending: Set<String> = []
        /// Being read from the store.
        var lookups: [String: Lookup] = [:]
    }

    fileprivate struct Lookup {
        var count = 0
        /// Whether the session has ended meanwhile, so that what is read from the store no longer counts.
        var isStale = false
    }

    fileprivate struct Known {
        var session: Session
        /// The stored deadline.
        var storedDeadline: Timestamp
    }

    private let state = Mutex(State())
    /// The platform and actor: if others are configured, the keys are useless, and must not be sent there.
    private let realm: String
    /// About 300 bytes each; others are read from the store.
    private static let maxKnown = 100_000
    /// A deadline is stored only if it has changed by more than this; otherwise every call in a session would be a
    /// write.
    private static let slack = Duration.seconds(60)

    init(of platform: StreamOnePlatform) { realm = platform.realm }

    /// Nil if there is no session of that id, or if it has expired. An expired session is removed without a request to
    /// the platform. The store is read only if the session is not in memory.
    func find(_ id: String, _ context: any UpstreamRouteContext) async throws(StateError) -> Session? {
        let (known, hasEnded) = state.withLock { state in
            let known = state.known[id]?.session
            let hasEnded = known == nil && state.ending.contains(id)
            if known == nil, !hasEnded { state.lookups[id, default: Lookup()].count += 1 }
            return (known, hasEnded)
        }
        if hasEnded { return nil }
        let found = if let known { known } else { try await lookUp(id, context) }
        guard let found, found.deadline < context.time.now else { return found }
        await forget(id, context)
        return nil
    }

    /// Takes as long as finding out that there is no session of that id.
    func readInVain(_ id: String, _ context: any UpstreamRouteContext) async {
        let owner = owner(of: id)
        _ = try? await context.read { $0.credential(of: owner) }
    }

    /// The stored session, unless something newer is known by now.
    private func lookUp(_ id: String, _ context: any UpstreamRouteContext) async throws(StateError) -> Session? {
        defer { state.withLock { $0.endLookup(id) } }
        let owner = owner(of: id)
        let held = try await context.read { $0.credential(of: owner) }
        return state.withLock { state in
            // Another caller may have read it first, and renewed it since.
            if let known = state.known[id] { return known.session }
            guard state.lookups[id]?.isStale == false, let held, let session = Session(id, held) else {
                return nil
            }
            state.keep(Known(session: session, storedDeadline: session.deadline), most: Self.maxKnown)
            return session
        }
    }

    /// Adds a session. Returns when it is on disk, or cannot be stored; it can be used in either case.
    func add(_ session: Session, _ context: any UpstreamRouteContext) async {
        state.withLock { state in
            state.ending.remove(session.id)
            state.keep(Known(session: session, storedDeadline: session.deadline), most: Self.maxKnown)
        }
        try? await context.change([.hold(credential(of: session))])
    }

    /// Called after a response of the platform itself. A session that was removed meanwhile stays removed.
    func renew(_ id: String, until deadline: Timestamp, _ context: any UpstreamRouteContext) {
        state.withLock { state in
            guard var known = state.known[id] else { return }
            known.session.deadline = deadline
            let change =
                known.storedDeadline > deadline ? known.storedDeadline - deadline : deadline - known.storedDeadline
            if change >= Self.slack {
                known.storedDeadline = deadline
                // While the lock is held, so that it cannot be stored after the end of the session.
                context.enqueue([.hold(credential(of: known.session))])
            }
            state.known[id] = known
        }
    }

    /// Ends the session at once for all callers. Returns when that is on disk, or cannot be stored.
    func forget(_ id: String, _ context: any UpstreamRouteContext) async {
        state.withLock { state in
            state.known[id] = nil
            state.ending.insert(id)
            state.lookups[id]?.isStale = true
        }
        // If the store cannot be written, the session may exist again after a restart, until it expires.
        try? await context.change([.drop(credentialOf: owner(of: id))])
        state.withLock { state in _ = state.ending.remove(id) }
    }

    /// The owner of the session's credential.
    func owner(of id: String) -> String { "session/\(realm)/\(id)" }

    private func credential(of session: Session) -> Credential {
        Credential(
            owner: owner(of: session.id), value: Array(session.key.utf8), note: session.user,
            expiresAt: session.deadline, isKept: true)
    }
}

extension Sessions.State {
    fileprivate mutating func endLookup(_ id: String) {
        guard let count = lookups[id]?.count else { return }
        if count > 1 { lookups[id]?.count = count - 1 } else { lookups[id] = nil }
    }

    fileprivate mutating func keep(_ known: Sessions.Known, most: Int) {
        if self.known.count >= most, self.known[known.session.id] == nil, let first = self.known.keys.first {
            self.known[first] = nil
        }
        self.known[known.session.id] = known
    }
}

extension Session {
    fileprivate init?(_ id: String, _ held: HeldCredential) {
        guard !held.isRefused, let deadline = held.expiresAt else { return nil }
        self.init(id: id, key: String(decoding: held.value, as: UTF8.self), user: held.note, deadline: deadline)
    }
}
