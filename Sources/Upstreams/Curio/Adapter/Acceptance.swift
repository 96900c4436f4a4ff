import PosternCore
import PosternUpstream

/// Whether an action fits what was accepted before it, and what has to be stored about it (the specification's A17).
///
/// Runs inside the transaction that stores the message: a few reads, one or two changes.
struct Acceptance {
    let settings: CurioSettings
    let candidate: PendingMessage
    let state: any UpstreamState
    /// The request of an SDK that brings it; nil for the gateway's own API.
    private let arrival: SDKArrival?

    init(settings: CurioSettings, candidate: PendingMessage, state: any UpstreamState) {
        self.settings = settings
        self.candidate = candidate
        self.state = state
        arrival = state.draft as? SDKArrival
    }

    func changes() throws(AcceptanceError) -> [StateChange] {
        guard let kind = CurioKind(candidate.kind), let action = Action(candidate.payload, of: kind) else {
            return []
        }
        var changes: [StateChange]
        if case .sessionStart(let device, let timeout) = action.content {
            changes = try start(action, device, timeout)
        } else {
            changes = try continueSession(with: action)
        }
        if case .repeats? = changes.first { return changes }
        let queued = state.queued(inLane: action.visitor, atMost: settings.maxCachedActivityCount)
        // A batch of an SDK is not divided. If it is larger than the cap, it would never fit.
        guard queued < settings.maxCachedActivityCount || arrival?.isAlone == true else {
            throw AcceptanceError(
                .full,
                "this visitor has \(settings.maxCachedActivityCount) undelivered actions, as many as are kept "
                    + "(maxCachedActivityCount); try again later")
        }
        if endsWait(action, behind: queued) { changes.append(.wake(lane: action.visitor)) }
        return changes
    }

    private func start(
        _ action: Action, _ device: Device, _ timeoutMinutes: Int?
    ) throws(AcceptanceError) -> [StateChange] {
        let known = state.session(action.session)
        if let known {
            let isSame = arrival != nil && known.isOf(action.visitor)
            if isSame, let start = known.start { return [.repeats(start)] }
            guard isSame, !known.hasStarted else {
                throw AcceptanceError(.conflict, "this sessionCode was used before; every session needs a new one")
            }
        }
        var session =
            known
            ?? Session(
                visitor: action.visitor, startedAt: action.timestamp, device: device, touchedAt: candidate.acceptedAt,
                timeoutMinutes: timeoutMinutes)
        if arrival != nil {
            (session.start, session.touchedAt) = (candidate.id, candidate.acceptedAt)
        }
        return [session.change(of: action.session, at: candidate.acceptedAt, settings)]
    }

    private func continueSession(with action: Action) throws(AcceptanceError) -> [StateChange] {
        let (session, isNew) = try session(of: action)
        let known = action.code.flatMap { interval(ofCode: $0, action) }
        if case .close = action.content, let known, let end = known.closedBy, known.subject == action.subject {
            return [.repeats(end)]
        }
        if action.sentIn != nil {
            // A record is sent again until its answer has arrived.
            if case .open = action.content, let known, known.subject == action.subject { return [.repeats(known.id)] }
            if action.kind == .sessionEnd, let end = session.end { return [.repeats(end)] }
        } else if session.isEnded {
            throw AcceptanceError(
                .unknownSession, "this session has ended; send a session_start with a new sessionCode first")
        }
        var next = session
        if action.kind == .sessionEnd {
            next.isEnded = true
            if arrival != nil { next.end = candidate.id }
        }
        var changes = try remember(action, known, in: &next)
        let now = candidate.acceptedAt
        let isRenewed =
            arrival == nil
            ? now - session.touchedAt > settings.renewal(of: session)
            : session.isLive(at: now, settings) && now > session.touchedAt
        if isRenewed || next != session || isNew {
            if isRenewed || arrival == nil { next.touchedAt = now }
            changes.append(next.change(of: action.session, at: now, settings))
        }
        return changes
    }

    /// The session of the action, as it was accepted before. For a record of an SDK whose start was not, a new one.
    private func session(of action: Action) throws(AcceptanceError) -> (session: Session, isNew: Bool) {
        let known = state.session(action.session)
        if let known, known.isOf(action.visitor), known.hasStarted || action.sentIn != nil { return (known, false) }
        if known == nil, action.sentIn != nil, let arrival {
            let adopted = Session(
                visitor: action.visitor, startedAt: action.timestamp, device: arrival.device,
                touchedAt: candidate.acceptedAt, timeoutMinutes: arrival.timeoutMinutes, isAdopted: true)
            return (adopted, true)
        }
        throw AcceptanceError(
            .unknownSession,
            "no session of this visitor has this sessionCode; send a session_start with it first, or with a new "
                + "one if it is old")
    }

    // MARK: Screens and events

    /// - Parameter known: What has the action's code.
    private func remember(
        _ action: Action, _ known: OpenInterval?, in session: inout Session
    ) throws(AcceptanceError) -> [StateChange] {
        switch action.content {
        case .open(let texts, let mark, let code?):
            guard known == nil else {
                let name = texts.subject.names.code
                throw AcceptanceError(.conflict, "this visitor has used this \(name) before", at: "/\(name)")
            }
            session.hasCodes = true
            let open = OpenInterval(
                id: candidate.id, timestamp: action.timestamp, texts: texts, code: code,
                markHash: mark.map { Key.hash(texts.subject, mark: $0) })
            return opened(open, code, in: action, session.expiry(at: candidate.acceptedAt, settings))
        case .open(let texts, let mark?, nil): return open(texts, mark, in: action)
        case .close(_, _, _, .some):
            // A code that is not known is sent as it is.
            guard let known else { return [] }
            guard let subject = action.subject, known.subject == subject else {
                let name = action.subject?.names.code ?? ""
                throw AcceptanceError(.conflict, "this \(name) is the \(known.subject.names.code) of a start")
            }
            return closed(known, in: action)
        case .close(_, _, let mark?, nil): return try close(mark, in: action, session)
        case .close(_, _, nil, nil):
            guard let subject = action.subject, let open = state.newest(Key.index(of: subject), of: action.session)
            else { throw closesNothing }
            return closed(open, in: action)
        case .open, .close, .sessionStart, .sessionEnd, .direct: return []
        }
    }

    /// The visitor's screen or event with this code, in any of its sessions.
    private func interval(ofCode code: String, _ action: Action) -> OpenInterval? {
        if let own = state.open(at: Key.coded(code, of: action.session)) { return own }
        guard let bytes = state.value(of: Key.session(ofCode: code, visitor: action.visitor)) else { return nil }
        let session = String(decoding: bytes, as: UTF8.self)
        var other = state.open(at: Key.coded(code, of: session))
        other?.session = session
        return other
    }

    private func opened(
        _ open: OpenInterval, _ code: String, in action: Action, _ expiry: StateChange.Expiry
    ) -> [StateChange] {
        let session = action.session
        return [
            .set(key: Key.coded(code, of: session), value: open.bytes),
            .set(
                key: Key.session(ofCode: code, visitor: action.visitor), value: Array(session.utf8), expiry: expiry),
        ] + open.indexes.map { .set(key: Key.newest($0, open.id, of: session), value: Array(code.utf8)) }
    }

    /// Ends one with a code, and stores with the end what it has to know about it.
    private func closed(_ open: OpenInterval, in action: Action) -> [StateChange] {
        guard let code = open.code else { return [] }
        let session = open.session ?? action.session
        var closed = open
        (closed.closedBy, closed.session) = (candidate.id, nil)
        return [
            .set(key: Key.closing(candidate.id, of: action.session), value: open.bytes),
            .set(key: Key.coded(code, of: session), value: closed.bytes),
        ] + open.indexes.map { .remove(key: Key.newest($0, open.id, of: session)) }
    }

    /// The latest one of its mark is at the front; one that was open before moves behind it.
    private func open(_ texts: Texts, _ mark: String, in action: Action) -> [StateChange] {
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
    private func close(
        _ mark: String, in action: Action, _ session: Session
    ) throws(AcceptanceError) -> [StateChange] {
        let subject: Texts.Subject = action.kind == .screenEnd ? .screen : .event
        let key = Key.open(subject, mark, of: action.session)
        let plain = state.open(at: key)
        if session.hasCodes, let coded = state.newest(Key.hash(subject, mark: mark), of: action.session),
            plain.map({ $0.id < coded.id }) ?? true
        {
            return closed(coded, in: action)
        }
        guard let open = plain else {
            throw arrival == nil ? AcceptanceError(.conflict, subject.advice) : closesNothing
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

    private var closesNothing: AcceptanceError { AcceptanceError(.conflict, "closes nothing that was started") }

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
