import PosternCore
import PosternSimulatorKit

/// The state of the platform. A value; the simulator guards it.
struct StreamOneState: Sendable {
    private(set) var settings = StreamOneSettings()
    var random: SplitMix64
    /// The oldest of each are removed if there are too many.
    var challenges = Recent<Challenge>(limit: 10_000)
    var sessions = Recent<Session>(limit: 10_000)
    private var signatures = Recent<MonotonicInstant>(limit: 16_384)
    /// By actor, or by a client's `userip`.
    private var failures = Recent<Failures>(limit: 1_000)
    /// The number of calls by the status of their response.
    private(set) var statuses: [Status: Int] = [:]

    struct Challenge: Sendable {
        var application: String
        /// Nil if there is no user of that name.
        var user: String?
        var address: String
        /// What the response contained.
        var needsV2Hash: Bool
        var endsAt: MonotonicInstant
        var isUsed = false
    }

    struct Session: Sendable {
        var application: String
        var user: String
        var key: String
        var endsAt: MonotonicInstant
        /// By its owner.
        var isDeleted = false
        /// Whether a response has notified the gateway of the end.
        var isEndKnown = false
        /// By the platform, without a notification.
        var isForgotten = false

        func isAlive(at instant: MonotonicInstant) -> Bool { !isDeleted && !isForgotten && endsAt >= instant }
    }

    private struct Failures: Sendable {
        var count = 0
        var blockedUntil: MonotonicInstant?
    }

    /// The caller, after its signature was verified.
    struct Actor {
        /// Nil for a user that signs by itself.
        var application: String?
        /// The user of the call; nil for an application outside a session.
        var user: String?
        var session: String?
    }

    init(seed: UInt64) {
        random = SplitMix64(state: seed)
        settings.seed = Int(clamping: seed)
    }

    // MARK: Steering

    mutating func change(_ body: [UInt8]) throws(ControlProblem) {
        let request = try ControlRequest<StreamOneSettings, Commands>(body, changing: settings)
        settings = request.settings
        if request.names.contains("seed") { random = SplitMix64(state: UInt64(settings.seed)) }
        if !request.names.isDisjoint(with: ["applications", "users", "failuresUntilRateLimited", "rateLimitSeconds"]) {
            failures = Recent(limit: 1_000)
        }
    }

    mutating func forgetSessions() {
        sessions.forEach { $0.isForgotten = true }
    }

    mutating func useNextStatus() -> Status {
        if !settings.nextStatus.isEmpty { return Status(rawValue: settings.nextStatus.removeFirst()) }
        guard !settings.statusRate.isEmpty else { return .ok }
        var left = random.fraction()
        for (status, rate) in settings.statusRate.sorted(by: { $0.key < $1.key }) {
            left -= rate
            if left < 0 { return Status(rawValue: status) }
        }
        return .ok
    }

    mutating func count(_ status: Status) { statuses[status, default: 0] += 1 }

    /// The platform has a hash of the second kind from now on.
    mutating func convert(user id: String) {
        guard let position = settings.users.firstIndex(where: { $0.id == id }) else { return }
        settings.users[position].needsV2Hash = false
    }

    // MARK: Authentication

    func checkTimestamp(
        _ call: Call, at moment: Moment, _ violations: inout [String]
    ) throws(StreamOneError) {
        guard let text = call.parameters["timestamp"], !text.isEmpty, let seconds = Int64(text),
            text.utf8.allSatisfy(\.isDigit)
        else {
            violations.append("a timestamp that is not a number of whole seconds")
            throw .status(.timestampOutOfRange)
        }
        let now = moment.now.milliseconds / 1000
        let tolerance = Int64(settings.clockSkewToleranceSeconds)
        guard (now - tolerance...now + tolerance).contains(seconds) else { throw .status(.timestampOutOfRange) }
        if settings.clockOffsetSeconds == 0, now - seconds > 60 {
            violations.append("a timestamp more than 60 seconds old: calls are to be signed when they are sent")
        }
    }

    mutating func authenticate(
        _ call: Call, at moment: Moment, _ violations: inout [String]
    ) throws(StreamOneError) -> Actor {
        var (actor, key, name) = try identify(call, &violations)
        if checkBlock(name, at: moment) { throw .status(.rateLimited) }
        var session: Session?
        if let id = call.session {
            let found = try live(id, of: actor, call, at: moment, &violations)
            key? += found.key
            actor.session = id
            actor.user = found.user
            session = found
        }
        guard let signature = call.parameters["signature"] else {
            violations.append("no signature")
            throw .status(.authenticationFailed)
        }
        let isWritten = call.checkEncoding(&violations)
        let isRight = key.map { Password.signature(of: call.signedText, key: $0) == signature }
        if isRight == false { violations.append("a signature that does not match") }
        guard isWritten, isRight == true else {
            fail(name, at: moment)
            throw .status(.authenticationFailed)
        }
        succeed(name)
        record(signature, at: call.sentAt ?? moment.instant, &violations)
        if session != nil, let id = call.session { renew(id, at: moment) }
        return actor
    }

    /// The actor that the call names, its key, and a name for counting failures. Without a key if the actor is unknown.
    private func identify(
        _ call: Call, _ violations: inout [String]
    ) throws(StreamOneError) -> (Actor, key: String?, name: String) {
        let isUser: Bool
        switch call.parameters["authentication_type"] {
        case nil, "user": isUser = true
        case "application": isUser = false
        default:
            violations.append("an authentication_type other than user and application")
            throw .status(.authenticationFailed)
        }
        let strangers = isUser ? ["application", "session"] : ["user"]
        if let stranger = strangers.first(where: { call.parameters[$0] != nil }) {
            violations.append("a parameter \(stranger) with the other authentication_type")
            throw .status(.unknownParameter)
        }
        guard let id = call.parameters[isUser ? "user" : "application"], !id.isEmpty else {
            violations.append("no \(isUser ? "user" : "application")")
            throw .status(.authenticationFailed)
        }
        return isUser
            ? (Actor(user: id), settings.user(id)?.psk, "user \(id)")
            : (Actor(application: id), settings.application(id)?.psk, "application \(id)")
    }

    private mutating func live(
        _ id: String, of actor: Actor, _ call: Call, at moment: Moment, _ violations: inout [String]
    ) throws(StreamOneError) -> Session {
        guard let session = sessions[id], session.application == actor.application else {
            throw .status(.sessionNotFound)
        }
        if session.isAlive(at: moment.instant) { return session }
        if session.isDeleted {
            if session.isEndKnown, call.name != "session/delete" {
                violations.append("a call in a session that was deleted")
            }
            if !call.isAnswerLost { sessions.update(id) { $0.isEndKnown = true } }
        } else if !session.isForgotten, moment.instant - session.endsAt > Self.grace {
            violations.append("a call in a session long after its deadline")
        }
        throw .status(.sessionNotFound)
    }

    /// Responses take time to reach the gateway, whose deadlines start when they arrive.
    private static let grace = Duration.seconds(10)

    private mutating func renew(_ id: String, at moment: Moment) {
        let end = moment.instant + .seconds(settings.sessionTimeoutSeconds)
        sessions.update(id) { $0.endsAt = end }
    }

    /// Two equal calls within a second have the same signature; one that is repeated later was not signed again.
    private mutating func record(_ signature: String, at instant: MonotonicInstant, _ violations: inout [String]) {
        guard let first = signatures[signature] else { return signatures.insert(signature, instant) }
        if instant - first >= .seconds(3) {
            violations.append("a signature sent again: each attempt has to be signed again")
        }
    }

    // MARK: Rate limits

    mutating func checkBlock(_ name: String, at moment: Moment) -> Bool {
        failures[name]?.blockedUntil.map { moment.instant < $0 } ?? false
    }

    mutating func succeed(_ name: String) { failures.update(name) { $0.count = 0 } }

    mutating func fail(_ name: String, at moment: Moment) {
        guard settings.failuresUntilRateLimited > 0 else { return }
        if failures[name] == nil { failures.insert(name, Failures()) }
        let (limit, end) = (
            settings.failuresUntilRateLimited, moment.instant + .seconds(settings.rateLimitSeconds)
        )
        failures.update(name) { failures in
            failures.count += 1
            guard failures.count >= limit else { return }
            failures = Failures(blockedUntil: end)
        }
    }
}
