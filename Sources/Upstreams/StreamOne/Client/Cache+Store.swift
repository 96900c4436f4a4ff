import PosternCore
import PosternUpstream
import Synchronization

/// The copies of cached responses in the store.
extension Cache {
    /// Whether `load` has to be called before the next call.
    var needsLoading: Bool { !isLoaded.load(ordering: .acquiring) }

    /// A response that is larger is kept in memory only, so that no commit of messages waits long for it.
    private static let maxCopied = 1 << 20

    /// How to keep the response to a call that was made in `session`, if at all.
    func keeping(
        _ answer: Answer, of key: Key, in session: Session?, for lifetime: Duration, now: Timestamp
    ) -> Retention {
        let keeping = Retention(lifetime: lifetime)
        guard let cipher, policy.place(of: key.use) == .store, answer.bytes.count <= Self.maxCopied else {
            return keeping
        }
        let row = cipher.row(of: key)
        let response = StoredResponse(
            key: key, answer: answer, session: session?.id, storedAt: now, expiresAt: now + lifetime)
        guard let value = cipher.value(of: response, sessionKey: session?.key ?? "", in: row) else { return keeping }
        return Retention(
            lifetime: lifetime, copy: (row, .cache(key: row, value: value, until: response.expiresAt)))
    }

    /// Reads the copies, once. Other calls wait for it.
    func load(_ context: any UpstreamRouteContext, sessionOwner: @escaping @Sendable (String) -> String) async {
        guard let cipher, await beginsLoading() else { return }
        let maxRows = policy.maxBytes / 512
        // If the store cannot be read, the platform is asked, and the next call tries again.
        let found = try? await context.read { state in
            StoredResponses(in: state, atMost: maxRows, cipher, sessionOwner)
        }
        let time = context.time
        let waiting = state.withLock { state -> [CheckedContinuation<Bool, Never>] in
            guard case .running(let waiting, let isStale) = state.loading else { return [] }
            state.loading = found == nil ? .needed : .ended
            isLoaded.store(found != nil, ordering: .releasing)
            guard let found else { return waiting }
            // Something was removed of which it is not known whether it was read.
            if isStale {
                context.enqueue([.removeAll(below: CacheCipher.root)])
            } else {
                for (row, response) in found.responses {
                    insert(response, row, time.now, time.instant, &state)
                }
                let evicted = state.takeEvictedRows() + found.unreadable.map { .remove(key: $0) }
                if !evicted.isEmpty { context.enqueue(evicted) }
            }
            return waiting
        }
        for continuation in waiting { continuation.resume(returning: false) }
    }

    private func beginsLoading() async -> Bool {
        await withCheckedContinuation { continuation in
            let begins = state.withLock { state -> Bool? in
                switch state.loading {
                case .ended: return false
                case .running(let waiting, let isStale):
                    state.loading = .running(waiting: waiting + [continuation], isStale: isStale)
                    return nil
                case .needed:
                    state.loading = .running(waiting: [], isStale: false)
                    return true
                }
            }
            if let begins { continuation.resume(returning: begins) }
        }
    }

    /// By today's settings, which may be others than those with which it was stored.
    private func insert(
        _ response: StoredResponse, _ row: String, _ now: Timestamp, _ instant: MonotonicInstant, _ state: inout State
    ) {
        guard state[response.key] == nil else { return }
        let use = response.key.use
        let lifetime = min(response.expiresAt - response.storedAt, policy.lifetime(of: use))
        let age = now - response.storedAt
        let cost = response.answer.bytes.count + response.key.cost
        guard policy.place(of: use) == .store, age >= .zero, age < lifetime, cost <= policy.maxBytes / 4 else {
            return state.evictedRows.append(.remove(key: row))
        }
        let storedAt = instant + (.zero - age)
        let entry = Entry(
            answer: response.answer, storedAt: storedAt, expiresAt: storedAt + lifetime, number: state.stored + 1,
            cost: cost, session: response.session, row: row)
        insert(entry, under: response.key, instant, &state)
    }
}

extension Cache.State {
    mutating func takeEvictedRows() -> [StateChange] {
        defer { evictedRows = [] }
        return evictedRows
    }

    /// Returns whether the copies have not been read, so that it is not known which of them have to be removed.
    mutating func markLoadingStale() -> Bool {
        if case .running(let waiting, _) = loading { loading = .running(waiting: waiting, isStale: true) }
        if case .ended = loading { return false }
        return true
    }
}

/// What the store holds.
private struct StoredResponses: Sendable {
    /// With their rows, the oldest first.
    let responses: [(row: String, response: StoredResponse)]
    /// Rows of other credentials, of sessions that have ended, or of an earlier form.
    let unreadable: [String]

    init(
        in state: any UpstreamState, atMost maxRows: Int, _ cipher: CacheCipher, _ sessionOwner: (String) -> String
    ) {
        var sessionKeys: [String: String?] = [:]
        var (responses, unreadable): ([(row: String, response: StoredResponse)], [String]) = ([], [])
        for (row, value) in state.values(below: CacheCipher.root, atMost: maxRows) {
            let response = cipher.response(in: row, value) { session in
                if let known = sessionKeys[session] { return known }
                let held = state.credential(of: sessionOwner(session))
                let key = held.flatMap { $0.isRefused ? nil : String(decoding: $0.value, as: UTF8.self) }
                sessionKeys[session] = .some(key)
                return key
            }
            if let response { responses.append((row, response)) } else { unreadable.append(row) }
        }
        self.responses = responses.sorted { $0.response.storedAt < $1.response.storedAt }
        self.unreadable = unreadable
    }
}
