import PosternCore
import PosternSimulatorKit

/// The state of the simulated server. A value; `CurioSimulator` guards it.
///
/// It grows with visitors, sessions, and what is open, as the server's does. Rejected requests leave nothing.
struct CurioState: Sendable {
    var settings = CurioSettings()
    var random: SplitMix64
    var sessions: [String: Session] = [:]
    var visitors: [String: Visitor] = [:]
    /// By their code. Those of a session that was ended are forgotten.
    var openings: [String: Opening] = [:]
    var counts = Counts()

    /// What `GET /control` shows. Those of visitors, sessions, and what is open are filled in for that.
    struct Counts: Encodable, Sendable {
        var visitors = 0
        var sessions = ["live": 0, "ended": 0, "timedOut": 0, "killed": 0, "adopted": 0]
        var openScreens = 0
        var openEvents = 0
        /// The number without repeats.
        var actions = Dictionary(uniqueKeysWithValues: Action.Kind.allCases.map { ($0, 0) })
        var repeats = 0
        var acceptedRequests = 0
        /// The number of responses with 401.
        var refusedSessions = 0
        /// Sessions started by a visitor after another one of it was refused.
        var recreations = 0
        /// The number of responses with 412.
        var wrongCredentials = 0
        /// Left open by the end of their session.
        var orphanScreens = 0
        var orphanEvents = 0
    }

    init(seed: UInt64) { random = SplitMix64(state: seed) }

    // MARK: Sessions

    /// Whether the session is live; one that has been idle for too long is not from then on.
    mutating func checkLive(_ code: String, at moment: Moment) -> Bool {
        guard let session = sessions[code], session.life == .live else { return false }
        let timeout = settings.sessionTimeoutMinutes.map { Duration.seconds($0 * 60) } ?? session.timeout
        if moment.instant < session.lastSeenAt + timeout { return true }
        sessions[code]?.life = .timedOut
        return false
    }

    /// Ends live sessions of one visitor, or of all when `visitor` is empty.
    mutating func killSessions(of visitor: String, at moment: Moment) {
        for code in Array(sessions.keys) where visitor.isEmpty || sessions[code]?.visitor == visitor {
            if checkLive(code, at: moment) { sessions[code]?.life = .killed }
        }
    }

    mutating func start(_ code: String, for request: Request, at moment: Moment) {
        let visitor = request.visitor
        sessions[code] = Session(
            visitor: visitor, index: sessions.count, device: request.device, timeout: request.timeout,
            lastSeenAt: moment.instant)
        let refused = visitors[visitor]?.refused ?? []
        guard !refused.isEmpty else { return }
        counts.recreations += 1
        for code in refused { sessions[code]?.isReplaced = true }
        visitors[visitor]?.refused = []
    }

    /// The client's end of a session: nothing of it can be closed any more.
    mutating func end(_ code: String) {
        for opened in sessions[code]?.codes ?? [] {
            guard let opening = openings.removeValue(forKey: opened), !opening.isClosed else { continue }
            if opening.kind == .event { counts.orphanEvents += 1 } else { counts.orphanScreens += 1 }
        }
        sessions[code]?.codes = []
        sessions[code]?.life = .ended
        if let visitor = sessions[code]?.visitor { visitors[visitor]?.refused.remove(code) }
    }

    /// Every request that quotes a live session renews it (A3).
    mutating func renew(_ code: String, _ request: Request, at moment: Moment) {
        guard checkLive(code, at: moment) else { return }
        sessions[code]?.lastSeenAt = moment.instant
        if request.timeoutMinutes != nil { sessions[code]?.timeout = request.timeout }
    }

    // MARK: Codes

    /// A code of the server for a screen or event, and the response that contains it.
    mutating func newCode(_ name: String) -> (code: String, answer: SimulatedAnswer) {
        let hex = hexDigits(random.next()) + hexDigits(random.next())
        let number = "7\((0..<17).map { _ in String(Int.random(in: 0...9, using: &random)) }.joined())"
        func json(_ value: String) -> SimulatedAnswer {
            SimulatedAnswer(
                status: 200, headers: [("Content-Type", "application/json")], body: Array("{\"\(name)\":\(value)}".utf8)
            )
        }
        switch settings.codeForm {
        case .string: return (hex, json("\"\(hex)\""))
        case .number: return (number, json(number))
        case .mixed:
            switch Int.random(in: 0...2, using: &random) {
            case 0: return (hex, json("\"\(hex)\""))
            case 1: return (number, json(number))
            default: return ("\(hex)+/ü=", json("\"\(hex)+\\/\\u00fc=\""))
            }
        case .missing:
            return (
                hex,
                SimulatedAnswer(
                    status: 200, headers: [("Content-Type", "application/json")],
                    body: Array("{\"result\":\"ok\"}".utf8))
            )
        case .html:
            return (
                hex,
                SimulatedAnswer(status: 200, headers: [("Content-Type", "text/html")], body: Array("<html>".utf8))
            )
        }
    }

    /// A code for a session that the server creates: a version-1 UUID.
    mutating func newSessionCode(at moment: Moment) -> String {
        let time = UInt64(bitPattern: moment.now.milliseconds &* 10_000 &+ 122_192_928_000_000_000)
        let low = hexDigits(time, count: 8)
        let middle = hexDigits(time >> 32, count: 4)
        let high = hexDigits(time >> 48 & 0x0fff | 0x1000, count: 4)
        let sequence = hexDigits(random.next() & 0x3fff | 0x8000, count: 4)
        let node = hexDigits(random.next() | 1 << 40, count: 12)
        return "\(low)-\(middle)-\(high)-\(sequence)-\(node)"
    }
}

extension Request {
    /// At most sixty years: nothing lives that long.
    var timeout: Duration { .seconds(60 * Int64(min(timeoutMinutes ?? 30, 31_536_000))) }
}
