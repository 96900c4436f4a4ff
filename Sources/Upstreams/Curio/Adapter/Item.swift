import PosternCore
import PosternUpstream

/// A queued action with what is known about its session, which determines how it is sent.
struct Item {
    let message: Message
    let action: Action
    /// Nil once the session is forgotten.
    let session: Session?
    let remote: RemoteSession
    /// The start that an end closes.
    let closed: Closed?

    struct Closed {
        let open: OpenInterval
        /// The session of the start.
        let session: String
        /// Nil if the start was never accepted.
        let code: IntervalCode?
    }

    /// How it has to be sent (the specification's 5.4).
    enum Route: Equatable {
        case online, periodic, offline
        /// It is not sent.
        case never(reason: String)
    }

    /// Nil if the payload is not one of this type.
    ///
    /// `previous` saves reading the same session again; `opens` precede it in the same batch.
    init?(
        _ message: Message, after previous: Item? = nil, behind opens: Set<MessageID> = [],
        in state: any UpstreamState
    ) {
        guard let action = Action(message) else { return nil }
        self.init(message, action, after: previous, behind: opens, in: state)
    }

    /// Those of a batch, whose actions were read before.
    static func items(_ messages: [Message], _ actions: [Action], in state: any UpstreamState) -> [Item] {
        var items: [Item] = []
        for (message, action) in zip(messages, actions) {
            items.append(Item(message, action, after: items.last, in: state))
        }
        return items
    }

    private init(
        _ message: Message, _ action: Action, after previous: Item?, behind opens: Set<MessageID> = [],
        in state: any UpstreamState
    ) {
        self.message = message
        self.action = action
        if let previous, previous.action.session == action.session {
            session = previous.session
            remote = previous.remote
        } else {
            session = state.session(action.session)
            remote = state.remote(of: action.session, session)
        }
        if case .close = action.content {
            closed = state.open(at: Key.closing(message.id, of: action.session)).map { open in
                let session = open.session ?? action.session
                let code = state.code(of: open.id, in: session)
                return Closed(open: open, session: session, code: code ?? (opens.contains(open.id) ? .own : nil))
            }
        } else {
            closed = nil
        }
    }

    /// The device block of the session; its start contains it.
    var device: Device? {
        if case .sessionStart(let device, _) = action.content { return device }
        return session?.device
    }

    /// The session's own timeout; its start contains it.
    var timeoutMinutes: Int? {
        if case .sessionStart(_, let timeout) = action.content { return timeout }
        return session?.timeoutMinutes
    }

    func route(_ settings: CurioSettings, now: Timestamp) -> Route {
        if let reason = hindrance { return .never(reason: reason) }
        guard action.kind.isBatchable else { return .online }
        // A device's clock may be ahead.
        let age = now - min(Timestamp(milliseconds: action.timestamp), message.acceptedAt)
        let hasFailed = message.mayHaveArrived || message.wasRetried || remote.rounds > CurioSettings.maxRounds
        if hasFailed || closed?.code == .missing { return .offline }
        if let form = action.sentIn {
            let isAlive = !remote.mustBeCreated && session?.isAdopted == false && session.map(precedesEnd(of:)) == true
            return form == .batch && action.kind.isPeriodic && isAlive ? .periodic : .offline
        }
        if action.kind.isPeriodic, let period = settings.dispatchPeriod {
            return age > period + settings.onlineMaxAge ? .offline : .periodic
        }
        // A session that is not alive cannot be ended online.
        if age > settings.onlineMaxAge || action.kind == .sessionEnd && remote.mustBeCreated { return .offline }
        return .online
    }

    private func precedesEnd(of session: Session) -> Bool { session.end.map { message.id < $0 } ?? true }

    /// Why it can no longer be delivered.
    private var hindrance: String? {
        guard device != nil else {
            return "its session is forgotten, and with it the device block that every request of it may need"
        }
        if let refusal = remote.refusal, action.kind != .sessionStart {
            return "the session_start of its session was refused: \(refusal)"
        }
        guard case .close(_, _, _, let code) = action.content else { return nil }
        // The start of a code that is not known was reported elsewhere.
        if closed == nil, code != nil { return nil }
        switch closed?.code {
        case .server, .own, .missing: return nil
        case .refused: return "what it ends was refused"
        case nil: return "what it ends was never sent"
        }
    }
}

// MARK: - What is sent for it

extension Item {
    /// The texts of an end: those of its start, and none if neither contains them.
    private var endTexts: Texts {
        let subject: Texts.Subject = action.kind == .screenEnd ? .screen : .event
        let given: Texts? = if case .close(let texts, _, _, _) = action.content { texts } else { nil }
        return closed?.open.texts ?? given ?? Texts(subject: subject, first: "", second: "")
    }

    /// The code that an end quotes: the upstream's, or else that of the start's record. Nil if it is not known.
    private var endCode: String? {
        guard let closed else { return action.code }
        if case .server(let code) = closed.code { return code }
        return closed.open.code ?? Code.open(closed.open.id, session: closed.session, visitor: action.visitor)
    }

    /// How a request identifies the session, which is alive.
    var reference: Requests.SessionReference {
        .init(visitor: action.visitor, session: remote.code(of: action.session), timeoutMinutes: timeoutMinutes)
    }

    /// The request for this item alone. Its session is alive, or created by this request.
    func request(_ requests: Requests) -> UpstreamRequest? {
        switch action.content {
        case .sessionStart: return creation(requests)
        case .sessionEnd: return requests.sessionEnd(at: reference)
        case .open(let texts, _, _): return requests.open(texts, at: reference)
        case .close(_, let duration, _, _):
            return endCode.map { requests.close(endTexts, duration: duration, code: $0, at: reference) }
        case .direct(let parameters): return requests.direct(action.kind, parameters, at: reference)
        }
    }

    /// The request that creates the session.
    func creation(_ requests: Requests) -> UpstreamRequest? {
        device.map {
            let code = remote.codeToCreate(action.session)
            return requests.sessionStart(
                $0, at: .init(visitor: action.visitor, session: code, timeoutMinutes: timeoutMinutes))
        }
    }

    /// Its record in a batch. An end whose start has no code includes the start.
    func records(session code: String) -> [Record] {
        func record(_ step: Record.Step, at timestamp: Int64) -> Record {
            Record(step: step, timestamp: timestamp, session: code)
        }
        switch action.content {
        case .sessionStart: return [record(.sessionStart, at: action.timestamp)]
        case .sessionEnd: return [record(.sessionEnd, at: action.timestamp)]
        case .open(let texts, _, let given):
            let code = given ?? Code.open(message.id, session: action.session, visitor: action.visitor)
            return [record(.open(texts, code: code), at: action.timestamp)]
        case .close(_, let duration, _, _):
            guard let code = endCode else { return [] }
            let close = record(.close(endTexts, duration: duration, code: code), at: action.timestamp)
            guard let closed, closed.code == .missing else { return [close] }
            return [record(.open(endTexts, code: code), at: closed.open.timestamp), close]
        case .direct: return []
        }
    }
}
