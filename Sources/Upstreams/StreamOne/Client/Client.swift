import PosternCore
package import PosternUpstream

/// Makes the calls that are answered at once: reads the cache, sends, parses the response, and applies its consequences
/// for the session, the cache, and the actor.
package struct Client: Sendable {
    let platform: StreamOnePlatform
    let actions: ActionCatalog
    let cache: Cache
    let sessions: Sessions
    let backoff: AuthenticationBackoff
    let policy: CachePolicy
    let pauses: Pause.Lengths

    package init(
        _ platform: StreamOnePlatform, _ actions: ActionCatalog, cache policy: CachePolicy, pauses: Pause.Lengths
    ) {
        self.platform = platform
        self.actions = actions
        self.policy = policy
        self.pauses = pauses
        cache = Cache(policy, cipher: policy.usesStore ? CacheCipher(platform) : nil)
        sessions = Sessions(of: platform)
        backoff = AuthenticationBackoff(pauses)
    }

    package var routes: [UpstreamRoute] {
        [Proxy(client: self).resource, SDKEndpoint(client: self).resource] + Login(self).resources
            + Permissions(client: self).resources
    }

    /// One call on behalf of a caller.
    struct Call: Sendable {
        var content: StreamOneCall
        /// Nil for a call as the actor itself.
        var session: Session?
        /// Whether it requests roles or tokens. The response is then cached, cacheable or not (the specification's
        /// section 6).
        var isForRights = false
        /// The time until which the caller waits.
        let deadline: MonotonicInstant
    }

    /// The response of the platform, including a rejection.
    struct CallResponse: Sendable {
        let answer: Answer
        /// Nil unless the response was cached.
        var age: Duration?
    }

    /// How many times a read is sent, including the first time.
    private static let readTries = 3

    func perform(_ call: Call, _ context: any UpstreamRouteContext) async throws(CallFailure) -> CallResponse {
        if cache.needsLoading { await cache.load(context) { [sessions] in sessions.owner(of: $0) } }
        guard actions.nature(of: call.content) == .read else {
            return CallResponse(answer: try await send(call, context))
        }
        let key = key(of: call)
        let found = await cache.find(
            key, session: call.session?.id, deadline: call.deadline, now: context.time.instant)
        switch found {
        case .hit(let answer, let age): return CallResponse(answer: answer, age: age)
        case .shared(let result): return CallResponse(answer: try result.get())
        case .lead(let read): return CallResponse(answer: try await lead(read, call, key, context))
        }
    }

    private func key(of call: Call) -> Cache.Key {
        guard call.isForRights else { return .init(call.content, by: platform.actor, user: call.session?.user) }
        var content = call.content
        // Roles name the scope to which they apply; tokens are those of the call's scope.
        if content.action == "getmyroles" { content.scope = .none }
        let session = policy.usesSession ? call.session?.id : nil
        return .init(content, by: platform.actor, user: call.session?.user, for: .rights(session: session))
    }

    // MARK: Sending

    /// Sends a read for all callers that share it.
    private func lead(
        _ read: Cache.SharedRead, _ call: Call, _ key: Cache.Key, _ context: any UpstreamRouteContext
    ) async throws(CallFailure) -> Answer {
        let result: Result<Answer, CallFailure>
        do throws(CallFailure) {
            result = .success(try await send(call, context))
        } catch {
            result = .failure(error)
        }
        let now = context.time.instant
        switch result {
        // Only this caller has no more time, or has hung up; the others may have more.
        case .failure(.late), .failure(.abandoned): cache.passOn(read, now: now)
        case .failure: cache.complete(read, result, now: now)
        case .success(let answer):
            cache.complete(read, result, keeping: keeping(answer, of: call, key, context.time.now), now: now, context)
        }
        return try result.get()
    }

    /// Nil if the response is not cached. What was received in a session is kept no longer than the session, as its
    /// end is known now.
    private func keeping(_ answer: Answer, of call: Call, _ key: Cache.Key, _ now: Timestamp) -> Cache.Retention? {
        guard answer.isSuccess, call.isForRights || answer.isCacheable && actions.isKept(call.content) else {
            return nil
        }
        var lifetime = policy.lifetime(of: key.use)
        if let session = call.session {
            lifetime = min(lifetime, answer.sessionTimeout.map { .seconds($0.seconds) } ?? session.deadline - now)
        }
        guard lifetime > .zero else { return nil }
        return cache.keeping(answer, of: key, in: call.session, for: lifetime, now: now)
    }

    /// Sends the call until there is a response to return: a read a few times, and once more with a new signature if
    /// the platform rejected the old one. If the caller hangs up, a read is aborted. A write that was sent runs to its
    /// end, so that what it may have changed is removed from the cache.
    private func send(_ call: Call, _ context: any UpstreamRouteContext) async throws(CallFailure) -> Answer {
        try checkBackoff(call, now: context.time.now)
        let nature = actions.nature(of: call.content)
        var sendings = 0
        var wasSignedAgain = false
        while true {
            if Task.isCancelled, nature == .read || sendings == 0 { throw .abandoned }
            let left = call.deadline - context.time.instant
            guard left > .zero else {
                throw .late(CallFailure.lateness + effect(of: call, isClear: sendings == 0, context))
            }
            sendings += 1
            let mayRepeat = nature == .read && sendings < Self.readTries
            let request = platform.request(
                for: call.content, in: call.session.map { ($0.id, $0.key) }, at: context.time.now)
            switch await context.send(request, timeout: left, isAbortable: nature == .read) {
            case .failure where Task.isCancelled && nature == .read: throw .abandoned
            case .failure(let failure) where failure.reason == .lackedResources:
                throw .overloaded("Nothing was sent to the platform: \(failure.detail).")
            case .failure(let failure) where failure.reason == .timeout:
                throw .late(
                    CallFailure.lateness + effect(of: call, isClear: !failure.mayHaveArrived, context),
                    isUnreached: !failure.mayHaveArrived)
            case .failure(let failure):
                guard failure.reason != .cancelled, mayRepeat else {
                    throw .failed(
                        "The request to the platform failed: \(failure.detail)."
                            + effect(of: call, isClear: !failure.mayHaveArrived, context),
                        isUnreached: !failure.mayHaveArrived)
                }
            case .success(let response):
                guard let answer = Answer(response) else {
                    if mayRepeat { continue }
                    throw .failed(CallFailure.unusable(response) + effect(of: call, isClear: false, context))
                }
                renewSession(of: call, answer, context)
                if answer.status.meaning == .clock { reportSkew(response, context) }
                if answer.status.meaning == .fault, mayRepeat { continue }
                if !wasSignedAgain, isSignatureRefused(answer, call) {
                    wasSignedAgain = true
                    continue
                }
                await apply(answer, to: call, context)
                return answer
            }
        }
    }

    private func checkBackoff(_ call: Call, now: Timestamp) throws(CallFailure) {
        guard platform.hasCredentials else { throw .noCredentials }
        for subject in subjects(of: call) {
            if let pause = backoff.pause(of: subject, now: now) { throw .paused(pause, now) }
        }
    }

    /// The actor that the call authenticates.
    private func subjects(of call: Call) -> [AuthenticationBackoff.Subject] {
        if let session = call.session { return [.session(session.id)] }
        let isLogin = call.content.command == "session"
        let address = isLogin ? call.content.arguments.first { $0.name == "userip" } : nil
        return [.actor] + (address.map { [.address($0.value)] } ?? [])
    }

    /// Whether the platform rejected the timestamp or signature of a call that may be sent again. After status 3 a login
    /// may not, because it would count as another failed one, and its second step never, because a challenge is used
    /// once.
    private func isSignatureRefused(_ answer: Answer, _ call: Call) -> Bool {
        switch answer.status.meaning {
        case .clock: call.content.path != "/api/session/create"
        case .authentication: call.session == nil && actions.nature(of: call.content) != .session
        default: false
        }
    }

    /// What is known about the effect of a write without a usable response. Unless it `isClear` that the platform has
    /// not received it, it may have taken effect, and what it can have changed is removed from the cache.
    private func effect(of call: Call, isClear: Bool, _ context: any UpstreamRouteContext) -> String {
        guard actions.nature(of: call.content) == .write else { return "" }
        if isClear { return " It has not received the call." }
        invalidate(call, context)
        return " It is not known whether it has carried out the call."
    }

    // MARK: Consequences of a response

    private func renewSession(of call: Call, _ answer: Answer, _ context: any UpstreamRouteContext) {
        guard let session = call.session, let timeout = answer.sessionTimeout else { return }
        sessions.renew(session.id, until: context.time.now + .seconds(timeout.seconds), context)
    }

    /// The platform rejected the timestamp. If this clock is wrong, the operator has to know it (A2). The difference in
    /// seconds varies, so that the reports have pauses.
    func reportSkew(_ response: UpstreamResponse, _ context: any UpstreamRouteContext) {
        let now = context.time.now
        guard backoff.pause(of: .clock, now: now) == nil, let skew = response.clockSkew(now: now) else { return }
        backoff.begin(.clock, .clock, now: now)
        context.report(UpstreamNotice(skew))
    }

    func apply(_ answer: Answer, to call: Call, _ context: any UpstreamRouteContext) async {
        let session = call.session
        switch answer.status.meaning {
        case .ok:
            authenticated(call, context)
            invalidateAfterWrite(call, context)
        case .fault: invalidateAfterWrite(call, context)
        case .authentication where session == nil: actorRefused(answer, context)
        case .authentication, .sessionGone: if let session { await forget(session, context) }
        case .rateLimited: rateLimited(call, context)
        case .denied: enqueue(cache.forgetRights(of: session?.user), context)
        case .clock, .readOnly, .permanent, .settledBefore, .needsHash, .loginRefused: break
        }
        if call.content.path == "/api/session/delete", let session { await forget(session, context) }
    }

    private func authenticated(_ call: Call, _ context: any UpstreamRouteContext) {
        let former = backoff.end(call.session.map { .session($0.id) } ?? .actor)
        if call.session == nil, former?.reason == .authentication { context.enqueue([.remove(key: Pause.key)]) }
    }

    /// Every further call as the actor would be rejected, too. So the queue keeps its calls, and the operator has to know
    /// it (A3).
    private func actorRefused(_ answer: Answer, _ context: any UpstreamRouteContext) {
        var pause = backoff.begin(.actor, .authentication, now: context.time.now)
        pause.credentials = platform.fingerprint
        context.enqueue([pause.change])
        context.report(
            UpstreamNotice(
                "status \(answer.status.number) \(answer.status.name); nothing is sent as this actor until \(pause.until)",
                quote: answer.message))
    }

    private func invalidateAfterWrite(_ call: Call, _ context: any UpstreamRouteContext) {
        if actions.nature(of: call.content) == .write { invalidate(call, context) }
    }

    private func invalidate(_ call: Call, _ context: any UpstreamRouteContext) {
        enqueue(cache.invalidate(call.content.command, call.content.scope), context)
    }

    private func enqueue(_ changes: [StateChange], _ context: any UpstreamRouteContext) {
        if !changes.isEmpty { context.enqueue(changes) }
    }

    /// The platform blocks the address of a login, a session, or the actor itself, which the queue has to know too. The
    /// second step of a login is blocked for its address as well, though only the first one names it.
    private func rateLimited(_ call: Call, _ context: any UpstreamRouteContext) {
        guard let subject = subjects(of: call).last, call.content.command != "session" || subject != .actor else {
            return
        }
        let pause = backoff.begin(subject, .rateLimited, now: context.time.now)
        if subject == .actor { context.enqueue([pause.change]) }
    }

    /// Ends the session at once for all callers. Returns when that is on disk, or cannot be stored.
    func forget(_ session: Session, _ context: any UpstreamRouteContext) async {
        enqueue(cache.forget(session: session.id), context)
        await sessions.forget(session.id, context)
    }
}
