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
            remote = state.remote(of: action.session)
        }
        if case .close = action.content {
            closed = state.open(at: Key.closing(message.id, of: action.session)).map { open in
                let code = state.code(of: open.id, in: action.session)
                return Closed(open: open, code: code ?? (opens.contains(open.id) ? .own : nil))
            }
        } else {
            closed = nil
        }
    }

    /// The device block of the session; its start contains it.
    var device: Device? {
        if case .sessionStart(let device) = action.content { return device }
        return session?.device
    }

    func route(_ settings: CurioSettings, now: Timestamp) -> Route {
        if let reason = hindrance { return .never(reason: reason) }
        guard action.kind.isBatchable else { return .online }
        // A device's clock may be ahead.
        let age = now - min(Timestamp(milliseconds: action.timestamp), message.acceptedAt)
        let hasFailed = message.mayHaveArrived || message.wasRetried || remote.rounds > CurioSettings.maxRounds
        if hasFailed || closed?.code == .missing { return .offline }
        if action.kind.isPeriodic, let period = settings.dispatchPeriod {
            return age > period + settings.onlineMaxAge ? .offline : .periodic
        }
        // A session that is not alive cannot be ended online.
        if age > settings.onlineMaxAge || action.kind == .sessionEnd && remote.mustBeCreated { return .offline }
        return .online
    }

    /// Why it can no longer be delivered.
    private var hindrance: String? {
        guard device != nil else {
            return "its session is forgotten, and with it the device block that every request of it may need"
        }
        if let refusal = remote.refusal, action.kind != .sessionStart {
            return "the session_start of its session was refused: \(refusal)"
        }
        guard case .close = action.content else { return nil }
        switch closed?.code {
        case .server, .own, .missing: return nil
        case .refused: return "what it ends was refused"
        case nil: return "what it ends was never sent"
        }
    }
}

// MARK: - What is sent for it

extension Item {
    /// The texts of a screen or an event; for an end, those of its start.
    private var texts: Texts? {
        switch action.content {
        case .open(let texts, _): texts
        case .close(let texts, _, _): texts ?? closed?.open.texts
        case .sessionStart, .sessionEnd, .direct: nil
        }
    }

    private func senderCode(of open: MessageID) -> String {
        Code.open(open, session: action.session, visitor: action.visitor)
    }

    /// The request for this item alone. Its session is alive, or created by this request.
    func request(_ requests: Requests) -> UpstreamRequest? {
        let reference = Requests.SessionReference(visitor: action.visitor, session: remote.code(of: action.session))
        switch action.content {
        case .sessionStart: return creation(requests)
        case .sessionEnd: return requests.sessionEnd(at: reference)
        case .open(let texts, _): return requests.open(texts, at: reference)
        case .close(_, let duration, _):
            guard let texts, let closed else { return nil }
            let code = if case .server(let code) = closed.code { code } else { senderCode(of: closed.open.id) }
            return requests.close(texts, duration: duration, code: code, at: reference)
        case .direct(let parameters): return requests.direct(action.kind, parameters, at: reference)
        }
    }

    /// The request that creates the session.
    func creation(_ requests: Requests) -> UpstreamRequest? {
        device.map {
            requests.sessionStart(
                $0, at: .init(visitor: action.visitor, session: remote.codeToCreate(action.session)))
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
        case .open(let texts, _):
            return [record(.open(texts, code: senderCode(of: message.id)), at: action.timestamp)]
        case .close(_, let duration, _):
            guard let texts, let closed else { return [] }
            let code = senderCode(of: closed.open.id)
            switch closed.code {
            case .server(let given):
                return [record(.close(texts, duration: duration, code: given), at: action.timestamp)]
            case .missing:
                return [
                    record(.open(texts, code: code), at: closed.open.timestamp),
                    record(.close(texts, duration: duration, code: code), at: action.timestamp),
                ]
            case .own, .refused, nil:
                return [record(.close(texts, duration: duration, code: code), at: action.timestamp)]
            }
        case .direct: return []
        }
    }
}
