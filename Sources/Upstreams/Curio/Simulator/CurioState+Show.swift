import PosternSimulatorKit

/// What `GET /control` shows besides the settings.
extension CurioState {
    private struct Shown: Encodable {
        var visitors = 0
        var sessions = ["live": 0, "ended": 0, "timedOut": 0, "killed": 0, "adopted": 0]
        var actions: [String: Int] = [:]
        var repeats = 0
        var recreations = 0
        var refusedSessions = 0
        var wrongCredentials = 0
        var openScreens = 0
        var openEvents = 0
        var orphanScreens = 0
        var orphanEvents = 0
    }

    mutating func shown(at moment: Moment) -> [JSONTree.Member] {
        for code in Array(sessions.keys) { _ = checkLive(code, at: moment) }
        var shown = Shown(
            visitors: visitors.count, repeats: counts.repeats, recreations: counts.recreations,
            refusedSessions: counts.refusedSessions, wrongCredentials: counts.wrongCredentials,
            orphanScreens: counts.orphanScreens, orphanEvents: counts.orphanEvents)
        for kind in Action.Kind.allCases { shown.actions[kind.rawValue] = counts.actions[kind] ?? 0 }
        for session in sessions.values { shown.sessions[session.life.name, default: 0] += 1 }
        for opening in openings.values where !opening.isClosed {
            switch (opening.kind, sessions[opening.session]?.life == .live) {
            case (.event, true): shown.openEvents += 1
            case (.event, false): shown.orphanEvents += 1
            case (_, true): shown.openScreens += 1
            case (_, false): shown.orphanScreens += 1
            }
        }
        return settings.shown + (tree(of: shown).members ?? [])
    }
}

extension Session.Life {
    fileprivate var name: String {
        switch self {
        case .live: "live"
        case .ended: "ended"
        case .timedOut: "timedOut"
        case .killed: "killed"
        case .adopted: "adopted"
        }
    }
}
