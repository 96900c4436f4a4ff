import PosternSimulatorKit

/// What `GET /control` shows besides the settings.
extension CurioState {
    mutating func shown(at moment: Moment) -> [JSONTree.Member] {
        for code in Array(sessions.keys) { _ = checkLive(code, at: moment) }
        var shown = counts
        shown.visitors = visitors.count
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
