import PosternCore
import PosternUpstream

/// Whether an action fits what was accepted before it, and what has to be stored about it (the specification's A17).
///
/// Runs inside the transaction that stores the message: a few reads, one or two changes.
struct Acceptance {
    let settings: CurioSettings
    let candidate: PendingMessage
    let state: any UpstreamState

    func changes() throws(AcceptanceError) -> [StateChange] {
        guard let kind = CurioKind(candidate.kind), let action = Action(candidate.payload, of: kind) else {
            return []
        }
        var changes: [StateChange]
        if case .sessionStart(let device) = action.content {
            changes = try start(action, device)
        } else {
            changes = try continueSession(with: action)
        }
        let queued = state.queued(inLane: action.visitor, atMost: settings.maxCachedActivityCount)
        guard queued < settings.maxCachedActivityCount else {
            throw AcceptanceError(
                .full,
                "this visitor has \(settings.maxCachedActivityCount) undelivered actions, as many as are kept "
                    + "(maxCachedActivityCount); try again later")
        }
        if endsWait(action, behind: queued) { changes.append(.wake(lane: action.visitor)) }
        return changes
    }

    private func start(_ action: Action, _ device: Device) throws(AcceptanceError) -> [StateChange] {
        guard state.session(action.session) == nil else {
            throw AcceptanceError(.conflict, "this sessionCode was used before; every session needs a new one")
        }
        let session = Session(
            visitor: action.visitor, startedAt: action.timestamp, device: device, touchedAt: candidate.acceptedAt)
        return [set(session, of: action.session)]
    }

    private func continueSession(with action: Action) throws(AcceptanceError) -> [StateChange] {
        guard var session = state.session(action.session),
            // Compared byte by byte, as lanes are.
            session.visitor.utf8.elementsEqual(action.visitor.utf8)
        else {
            throw AcceptanceError(
                .unknownSession,
                "no session of this visitor has this sessionCode; send a session_start with it first, or with a new "
                    + "one if it is old")
        }
        guard !session.isEnded else {
            throw AcceptanceError(
                .unknownSession, "this session has ended; send a session_start with a new sessionCode first")
        }
        var changes = try remember(action)
        let isOld = candidate.acceptedAt - session.touchedAt > settings.renewal
        session.isEnded = action.kind == .sessionEnd
        if isOld || session.isEnded {
            session.touchedAt = candidate.acceptedAt
            changes.append(set(session, of: action.session))
        }
        return changes
    }

    private func set(_ session: Session, of code: String) -> StateChange {
        let retention = session.isEnded ? settings.endedRetention : settings.idleRetention
        return .set(
            key: Key.session(code), value: session.bytes,
            expiry: StateChange.Expiry(at: candidate.acceptedAt + retention, lane: session.visitor))
    }

    // MARK: Screens and events

    private func remember(_ action: Action) throws(AcceptanceError) -> [StateChange] {
        switch action.content {
        case .open(let texts, let mark): return try open(texts, mark, in: action)
        case .close(_, _, let mark): return try close(mark, in: action)
        case .sessionStart, .sessionEnd, .direct: return []
        }
    }

    /// The latest one of its mark is at the front; one that was open before moves behind it.
    private func open(_ texts: Texts, _ mark: String, in action: Action) throws(AcceptanceError) -> [StateChange] {
        let key = Key.open(texts.subject, mark, of: action.session)
        let covered = state.open(at: key)
        let open = OpenInterval(
            id: candidate.id, timestamp: action.timestamp, texts: texts.subject == .screen ? texts : nil,
            covers: covered?.id)
        var changes: [StateChange] = [.set(key: key, value: open.bytes)]
        if let covered {
            changes.append(.set(key: Key.covered(covered.id, of: action.session), value: covered.bytes))
        }
        return changes
    }

    /// Takes the latest one of its mark, and stores with the end what it has to know about it.
    private func close(_ mark: String, in action: Action) throws(AcceptanceError) -> [StateChange] {
        let subject: Texts.Subject = action.kind == .screenEnd ? .screen : .event
        let key = Key.open(subject, mark, of: action.session)
        guard let open = state.open(at: key) else {
            throw AcceptanceError(.conflict, subject.advice)
        }
        var changes: [StateChange] = [
            .set(key: Key.closing(candidate.id, of: action.session), value: open.bytes)
        ]
        if let id = open.covers, let covered = state.open(at: Key.covered(id, of: action.session)) {
            changes.append(.set(key: key, value: covered.bytes))
            changes.append(.remove(key: Key.covered(id, of: action.session)))
        } else {
            changes.append(.remove(key: key))
        }
        return changes
    }

    // MARK: Waiting

    /// Screens and events wait for their period, unless any other action arrives or a batch is full.
    private func endsWait(_ action: Action, behind queued: Int) -> Bool {
        guard let period = settings.dispatchPeriod, queued > 0 else { return false }
        let age = candidate.acceptedAt - Timestamp(milliseconds: action.timestamp)
        return !action.kind.isPeriodic || age > period + settings.onlineMaxAge
            || queued + 1 >= CurioSettings.maxRecords
    }
}

extension Texts.Subject {
    fileprivate var advice: String {
        switch self {
        case .screen: "no screen of this screenClass is open in the session; send its screen_start first"
        case .event: "no event of this eventKey and eventValue is open in the session; send its event first"
        }
    }
}
