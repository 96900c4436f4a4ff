import PosternCore
import PosternUpstream
import Synchronization

/// `POST /v1/{name}/sessions`, `GET` and `DELETE /v1/{name}/sessions/{sessionCode}`, and `POST /v1/{name}/passwords` (the
/// specification's section 5).
struct Login: Sendable {
    let client: Client

    init(_ client: Client) { self.client = client }

    var resources: [UpstreamRoute] {
        [
            UpstreamRoute(.post, "sessions", status: 201, .perform(begin)),
            UpstreamRoute(.get, "sessions/{sessionCode}", .perform(show)),
            UpstreamRoute(.delete, "sessions/{sessionCode}", status: 204, .perform(end)),
            UpstreamRoute(.post, "passwords", .perform(hash)),
        ]
    }

    // MARK: Beginning

    private struct Credentials: Sendable {
        let username: String
        let password: String
        /// The end user's address, not that of the gateway: the platform counts failed logins by it.
        let userIP: String
        let deadline: MonotonicInstant

        init(_ body: JSONValue, until deadline: MonotonicInstant) throws(InvalidPayload) {
            var faults = PayloadErrors()
            func text(_ name: StaticString) -> String {
                if let value = body[name], value.isFilledString, let text = value.string { return text }
                faults.add("/\(name)", "must be a non-empty string")
                return ""
            }
            (username, password, userIP) = (text("username"), text("password"), text("userip"))
            self.deadline = deadline
            guard faults.isEmpty else { throw InvalidPayload(faults) }
        }
    }

    private func begin(
        _ request: UpstreamRouteRequest, _ context: any UpstreamRouteContext
    ) async throws(UpstreamRouteResponse) -> UpstreamRouteResponse {
        let credentials = try credentials(request, context)
        var answer = try await logIn(credentials, sendingOldHash: false, context)
        // Signed again, but with another challenge: one is used once.
        if answer.status.meaning == .clock { answer = try await logIn(credentials, sendingOldHash: false, context) }
        // The platform requires the old hash, although it did not request it at first.
        if answer.status.meaning == .needsHash { answer = try await logIn(credentials, sendingOldHash: true, context) }
        try check(answer, credentials, context)
        guard let session = Session(answer, now: context.time.now) else { throw .unusableLogin }
        await client.sessions.add(session, context)
        return .json(session.shown, status: 201)
    }

    private func credentials(
        _ request: UpstreamRouteRequest, _ context: any UpstreamRouteContext
    ) throws(UpstreamRouteResponse) -> Credentials {
        guard client.platform.actor.kind == .application else { throw .needsApplication }
        let deadline = context.time.instant + request.patience
        return try request.withObject { body throws(InvalidPayload) in try Credentials(body, until: deadline) }
    }

    /// The platform's response to the second step, whatever it is.
    private func logIn(
        _ credentials: Credentials, sendingOldHash: Bool, _ context: any UpstreamRouteContext
    ) async throws(UpstreamRouteResponse) -> Answer {
        let challenge = try await challenge(credentials, context)
        let response = try await computed(credentials, context) {
            Password.response(to: challenge.text, password: credentials.password, salt: challenge.salt)
        }
        var arguments = [StreamOneCall.Argument("challenge", challenge.text), .init("response", response)]
        if challenge.needsOldHash || sendingOldHash {
            arguments.append(.init("v2hash", Password.oldHash(of: credentials.password)))
        }
        return try await send("create", arguments, credentials, context)
    }

    private func challenge(
        _ credentials: Credentials, _ context: any UpstreamRouteContext
    ) async throws(UpstreamRouteResponse) -> Challenge {
        let answer = try await send(
            "initialize", [.init("user", credentials.username), .init("userip", credentials.userIP)], credentials,
            context)
        try check(answer, credentials, context)
        guard let challenge = answer.withBody(Challenge.init) else { throw .unusableLogin }
        return challenge
    }

    /// The maximum number of logins that wait to be hashed. With more, the last one would wait for half a minute.
    private static let maxWaiting = 100

    /// Hashes a password, one at a time, as each takes a core for a quarter of a second. A login that
    /// has timed out in the meantime, or whose caller has hung up, is skipped, because others wait.
    private func computed(
        _ credentials: Credentials, _ context: any UpstreamRouteContext, _ hash: @escaping @Sendable () -> String?
    ) async throws(UpstreamRouteResponse) -> String {
        guard context.waitingComputations < Self.maxWaiting else {
            let overload = UpstreamRouteResponse.problem(
                slug: .overloaded, status: 503, detail: "Too many logins are in progress; try again later.")
            throw .later(overload, after: .seconds(5))
        }
        let isAbandoned = Flag()
        let hashed: Result<String, UpstreamRouteResponse> = await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                context.compute {
                    guard context.time.instant < credentials.deadline, !isAbandoned.value.load(ordering: .relaxed)
                    else {
                        let late = CallFailure.late("The login could not be processed in time.")
                        return continuation.resume(returning: .failure(late.answer))
                    }
                    continuation.resume(returning: hash().map { .success($0) } ?? .failure(.unusableLogin))
                }
            }
        } onCancel: {
            isAbandoned.value.store(true, ordering: .relaxed)
        }
        return try hashed.get()
    }

    private final class Flag: Sendable { let value = Atomic<Bool>(false) }

    private func send(
        _ action: String, _ arguments: [StreamOneCall.Argument], _ credentials: Credentials,
        _ context: any UpstreamRouteContext
    ) async throws(UpstreamRouteResponse) -> Answer {
        let call = StreamOneCall(command: "session", action: action, arguments: arguments)
        return try await client.reply(to: .init(content: call, deadline: credentials.deadline), context).answer
    }

    /// A step that fails ends the login: nothing is retried.
    private func check(
        _ answer: Answer, _ credentials: Credentials, _ context: any UpstreamRouteContext
    ) throws(UpstreamRouteResponse) {
        guard !answer.isSuccess else { return }
        guard answer.status.meaning == .rateLimited else { throw .login(answer) }
        let now = context.time.now
        let pause = client.backoff.begin(.address(credentials.userIP), .rateLimited, now: now)
        throw CallFailure.paused(pause, now).answer
    }

    // MARK: Changing a password

    /// The hash of a new password, made with the user's salt. The platform is asked for the salt only.
    private func hash(
        _ request: UpstreamRouteRequest, _ context: any UpstreamRouteContext
    ) async throws(UpstreamRouteResponse) -> UpstreamRouteResponse {
        let credentials = try credentials(request, context)
        let salt = try await challenge(credentials, context).salt
        let hash = try await computed(credentials, context) { Password.newHash(of: credentials.password, salt: salt) }
        return .json(JSONWriter.object { $0.string("hash", hash) })
    }

    // MARK: Showing and ending

    /// Whether the session can be used, without asking the platform.
    private func show(
        _ request: UpstreamRouteRequest, _ context: any UpstreamRouteContext
    ) async throws(UpstreamRouteResponse) -> UpstreamRouteResponse {
        guard client.platform.actor.kind == .application else { throw .needsApplication }
        let session = try await client.session(request.parameters["sessionCode"] ?? "", context)
        return .json(
            JSONWriter.object { json in
                json.flag("active", session != nil)
                json.time("expiresAt", session?.deadline)
            })
    }

    /// The session is removed whatever the platform's response is.
    private func end(
        _ request: UpstreamRouteRequest, _ context: any UpstreamRouteContext
    ) async throws(UpstreamRouteResponse) -> UpstreamRouteResponse {
        let deadline = context.time.instant + request.patience
        guard let session = try await client.session(request.parameters["sessionCode"] ?? "", context) else {
            throw .notFound("There is no such session: it has ended, has expired, or was never started here.")
        }
        let call = StreamOneCall(command: "session", action: "delete")
        _ = try? await client.perform(.init(content: call, session: session, deadline: deadline), context)
        // The response is sent once that is on disk: a session whose end was confirmed does not exist again after a
        // crash.
        await client.forget(session, context)
        return .empty()
    }
}

// MARK: Responses of the platform

private struct Challenge: Sendable {
    let text: String
    let salt: String
    let needsOldHash: Bool

    init?(_ body: JSONValue) {
        guard let text = body["challenge"]?.string, let salt = body["salt"]?.string else { return nil }
        (self.text, self.salt, needsOldHash) = (text, salt, body["needsv2hash"]?.kind == .true)
    }
}

extension Session {
    /// From the response to `session/create`; nil if it contains none.
    init?(_ answer: Answer, now: Timestamp) {
        let session = answer.withBody { body -> Session? in
            guard let id = body["id"], id.isFilledString, let key = body["key"], key.isFilledString,
                let user = body["user"], user.isFilledString, let timeout = body["timeout"]?.integer, timeout >= 0
            else { return nil }
            return Session(
                id: id.string ?? "", key: key.string ?? "", user: user.string ?? "", deadline: now + .seconds(timeout))
        }
        guard let session else { return nil }
        self = session
    }

    fileprivate var shown: String {
        JSONWriter.object { json in
            json.string("id", id)
            json.string("user", user)
            json.time("expiresAt", deadline)
        }
    }
}

extension UpstreamRouteResponse {
    fileprivate static let unusableLogin = Self.problem(
        slug: .deliveryFailed, status: 502, detail: "The platform's answer to the login cannot be used.")

    static let needsApplication = Self.problem(
        slug: .conflict, status: 409, detail: "Only an application has sessions; this upstream signs as a user.")

    /// A wrong name, a wrong password, or a fault that the caller did not cause.
    fileprivate static func login(_ answer: Answer) -> Self {
        switch answer.status.meaning {
        case .loginRefused, .needsHash, .sessionGone:
            .problem(
                slug: .unauthorized, status: 401, detail: "The platform rejected the login: \(answer.summary)")
        default:
            .problem(slug: .deliveryFailed, status: 502, detail: "The login failed at the platform: \(answer.summary)")
        }
    }
}
