import PosternCore
import Synchronization

/// A person's session at the platform (the specification's section 5). Printed, it shows no key.
struct StreamOneSession: Sendable, Equatable, CustomStringConvertible {
    let id: String
    /// Signs requests, behind the application's own key.
    let key: String
    /// Id of the user, not the name.
    let user: String
    var deadline: Timestamp

    var description: String { "session \(id)" }
}

/// The sessions that are alive. The store has them, keys sealed; what is known here saves looking there. Any thread.
final class StreamOneSessions: Sendable {
    fileprivate struct State {
        var known: [String: Known] = [:]
        /// On their way out of the store.
        var ending: Set<String> = []
        /// Being looked up in the store.
        var lookups: [String: Lookup] = [:]
    }

    fileprivate struct Lookup {
        var count = 0
        /// The session has ended since: what the store said before is over.
        var isOvertaken = false
    }

    fileprivate struct Known {
        var session: StreamOneSession
        /// The deadline that the store knows.
        var storedDeadline: Timestamp
    }

    private let state = Mutex(State())
    /// Of which platform and actor: with another one configured their keys are good for nothing, and must not go there.
    private let realm: String
    /// Some 300 bytes each; others are looked up in the store.
    private static let mostKnown = 100_000
    /// A deadline is written down when it is off by more: else every call in a session would be a write too.
    private static let slack = Duration.seconds(60)

    init(of platform: StreamOnePlatform) { realm = platform.realm }

    /// Gives nil when there is none of that id, or its time is over: then it is forgotten without asking the platform.
    /// At once if this run has seen the session; else the store is read.
    func find(
        _ id: String, _ tools: any ResourceTools, completion: @escaping @Sendable (StreamOneSession?) -> Void
    ) {
        let (known, isOver) = state.withLock { state in
            let known = state.known[id]?.session
            let isOver = known == nil && state.ending.contains(id)
            if known == nil, !isOver { state.lookups[id, default: Lookup()].count += 1 }
            return (known, isOver)
        }
        if let known { return completion(living(known, tools)) }
        guard !isOver else { return completion(nil) }
        let owner = owner(of: id)
        tools.read {
            $0.credential(of: owner)
        } completion: { [self] held in
            completion(taken(held ?? nil, id).flatMap { living($0, tools) })
        }
    }

    private func living(_ session: StreamOneSession, _ tools: any ResourceTools) -> StreamOneSession? {
        if session.deadline >= tools.time.now { return session }
        forget(session.id, tools)
        return nil
    }

    /// What the store says of the session, unless something newer is known by now.
    private func taken(_ held: HeldCredential?, _ id: String) -> StreamOneSession? {
        state.withLock { state in
            let isOvertaken = state.endLookup(id)
            // Somebody else may have been quicker, and renewed it since.
            if let known = state.known[id] { return known.session }
            guard !isOvertaken, let held, let session = StreamOneSession(id, held) else { return nil }
            state.keep(Known(session: session, storedDeadline: session.deadline), most: Self.mostKnown)
            return session
        }
    }

    /// `completion` is called, on the writer's thread, when the session is on disk, or cannot be brought there.
    func add(_ session: StreamOneSession, _ tools: any ResourceTools, completion: @escaping @Sendable (Bool) -> Void) {
        state.withLock { state in
            state.ending.remove(session.id)
            state.keep(Known(session: session, storedDeadline: session.deadline), most: Self.mostKnown)
        }
        tools.change([.hold(credential(of: session))], completion: completion)
    }

    /// After an answer of the platform's own. One that was forgotten meanwhile stays so.
    func renew(_ id: String, until deadline: Timestamp, _ tools: any ResourceTools) {
        state.withLock { state in
            guard var known = state.known[id] else { return }
            known.session.deadline = deadline
            let change =
                known.storedDeadline > deadline ? known.storedDeadline - deadline : deadline - known.storedDeadline
            if change >= Self.slack {
                known.storedDeadline = deadline
                // With the lock held, so that it cannot come after the end of the session; nobody waits for it.
                tools.change([.hold(credential(of: known.session))]) { _ in }
            }
            state.known[id] = known
        }
    }

    /// At once for all who ask here; `completion` is called when it is on disk too, or cannot be brought there.
    func forget(
        _ id: String, _ tools: any ResourceTools, completion: @escaping @Sendable () -> Void = {}
    ) {
        state.withLock { state in
            state.known[id] = nil
            state.ending.insert(id)
            state.lookups[id]?.isOvertaken = true
        }
        tools.change([.drop(credentialOf: owner(of: id))]) { [self] _ in
            state.withLock { state in _ = state.ending.remove(id) }
            completion()
        }
    }

    private func owner(of id: String) -> String { "session/\(realm)/\(id)" }

    private func credential(of session: StreamOneSession) -> Credential {
        Credential(
            owner: owner(of: session.id), value: Array(session.key.utf8), note: session.user,
            expiresAt: session.deadline, isKept: true)
    }
}

extension StreamOneSessions.State {
    /// Has the session ended since the lookup began?
    fileprivate mutating func endLookup(_ id: String) -> Bool {
        guard var lookup = lookups[id] else { return false }
        lookup.count -= 1
        lookups[id] = lookup.count > 0 ? lookup : nil
        return lookup.isOvertaken
    }

    fileprivate mutating func keep(_ known: StreamOneSessions.Known, most: Int) {
        if self.known.count >= most, self.known[known.session.id] == nil, let first = self.known.keys.first {
            self.known[first] = nil
        }
        self.known[known.session.id] = known
    }
}

extension StreamOneSession {
    fileprivate init?(_ id: String, _ held: HeldCredential) {
        guard !held.isRefused, let deadline = held.expiresAt else { return nil }
        self.init(id: id, key: String(decoding: held.value, as: UTF8.self), user: held.note, deadline: deadline)
    }
}
