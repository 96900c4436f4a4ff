import PosternSimulatorKit

/// The effects of a request that is accepted.
extension CurioState {
    struct Acceptance {
        var answer: SimulatedAnswer
        var items = SimulatedResult.Items()
        var findings: Findings
    }

    mutating func take(_ request: Request, at moment: Moment) -> Acceptance {
        var taken = Acceptance(answer: SimulatedAnswer(status: 200), findings: request.findings)
        counts.acceptedRequests += 1
        if visitors[request.visitor] == nil { visitors[request.visitor] = Visitor() }
        renew(request.session, request, at: moment)
        let known = visitors[request.visitor]?.window ?? []
        var fresh = 0
        for var action in request.actions {
            if isRepeat(action, of: request, known) {
                counts.repeats += 1
                if action.kind == .sessionStart, sessions[action.session]?.device != request.device {
                    taken.findings.record("a session started again with another device block")
                }
                if fresh > 0 { taken.findings.record("a repeat after something new") }
            } else {
                fresh += 1
                counts.actions[action.kind, default: 0] += 1
                take(&action, of: request, at: moment, &taken)
            }
            renew(action.session, request, at: moment)
            taken.items.append(
                action.json(after: "\"mode\":\"\(request.mode)\",\"request\":\(counts.acceptedRequests),"),
                identity: action.identity)
        }
        if fresh > 0 { moveWindow(to: request) }
        for (name, value) in request.tags { visitors[request.visitor]?.tags[name] = value }
        switch request.endpoint {
        case .offline: taken.answer = offlineAnswer(to: request, at: moment)
        case .profileTags: taken.answer = tagsAnswer(to: request.visitor)
        case .pushHistory: taken.answer = .json(200, "{}")
        case .visitCreate, .hitCreate, .hitEnd, .eventCreate, .eventEnd, .visitEnd, .batch, .pushData, .location,
            .userTag, .unregister:
            break
        }
        return taken
    }

    /// A start that is sent alone may be repeated for as long as its session lives (A4).
    private func isRepeat(_ action: Action, of request: Request, _ known: Set<UInt64>) -> Bool {
        if request.endpoint == .visitCreate { return sessions[action.session] != nil }
        return action.hasIdentity && known.contains(action.identity)
    }

    /// A start of a session may arrive between a batch and its repeat. It is then a new session for that repeat.
    private mutating func moveWindow(to request: Request) {
        let brought = request.actions.filter(\.hasIdentity).map(\.identity)
        if request.endpoint != .visitCreate { visitors[request.visitor]?.window = [] }
        visitors[request.visitor]?.window.formUnion(brought)
    }

    // MARK: Actions

    private mutating func take(
        _ action: inout Action, of request: Request, at moment: Moment, _ taken: inout Acceptance
    ) {
        if request.mode != .online, action.kind != .sessionStart { check(action, of: request, &taken.findings) }
        switch action.kind {
        case .sessionStart: takeStart(action, of: request, at: moment, &taken.findings)
        case .sessionEnd: if sessions[action.session]?.visitor == request.visitor { end(action.session) }
        case .screenStart, .event:
            if action.code == nil, let name = action.kind.codeName {
                let made = newCode(name)
                action.code = made.code
                taken.answer = made.answer
            }
            open(action, &taken.findings)
        case .screenEnd, .eventEnd: close(action, of: request, &taken.findings)
        case .pushToken, .notificationRead, .customID, .location, .userTags, .unregister: break
        }
    }

    /// Checks a record of a batch against its session.
    private func check(_ action: Action, of request: Request, _ findings: inout Findings) {
        guard let session = sessions[action.session] else {
            return findings.record("a record before the start of session \(action.session)")
        }
        if session.visitor != request.visitor { return findings.record("a record of another visitor's session") }
        if session.life == .ended { findings.record("a record after the end of its session") }
        if let device = request.device, let own = session.device, device != own {
            findings.record("a record with another device block than session \(action.session)")
        }
    }

    private mutating func takeStart(
        _ action: Action, of request: Request, at moment: Moment, _ findings: inout Findings
    ) {
        guard let session = sessions[action.session] else { return start(action.session, for: request, at: moment) }
        if session.visitor != request.visitor { return findings.record("a session code of another visitor") }
        findings.record("a session started twice")
    }

    private mutating func open(_ action: Action, _ findings: inout Findings) {
        guard let code = action.code else { return }
        guard openings[code] == nil else { return findings.record("a code used for two starts") }
        openings[code] = Opening(
            kind: action.kind, visitor: action.visitor, session: action.session, pair: action.pair)
        sessions[action.session]?.codes.append(code)
    }

    private mutating func close(_ action: Action, of request: Request, _ findings: inout Findings) {
        guard let code = action.code, let opening = openings[code] else {
            return findings.record("an end that quotes an unknown code")
        }
        if opening.visitor != action.visitor { return findings.record("an end that quotes another visitor's code") }
        if opening.kind != action.kind.opening {
            return findings.record("an end that quotes a code of another kind")
        }
        if opening.isClosed { return findings.record("a second end for one start") }
        if let pair = action.pair, pair != opening.pair { findings.record("an end with other texts than its start") }
        // A record keeps the session in which its device has recorded it, whichever has replaced that (5.2).
        if request.mode == .online, isMisplaced(action.session, closing: opening.session) {
            findings.record("an end in an earlier session than its start")
        }
        openings[code]?.isClosed = true
    }

    /// A session that replaced another one closes what is open there, not the other way round.
    private func isMisplaced(_ session: String, closing other: String) -> Bool {
        guard session != other, let own = sessions[session], let opened = sessions[other] else { return false }
        return own.isHealthy && opened.isHealthy && own.index < opened.index
    }

    // MARK: Answers

    private mutating func offlineAnswer(to request: Request, at moment: Moment) -> SimulatedAnswer {
        guard var code = request.actions.last?.session else { return SimulatedAnswer(status: 200) }
        if settings.adoptOtherSessionCode, sessions[code]?.visitor == request.visitor, checkLive(code, at: moment) {
            let other = newSessionCode(at: moment)
            start(other, for: request, at: moment)
            sessions[code]?.life = .adopted(into: other)
        }
        if case .adopted(let other)? = sessions[code]?.life { code = other }
        return SimulatedAnswer(
            status: 200, headers: [("Content-Type", "application/json")],
            body: Array("{\"sessionCode\":\(quoted(code))}".utf8))
    }

    private func tagsAnswer(to visitor: String) -> SimulatedAnswer {
        let tags = (visitors[visitor]?.tags ?? [:]).sorted { $0.key < $1.key }
        return .json(200, "{" + tags.map { "\(quoted($0.key)):\(quoted($0.value))" }.joined(separator: ",") + "}")
    }
}

extension SimulatedResult.Items {
    fileprivate mutating func append(_ item: String, identity: UInt64) {
        let start = text.count
        text.append(contentsOf: item.utf8)
        ranges.append(start..<text.count)
        identities.append(identity)
    }
}
