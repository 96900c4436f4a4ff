import PosternCore
import Synchronization

/// Cached responses, and reads in flight that several callers share (the specification's 7.4).
///
/// Bounded: the oldest responses are evicted. Any thread.
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
            /// For `hasToken` and roles; removed with its session.
            case rights(session: String?)
        }

        init(_ call: StreamOneCall, by actor: StreamOneActor, user: String? = nil, for use: Use = .requests) {
            var call = call
            call.arguments.sort { $0.name < $1.name }
            self.call = call
            self.actor = actor
            self.user = user
            self.use = use
        }

        fileprivate var cost: Int {
            call.arguments.reduce(512) { $0 + $1.name.utf8.count + $1.value.utf8.count }
        }
    }

    /// A read in flight. The caller that leads it sends it; callers with the same read wait for that response.
    final class Flight: @unchecked Sendable {
        // @unchecked: the variables are touched with the cache's lock held.
        fileprivate let key: Key
        /// Responses are not shared between sessions: they contain the session's remaining time, and its end.
        fileprivate let session: String?
        fileprivate var deadline: MonotonicInstant
        fileprivate var followers: [Follower] = []
        /// Whether there was a write meanwhile, so that the result of this read may be stale.
        fileprivate var isOvertaken = false

        fileprivate init(_ key: Key, session: String?, deadline: MonotonicInstant) {
            self.key = key
            self.session = session
            self.deadline = deadline
        }
    }

    /// A caller that waits for the response of a flight.
    fileprivate struct Follower {
        let number: Int
        let deadline: MonotonicInstant
        let continuation: CheckedContinuation<Lookup, Never>
    }

    enum Lookup: Sendable {
        case hit(Answer, age: Duration)
        /// The response that the leader of the same read got.
        case shared(Result<Answer, CallFailure>)
        /// The caller has to send the read, and then calls `land` or `handOver` exactly once.
        case lead(Flight)
    }

    private struct Entry {
        let answer: Answer
        let storedAt: MonotonicInstant
        let expiresAt: MonotonicInstant
        let number: Int
        let cost: Int
    }

    private struct State {
        /// By command: a write concerns those of its own.
        var entries: [String: [Key: Entry]] = [:]
        /// In the order of storing, including some that have been removed; the first `gone` certainly have.
        var order: [(key: Key, number: Int)] = []
        var gone = 0
        var bytes = 0
        var stored = 0
        var flights: [Key: [Flight]] = [:]

        var count: Int { entries.values.reduce(0) { $0 + $1.count } }
        subscript(key: Key) -> Entry? { entries[key.call.command]?[key] }
    }

    private let state = Mutex(State())
    private let followerNumbers = Atomic<Int>(0)
    private let maxBytes: Int

    init(maxBytes: Int) { self.maxBytes = maxBytes }

    var bytes: Int { state.withLock { $0.bytes } }
    var count: Int { state.withLock { $0.count } }

    // MARK: Queries

    /// Returns a cached response, the response of a flight that has no more time than the caller, or a new flight to
    /// lead. If the task is cancelled while it waits, it gets `.abandoned`; the flight continues.
    func find(_ key: Key, session: String?, deadline: MonotonicInstant, now: MonotonicInstant) async -> Lookup {
        let number = followerNumbers.wrappingAdd(1, ordering: .relaxed).newValue
        return await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                let found = state.withLock { state -> Lookup? in
                    if let entry = state[key], entry.expiresAt > now {
                        return .hit(entry.answer, age: now - entry.storedAt)
                    }
                    let latest = state.flights[key]?.last { $0.session == session }
                    if let flight = latest, !flight.isOvertaken, flight.deadline <= deadline {
                        flight.followers.append(
                            Follower(number: number, deadline: deadline, continuation: continuation))
                        return nil
                    }
                    let flight = Flight(key, session: session, deadline: deadline)
                    state.flights[key, default: []].append(flight)
                    return .lead(flight)
                }
                if let found { return continuation.resume(returning: found) }
                // The task may have been cancelled before there was a follower to remove.
                if Task.isCancelled { leave(number) }
            }
        } onCancel: {
            leave(number)
        }
    }

    private func leave(_ number: Int) {
        let follower = state.withLock { state -> Follower? in
            for flight in state.flights.values.joined() {
                guard let index = flight.followers.firstIndex(where: { $0.number == number }) else { continue }
                return flight.followers.remove(at: index)
            }
            return nil
        }
        follower?.continuation.resume(returning: .shared(.failure(.abandoned)))
    }

    /// Ends the flight with `result` for all its followers. A response that `isKept` is cached for `lifetime`, unless
    /// there was a write meanwhile.
    func land(
        _ flight: Flight, _ result: Result<Answer, CallFailure>, isKept: Bool, for lifetime: Duration,
        now: MonotonicInstant
    ) {
        let followers = state.withLock { state in
            end(flight, &state)
            if isKept, !flight.isOvertaken, case .success(let answer) = result {
                store(answer, under: flight.key, for: lifetime, now, &state)
            }
            return flight.followers
        }
        for follower in followers { follower.continuation.resume(returning: .shared(result)) }
    }

    /// The leader has run out of time, or has hung up. The follower with the least remaining time becomes the leader;
    /// without one, the flight ends.
    func handOver(_ flight: Flight, now: MonotonicInstant) {
        let (next, late) = state.withLock { state in
            let late = flight.followers.filter { $0.deadline <= now }
            flight.followers.removeAll { $0.deadline <= now }
            let next = flight.followers.min { $0.deadline < $1.deadline }
            if let next {
                flight.followers.removeAll { $0.number == next.number }
                flight.deadline = next.deadline
            } else {
                end(flight, &state)
            }
            return (next, late)
        }
        for follower in late {
            follower.continuation.resume(returning: .shared(.failure(.late(CallFailure.lateness))))
        }
        next?.continuation.resume(returning: .lead(flight))
    }

    private func end(_ flight: Flight, _ state: inout State) {
        state.flights[flight.key]?.removeAll { $0 === flight }
        if state.flights[flight.key]?.isEmpty ?? false { state.flights[flight.key] = nil }
    }

    // MARK: Storing

    private func store(
        _ answer: Answer, under key: Key, for lifetime: Duration, _ now: MonotonicInstant,
        _ state: inout State
    ) {
        let cost = answer.bytes.count + key.cost
        guard lifetime > .zero, cost <= maxBytes / 4 else { return }
        remove(key, &state)
        state.stored += 1
        state.entries[key.call.command, default: [:]][key] = Entry(
            answer: answer, storedAt: now, expiresAt: now + lifetime, number: state.stored, cost: cost)
        state.order.append((key, state.stored))
        state.bytes += cost
        makeRoom(now, &state)
    }

    /// Removes the oldest responses: those that have expired, and as many as needed to make room.
    private func makeRoom(_ now: MonotonicInstant, _ state: inout State) {
        while state.gone < state.order.count {
            let oldest = state.order[state.gone]
            if let entry = state[oldest.key], entry.number == oldest.number {
                guard entry.expiresAt <= now || state.bytes > maxBytes else { break }
                remove(oldest.key, &state)
            }
            state.gone += 1
        }
        guard state.order.count > 2 * state.count + 256 else { return }
        state.order = state.order.filter { state[$0.key]?.number == $0.number }
        state.gone = 0
    }

    private func remove(_ key: Key, _ state: inout State) {
        let command = key.call.command
        guard let entry = state.entries[command]?.removeValue(forKey: key) else { return }
        state.bytes -= entry.cost
        if state.entries[command]?.isEmpty ?? false { state.entries[command] = nil }
    }

    // MARK: Invalidation

    /// A write of `command` about `scope` took effect, or may have: removes what it can have changed. Which customer an
    /// account belongs to is not known, so only responses about other accounts are kept.
    func invalidate(_ command: String, _ scope: Scope) {
        drop(command) { Self.touches(scope, $0.call.scope) }
    }

    private static func touches(_ written: Scope, _ read: Scope) -> Bool {
        guard case .accounts(let written) = written, case .accounts(let read) = read else { return true }
        return !Set(written).isDisjoint(with: read)
    }

    /// Removes what is cached about the rights of a user, or of the actor itself.
    func forgetRights(of user: String?) {
        for command in ["user", "application", "api"] {
            drop(command) { $0.user == user && Actions.isAboutRights($0.call) }
        }
    }

    /// Removes what is cached for the session.
    func forget(session: String) {
        for command in ["user", "application", "api"] { drop(command) { $0.use == .rights(session: session) } }
    }

    private func drop(_ command: String, where isDue: (Key) -> Bool) {
        state.withLock { state in
            for key in (state.entries[command] ?? [:]).keys where isDue(key) { remove(key, &state) }
            for flight in state.flights.values.joined() where flight.key.call.command == command && isDue(flight.key) {
                flight.isOvertaken = true
            }
        }
    }
}
