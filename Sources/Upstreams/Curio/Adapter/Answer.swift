import PosternCore
import PosternUpstream

/// What a response of Curio means (the specification's section 6).
struct Answer {
    private let response: UpstreamResponse
    private let endpoint: Endpoint
    private let warning: String?
    private let now: Timestamp
    /// The items as they were when the request was built. Only this delivery changes what is known about a visitor.
    private let items: [Item]

    init(
        _ response: UpstreamResponse, from endpoint: Endpoint, to items: [Item], settings: CurioSettings,
        at now: Timestamp
    ) {
        self.response = response
        self.endpoint = endpoint
        self.items = items
        self.now = now
        warning = endpoint == .periodic ? settings.warning : nil
    }

    private var first: Item { items[0] }
    /// The request was to create the session, for an action that follows.
    private var isStep: Bool { endpoint == .visitCreate && first.action.kind != .sessionStart }

    var outcome: Outcome {
        switch response.status {
        case 200: return taken
        case 200..<300:
            var outcome = taken
            outcome.judgement.notice = "HTTP \(response.status) instead of 200; treated as a success"
            return outcome
        case 401: return sessionGone
        case 412: return held(.credentials, "HTTP 412: the api key or the tracking code is wrong")
        case 406, 415: return refused
        default:
            let verdict = Verdict.usual(for: response, now: now)
            switch verdict {
            case .split: return refused
            case .holdUpstream(let reason, let detail): return held(reason, detail)
            default: return Outcome(verdict)
            }
        }
    }

    /// Credentials and URL are the same for all endpoints: nothing more is sent for the app.
    private func held(_ reason: Verdict.HoldReason, _ detail: String) -> Outcome {
        Outcome(.holdUpstream(reason, detail: detail), holdsAll: true)
    }

    // MARK: Taken

    private var taken: Outcome {
        var remote = first.remote
        remote.rounds = 0
        switch endpoint {
        case .visitCreate:
            remote.hasStarted(as: remote.codeToCreate(first.action.session), for: first.action.session)
            if isStep {
                // Whether that session is alive becomes known with the action itself.
                remote.rounds = first.remote.rounds
                return Outcome(.proceed(progress: []), changes: changes(to: remote))
            }
        case .hitCreate, .eventCreate:
            let code = CurioAnswerBody(response.body).code(named: endpoint == .hitCreate ? "hitCode" : "eventCode")
            let value: IntervalCode = code.map { .server($0) } ?? .missing
            let key = Key.code(of: first.message.id, in: first.action.session)
            return Outcome(
                .delivered(), changes: [.set(key: key, value: value.bytes)] + changes(to: remote),
                notice: code == nil ? "the response contains no code; the end of such a start includes it again" : nil)
        case .offline: return Outcome(.delivered(), changes: offlineChanges + cleanUp)
        case .hitEnd, .eventEnd, .visitEnd, .periodic, .push, .location, .userTags, .unregister: break
        }
        return Outcome(.delivered(), changes: changes(to: remote) + cleanUp, notice: warning.map { UpstreamNotice($0) })
    }

    /// Actions that were sent in batches have generated codes. What has ended is no longer needed.
    private var cleanUp: [StateChange] {
        items.flatMap { item -> [StateChange] in
            let session = item.action.session
            switch item.action.content {
            case .open:
                let key = Key.code(of: item.message.id, in: session)
                return [.set(key: key, value: IntervalCode.own.bytes)]
            case .close:
                let closing = StateChange.remove(key: Key.closing(item.message.id, of: session))
                guard let closed = item.closed else { return [closing] }
                return [closing, .remove(key: Key.code(of: closed.open.id, in: closed.session))]
            case .sessionStart, .sessionEnd, .direct: return []
            }
        }
    }

    /// Sessions that began with this batch, and the code that the answer may have given the last one.
    private var offlineChanges: [StateChange] {
        let batch = OfflineBatch(items)
        var remotes: [String: RemoteSession] = [:]
        for item in items { remotes[item.action.session] = item.remote }
        for (session, code) in batch.started { remotes[session]?.hasStarted(as: code, for: session) }
        if let open = batch.openSession, let remote = remotes[open.caller],
            let code = CurioAnswerBody(response.body).code(named: "sessionCode"),
            code != open.code, code != remote.code(of: open.caller)
        {
            remotes[open.caller]?.hasStarted(as: code, for: open.caller)
        }
        var changes: [StateChange] = []
        for item in items {
            guard var remote = remotes.removeValue(forKey: item.action.session) else { continue }
            remote.rounds = 0
            if remote != item.remote {
                changes.append(.set(key: Key.remote(of: item.action.session), value: remote.bytes))
            }
        }
        return changes
    }

    // MARK: Not taken

    /// The session's code is dead.
    private var sessionGone: Outcome {
        var remote = first.remote
        switch endpoint {
        case .visitEnd: return Outcome(.delivered(), changes: cleanUp)
        case .offline: return Outcome(.suspect(after: nil))
        case .visitCreate: remote.refusedStarts += 1
        case .periodic: remote.keepRecordCode(of: first.action.session, through: items[items.count - 1].message.id)
        case .hitCreate, .hitEnd, .eventCreate, .eventEnd, .push, .location, .userTags, .unregister: break
        }
        if endpoint != .visitCreate { remote.rounds += 1 }
        let session = first.action.session
        remote.pending = Code.session(
            insteadOf: endpoint == .visitCreate ? remote.codeToCreate(session) : remote.code(of: session), of: session,
            visitor: first.action.visitor, round: remote.rounds + remote.refusedStarts, at: now)
        if remote.refusedStarts > 1 {
            var outcome = held(.credentials, "HTTP 401 for two new sessions: the api key may be wrong")
            outcome.changes = changes(to: remote)
            return outcome
        }
        guard remote.rounds > 1, endpoint != .visitCreate else {
            return Outcome(.proceed(progress: []), changes: changes(to: remote))
        }
        return Outcome(.backOff, changes: changes(to: remote))
    }

    /// The messages are the cause; for a single one, also what follows from its rejection.
    private var refused: Outcome {
        let reason = "HTTP \(response.status)"
        let isStart = isStep || items.count == 1 && first.action.kind == .sessionStart
        if isStart, first.message.mayHaveArrived, first.remote.refusedStarts == 0 { return startedUnderAnotherCode }
        if isStep {
            // The session itself is rejected, and with it all its actions.
            var remote = first.remote
            remote.refusal = reason
            return Outcome(.proceed(progress: []), changes: changes(to: remote))
        }
        var changes: [StateChange] = []
        if items.count == 1 {
            switch first.action.content {
            case .sessionStart:
                var remote = first.remote
                remote.refusal = reason
                changes = self.changes(to: remote)
            case .open:
                let key = Key.code(of: first.message.id, in: first.action.session)
                changes = [.set(key: key, value: IntervalCode.refused.bytes)]
            case .close, .sessionEnd, .direct: break
            }
        }
        return Outcome(.split(reason: reason), changes: changes)
    }

    /// An earlier attempt, whose response was lost, may have created the session, and its code may have expired since:
    /// only the rejection of a new one is final (A4).
    private var startedUnderAnotherCode: Outcome {
        var remote = first.remote
        let session = first.action.session
        remote.refusedStarts = 1
        remote.pending = Code.session(
            insteadOf: remote.codeToCreate(session), of: session, visitor: first.action.visitor,
            round: remote.rounds + remote.refusedStarts, at: now)
        return Outcome(.proceed(progress: []), changes: changes(to: remote))
    }

    private func changes(to remote: RemoteSession) -> [StateChange] {
        remote == first.remote ? [] : [.set(key: Key.remote(of: first.action.session), value: remote.bytes)]
    }
}

extension RemoteSession {
    /// The upstream accepted the session under `code`.
    fileprivate mutating func hasStarted(as code: String, for session: String) {
        isStarted = true
        replacement = code == session ? nil : code
        pending = nil
        refusal = nil
        refusedStarts = 0
    }

    /// Records up to that message were sent with the current code and keep it.
    fileprivate mutating func keepRecordCode(of session: String, through last: MessageID) {
        if let earlier, last <= earlier.through { return }
        earlier = Earlier(code: code(of: session), through: last)
    }
}

/// The only relevant value of a response's body.
private struct CurioAnswerBody {
    private let body: [UInt8]
    /// A longer value is not a code.
    private static let longest = 1024

    init(_ body: [UInt8]) { self.body = body }

    /// A string, or a number digit by digit; nil if there is none, or if it is empty.
    func code(named name: StaticString) -> String? {
        let found = JSONParser.ofThisThread.parse(body) { json -> String? in
            guard json.kind == .object, let value = json[name] else { return nil }
            switch value.kind {
            case .string: return value.string
            case .number: return String(decoding: value.bytes, as: UTF8.self)
            case .object, .array, .true, .false, .null: return nil
            }
        }
        guard case .success(let code?) = found, !code.isEmpty, code.utf8.count <= Self.longest else { return nil }
        return code
    }
}
