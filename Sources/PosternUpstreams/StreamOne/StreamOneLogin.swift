import Foundation
import PosternCore
import PosternJSON

/// `POST /v1/{name}/sessions` and `DELETE /v1/{name}/sessions/{sessionCode}` (the specification's section 5).
struct StreamOneLogin: Sendable {
    let desk: StreamOneDesk
    private let hashing = Hashing()

    init(_ desk: StreamOneDesk) { self.desk = desk }

    var resources: [Resource] {
        [
            Resource(.post, "sessions", .perform(begin)),
            Resource(.delete, "sessions/{sessionCode}", .perform(end)),
        ]
    }

    // MARK: Beginning

    private struct Credentials: Sendable {
        let username: String
        let password: String
        /// The end user's, not ours: failed logins are counted by it.
        let userIP: String
    }

    /// A login under way.
    private struct Attempt: Sendable {
        let credentials: Credentials
        let deadline: MonotonicInstant
        let tools: any ResourceTools
        let completion: @Sendable (ResourceAnswer) -> Void
        /// Does the session outlive this run?
        let keepsKeys: Bool
        /// The platform wants the old hash although it did not say so at first.
        var sendsOldHash = false
    }

    private func begin(
        _ request: ResourceRequest, _ tools: any ResourceTools,
        _ completion: @escaping @Sendable (ResourceAnswer) -> Void
    ) {
        guard desk.platform.actor.kind == .application else { return completion(.needsApplication) }
        switch request.withObject(Self.credentials) {
        case .failure(let refusal): completion(refusal.answer)
        case .success(let credentials):
            let deadline = tools.time.instant + request.patience
            tools.read {
                $0.keepsCredentials
            } completion: { keepsKeys in
                initialize(
                    Attempt(
                        credentials: credentials, deadline: deadline, tools: tools, completion: completion,
                        keepsKeys: keepsKeys ?? false))
            }
        }
    }

    private static func credentials(_ body: JSONValue) throws(InvalidPayload) -> Credentials {
        var faults: [PayloadFault] = []
        func text(_ name: StaticString) -> String {
            if let value = body[name], value.isFilledString, let text = value.string { return text }
            faults.append(PayloadFault("/\(name)", "must be a non-empty string"))
            return ""
        }
        let credentials = Credentials(
            username: text("username"), password: text("password"), userIP: text("userip"))
        guard faults.isEmpty else { throw InvalidPayload(faults) }
        return credentials
    }

    private func initialize(_ attempt: Attempt) {
        let call = StreamOneCall(
            command: "session", action: "initialize",
            arguments: [.init("user", attempt.credentials.username), .init("userip", attempt.credentials.userIP)])
        desk.fetch(.init(call: call, deadline: attempt.deadline), attempt.tools) { outcome in
            guard let answer = success(outcome, attempt) else { return }
            guard let challenge = Challenge(answer) else { return attempt.completion(.unusableLogin) }
            respond(to: challenge, attempt)
        }
    }

    /// Hashing takes its time and must not hold up whoever brought the answer.
    private func respond(to challenge: Challenge, _ attempt: Attempt) {
        let isTaken = hashing.run {
            // Nobody waits for it any more, but others do for their turn.
            guard attempt.tools.time.instant < attempt.deadline else {
                return attempt.completion(StreamOneTrouble.late("The login did not get its turn in time.").answer)
            }
            let credentials = attempt.credentials
            guard
                let response = StreamOnePassword.response(
                    to: challenge.text, password: credentials.password, salt: challenge.salt)
            else { return attempt.completion(.unusableLogin) }
            var arguments = [StreamOneCall.Argument("challenge", challenge.text), .init("response", response)]
            if challenge.needsOldHash || attempt.sendsOldHash {
                arguments.append(.init("v2hash", StreamOnePassword.oldHash(of: credentials.password)))
            }
            create(StreamOneCall(command: "session", action: "create", arguments: arguments), attempt)
        }
        if !isTaken {
            attempt.completion(
                .later(
                    .problem(slug: .overloaded, status: 503, detail: "Too many logins are under way; try again soon."),
                    after: .seconds(5)))
        }
    }

    private func create(_ call: StreamOneCall, _ attempt: Attempt) {
        desk.fetch(.init(call: call, deadline: attempt.deadline), attempt.tools) { outcome in
            if case .answer(let answer, _) = outcome, case .needsHash = answer.status.meaning, !attempt.sendsOldHash {
                var again = attempt
                again.sendsOldHash = true
                return initialize(again)
            }
            guard let answer = success(outcome, attempt) else { return }
            let now = attempt.tools.time.now
            guard let session = StreamOneSession(answer, now: now) else { return attempt.completion(.unusableLogin) }
            desk.sessions.add(session, attempt.tools) { isStored in
                attempt.completion(.json(session.shown(isDurable: attempt.keepsKeys && isStored), status: 201))
            }
        }
    }

    /// The answer of a step that went well; else the caller is told, and nothing is tried again.
    private func success(_ outcome: StreamOneDesk.Outcome, _ attempt: Attempt) -> StreamOneAnswer? {
        switch outcome {
        case .problem(let trouble): attempt.completion(trouble.answer)
        case .answer(let answer, _) where answer.isSuccess: return answer
        case .answer(let answer, _):
            if case .rateLimited = answer.status.meaning {
                let now = attempt.tools.time.now
                let pause = desk.gate.close(.address(attempt.credentials.userIP), .rateLimited, now: now)
                attempt.completion(StreamOneTrouble.paused(pause, now).answer)
            } else {
                attempt.completion(.refusedLogin(answer))
            }
        }
        return nil
    }

    // MARK: Ending

    /// The session is forgotten whatever the platform answers.
    private func end(
        _ request: ResourceRequest, _ tools: any ResourceTools,
        _ completion: @escaping @Sendable (ResourceAnswer) -> Void
    ) {
        let deadline = tools.time.instant + request.patience
        desk.sessions.find(request.parameters["sessionCode"] ?? "", tools) { session in
            guard let session else {
                return completion(.notFound("There is no such session: ended, expired, or never begun here."))
            }
            let call = StreamOneCall(command: "session", action: "delete")
            desk.fetch(.init(call: call, session: session, deadline: deadline), tools) { _ in
                // Once it is on disk: whoever was told that it is over does not meet it again after a crash.
                desk.forget(session, tools) { completion(.empty()) }
            }
        }
    }
}

// MARK: What the platform sends

private struct Challenge: Sendable {
    let text: String
    let salt: String
    let needsOldHash: Bool

    init?(_ answer: StreamOneAnswer) {
        let read = answer.withBody { body -> (String, String, Bool)? in
            guard let text = body["challenge"]?.string, let salt = body["salt"]?.string else { return nil }
            return (text, salt, body["needsv2hash"]?.kind == .true)
        }
        guard case let (text, salt, needsOldHash)?? = read else { return nil }
        (self.text, self.salt, self.needsOldHash) = (text, salt, needsOldHash)
    }
}

extension StreamOneSession {
    /// From the answer to `session/create`; nil when it has none.
    init?(_ answer: StreamOneAnswer, now: Timestamp) {
        let read = answer.withBody { body -> StreamOneSession? in
            guard let id = body["id"], id.isFilledString, let key = body["key"], key.isFilledString,
                let user = body["user"], user.isFilledString, let timeout = body["timeout"]?.integer, timeout >= 0
            else { return nil }
            return StreamOneSession(
                id: id.string ?? "", key: key.string ?? "", user: user.string ?? "", deadline: now + .seconds(timeout))
        }
        guard let session = read ?? nil else { return nil }
        self = session
    }

    fileprivate func shown(isDurable: Bool) -> String {
        JSONText.object { json in
            json.string("id", id)
            json.string("user", user)
            json.time("expiresAt", deadline)
            if !isDurable { json.flag("durableCredentials", false) }
        }
    }
}

extension ResourceAnswer {
    fileprivate static let unusableLogin = ResourceAnswer.problem(
        slug: .deliveryFailed, status: 502, detail: "The platform's answer to the login cannot be used.")

    static let needsApplication = ResourceAnswer.problem(
        slug: .conflict, status: 409, detail: "Only an application has sessions; this upstream signs as a user.")

    /// Wrong name, wrong password, or a fault beyond the caller.
    fileprivate static func refusedLogin(_ answer: StreamOneAnswer) -> Self {
        switch answer.status.meaning {
        case .loginRefused, .needsHash, .sessionGone:
            .problem(slug: .unauthorized, status: 401, detail: "The platform refused the login: \(answer.summary)")
        default:
            .problem(
                slug: .deliveryFailed, status: 502, detail: "The platform took no login: \(answer.summary)")
        }
    }
}

/// Where passwords are hashed: one at a time, as each takes a core for a quarter of a second. Any thread.
private final class Hashing: Sendable {
    private let queue = OperationQueue()
    /// Logins that wait; with more, the last would wait for half a minute.
    private static let most = 100

    init() {
        queue.name = "postern-logins"
        queue.maxConcurrentOperationCount = 1
    }

    /// False when too many wait already.
    func run(_ work: @escaping @Sendable () -> Void) -> Bool {
        guard queue.operationCount < Self.most else { return false }
        queue.addOperation(work)
        return true
    }
}
