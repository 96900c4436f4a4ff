/// What `GET /control` tells.
extension CurioState {
    mutating func json(at moment: Moment) -> String {
        var lives: [String: Int] = [:]
        for code in Array(sessions.keys) where isLive(code, at: moment) { lives["live", default: 0] += 1 }
        for session in sessions.values {
            switch session.life {
            case .live: break
            case .ended: lives["ended", default: 0] += 1
            case .timedOut: lives["timedOut", default: 0] += 1
            case .killed: lives["killed", default: 0] += 1
            case .adopted: lives["adopted", default: 0] += 1
            }
        }
        var open = (screens: 0, events: 0)
        var orphans = (screens: counts.orphanScreens, events: counts.orphanEvents)
        for opening in openings.values where !opening.isClosed {
            let isOpen = sessions[opening.session].map { $0.life == .live } ?? false
            let (screens, events) = opening.kind == .event ? (0, 1) : (1, 0)
            if isOpen {
                open = (open.screens + screens, open.events + events)
            } else {
                orphans = (orphans.screens + screens, orphans.events + events)
            }
        }
        let sessionCounts = ["live", "ended", "timedOut", "killed", "adopted"].map { "\"\($0)\":\(lives[$0] ?? 0)" }
        let actionCounts = CurioAction.Kind.allCases.map { "\"\($0.rawValue)\":\(counts.actions[$0] ?? 0)" }
        return """
            {"apiKey":\(quoted(settings.apiKey)),"trackingCode":\(quoted(settings.trackingCode)),\
            "sessionTimeoutMinutes":\(settings.sessionTimeoutMinutes.map { "\($0)" } ?? "null"),\
            "killSessionRate":\(settings.killSessionRate),"codeForm":"\(settings.codeForm.rawValue)",\
            "adoptOtherSessionCode":\(settings.adoptOtherSessionCode),\
            "visitors":\(visitors.count),"sessions":{\(sessionCounts.joined(separator: ","))},\
            "actions":{\(actionCounts.joined(separator: ","))},"repeats":\(counts.repeats),\
            "recreations":\(counts.recreations),"refusedSessions":\(counts.refusedSessions),\
            "wrongCredentials":\(counts.wrongCredentials),"openScreens":\(open.screens),"openEvents":\(open.events),\
            "orphanScreens":\(orphans.screens),"orphanEvents":\(orphans.events)}
            """
    }
}
