import PosternCore
import PosternSimulatorKit

// Logging in and out (specification, section 5).
extension StreamOneState {
    mutating func initialize(
        _ call: Call, _ actor: Actor, at moment: Moment, _ violations: inout [String]
    ) throws(StreamOneError) -> Answer {
        let application = try applicationItself(call, actor, &violations)
        try expect(call, ["user", "userip"], &violations)
        let (name, address) = (call.arguments["user"] ?? "", call.arguments["userip"] ?? "")
        if checkBlock(Self.failures(of: address), at: moment) { throw .status(.rateLimited) }
        let user = settings.user(named: name)
        let challenge = text(of: 32, from: Self.alphanumerics)
        challenges.insert(
            challenge,
            Challenge(
                application: application, user: user?.id, address: address, needsV2Hash: user?.needsV2Hash ?? false,
                endsAt: moment.instant + .seconds(settings.challengeTimeoutSeconds)))
        return Answer(
            body: """
                {"challenge":\(phpQuoted(challenge)),"salt":\(phpQuoted(user.map(\.shownSalt) ?? Self.fakeSalt(for: name))),\
                "needsv2hash":\(user?.needsV2Hash ?? false)}
                """)
    }

    /// `verifier`: the verifier of the challenge's user; nil if there is none.
    mutating func create(
        _ call: Call, _ actor: Actor, verifier: Verifier?, at moment: Moment,
        _ violations: inout [String]
    ) throws(StreamOneError) -> Answer {
        let application = try applicationItself(call, actor, &violations)
        let hash = call.arguments["v2hash"]
        try expect(call, hash == nil ? ["challenge", "response"] : ["challenge", "response", "v2hash"], &violations)
        let text = call.arguments["challenge"] ?? ""
        guard let challenge = challenges[text], challenge.application == application else {
            violations.append("a challenge that was never given")
            throw .status(.sessionInvalid)
        }
        guard !challenge.isUsed else {
            violations.append("a challenge used twice: a login is never repeated")
            throw .status(.sessionInvalid)
        }
        challenges.update(text) { $0.isUsed = true }
        if checkBlock(Self.failures(of: challenge.address), at: moment) { throw .status(.rateLimited) }
        if challenge.needsV2Hash, hash == nil {
            violations.append("no v2hash, though it was asked for")
            throw .status(.sessionNeedsV2Hash)
        }
        if !challenge.needsV2Hash, hash != nil { violations.append("a v2hash that was not asked for") }
        guard challenge.endsAt >= moment.instant else { throw .status(.sessionInvalid) }
        let user = challenge.user.flatMap(settings.user(_:))
        if let user, !Password.isSalt(user.shownSalt) {
            violations.append("a login that went on after a salt that cannot be used")
        }
        let response = call.arguments["response"] ?? ""
        guard let user, let kept = verifier?.value(for: user),
            Password.accepts(response: response, challenge: text, verifier: kept),
            !challenge.needsV2Hash || hash == Password.md5(user.password ?? "")
        else {
            fail(Self.failures(of: challenge.address), at: moment)
            throw .status(.sessionInvalid)
        }
        succeed(Self.failures(of: challenge.address))
        if challenge.needsV2Hash { convert(user: user.id) }
        return open(for: user, application: application, at: moment)
    }

    mutating func delete(
        _ call: Call, _ actor: Actor, _ violations: inout [String]
    ) throws(StreamOneError) -> Answer {
        guard let session = actor.session else {
            violations.append("session/delete outside a session")
            throw .status(.sessionNotFound)
        }
        if !call.arguments.pairs.isEmpty { violations.append("session/delete with arguments") }
        sessions.update(session) { ($0.isDeleted, $0.isEndKnown) = (true, !call.isAnswerLost) }
        return Answer()
    }

    private mutating func open(
        for user: StreamOneSettings.User, application: String, at moment: Moment
    ) -> Answer {
        let (id, key) = (
            text(of: 12, from: Self.alphanumerics + Array("-_".utf8)), text(of: 32, from: Self.alphanumerics)
        )
        let timeout = settings.sessionTimeoutSeconds
        sessions.insert(
            id,
            Session(application: application, user: user.id, key: key, endsAt: moment.instant + .seconds(timeout)))
        return Answer(
            body: """
                {"id":\(phpQuoted(id)),"key":\(phpQuoted(key)),"timeout":\(timeout),"user":\(phpQuoted(user.id))}
                """)
    }

    /// Only an application outside a session may log in a user.
    private func applicationItself(
        _ call: Call, _ actor: Actor, _ violations: inout [String]
    ) throws(StreamOneError) -> String {
        guard let application = actor.application, actor.session == nil else {
            violations.append("\(call.name) by an actor other than an application outside a session")
            throw .status(.accessDenied)
        }
        return application
    }

    private func expect(
        _ call: Call, _ names: Set<String>, _ violations: inout [String]
    ) throws(StreamOneError) {
        let filled = call.arguments.pairs.filter { !$0.value.isEmpty }.map(\.name)
        guard Set(filled) == names, call.arguments.pairs.count == names.count else {
            violations.append("\(call.name) with other arguments than \(names.sorted().joined(separator: ", "))")
            throw .status(.inputError)
        }
    }

    private static func failures(of address: String) -> String { "userip \(address)" }

    private static let alphanumerics = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789".utf8)

    private mutating func text(of count: Int, from letters: [UInt8]) -> String {
        String(
            decoding: (0..<count).map { _ in letters[Int.random(in: 0..<letters.count, using: &random)] },
            as: UTF8.self)
    }

    /// The same each time, so that it does not reveal whether a user exists.
    private static func fakeSalt(for name: String) -> String {
        var random = SplitMix64(state: Array(name.utf8).withUnsafeBufferPointer { digest($0) })
        let letters = alphanumerics.suffix(36)
        return "$2y$12$"
            + String(decoding: (0..<22).compactMap { _ in letters.randomElement(using: &random) }, as: UTF8.self)
    }
}

/// What the platform stores of one password. Computing it takes a quarter of a second, so it must not be done while the
/// lock is held.
struct Verifier: Sendable {
    private let password: String
    private let salt: String
    /// Nil if the salt cannot be used.
    private let value: String?

    init(for user: StreamOneSettings.User) {
        password = user.password ?? ""
        salt = user.shownSalt
        value = Password.verifier(password: password, salt: salt)
    }

    func isFor(_ user: StreamOneSettings.User) -> Bool { (user.password ?? "") == password && user.shownSalt == salt }

    /// Nil if it was computed for another password or salt.
    func value(for user: StreamOneSettings.User) -> String? { isFor(user) ? value : nil }
}
