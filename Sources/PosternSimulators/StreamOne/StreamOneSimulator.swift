internal import PosternCore
internal import Synchronization

/// The StreamOne platform API, version 3.
///
/// It knows the applications and users it was given, checks each signature over the very bytes received, and answers
/// every call with HTTP 200 and a status inside, in the bytes PHP would write. Whatever the specification says a
/// gateway must never send is answered likewise and noted as a violation. Where the sources do not know the
/// platform's answer, this is the choice: 6 for a wrong `api` or `format`, for an impossible value and for an argument
/// twice, 7 for a parameter twice or one of the other kind of actor, 3 for a query or body in another encoding than
/// PHP's, 282 for a dead session, 281 for a wrong password, an unknown user and a used, old or unknown challenge.
///
/// Unknown actions succeed and return their arguments. Known are `session/…`, `api/mytokens`, `user/getmyroles`,
/// `application/getmyroles`, `user/viewme` and `application/view`.
///
/// An item of `/received` is one call that was answered with status 0, also when it is a read:
/// `{"account":"A1,A2","command":"item","action":"edit","arguments":{"title":"x"},"timezone":"UTC","session":"S1"}`.
/// `customer` can stand instead of `account`; it, `timezone` and `session` are there if they were sent. Arguments are
/// texts in the order received; `challenge`, `response` and `v2hash` of `session/create` are hidden. Equal texts are
/// duplicates, except those of `session/…`. The order key is the `account`, else the `customer`.
///
/// `GET /control` shows the settings, `POST /control` changes those in a JSON object, all or none:
///
/// - `applications`: list of `{"id","psk","name","roles"}`, the last two optional;
/// - `users`: list of `{"id","psk","username","password","salt","needsV2Hash","roles"}`, all but `id` optional: without
///   `psk` they cannot sign, without `username` not log in;
/// - `roles` of both: list of `{"id","name","tokens":[…],"account","customer"}`, all optional, at most one scope;
/// - `accounts`: list of IDs or `{"id","customer"}`; `customers`: list of IDs; empty lists know every one;
/// - `sessionTimeoutSeconds`, `challengeTimeoutSeconds`, `clockSkewToleranceSeconds`;
/// - `clockOffsetSeconds`: how far the platform's clock is ahead; shown in `Date` unless it is 0;
/// - `failuresUntilRateLimited` (0 is never), `rateLimitSeconds`: bad signatures of an actor in a row, or failed logins
///   of a `userip`, and then 8;
/// - `statusRate`: `{"10":0.05}`; `nextStatus`: `[10,0,8]`, one for each call from now on whose signature is right, 0
///   for its own answer; calls answered so have no effect;
/// - `readOnly`: 10 for everything that does not look like a read;
/// - `answers`: `{"item/view":[…]}`, bodies by `command/action`, instead of what the simulator would do;
/// - `prefix` before `/api`, `timezone` of answers, `seed` of all randomness.
///
/// It also shows `statuses`: how many calls were answered with which. `GET /control/sessions` lists the sessions that
/// are alive, `DELETE` ends them as if the platform had forgotten them.
struct StreamOneSimulator: Simulator {
    let name = "streamone"
    let orderField = "account"
    let held: Held
    private let time: any TimeSource

    final class Held: Sendable {
        let state: Mutex<StreamOneState>
        /// By user ID, made when somebody first logs in.
        let verifiers = Mutex<[String: StreamOneVerifier]>([:])
        init(seed: UInt64) { state = Mutex(StreamOneState(seed: seed)) }
    }

    init(seed: UInt64 = 0, time: any TimeSource = SystemTime()) {
        held = Held(seed: seed)
        self.time = time
    }

    // MARK: The upstream

    func judge(_ request: SimulatedRequest, poisons: [Faults.Poison]) -> Judged {
        let prefix = held.state.withLock { $0.settings.prefix }
        guard let call = StreamOneCall(request, prefix: prefix) else {
            return Judged(
                answer: answer(status: 404),
                violations: ["\(request.method) \(request.path): there is no such endpoint"])
        }
        guard request.method == "POST" else {
            var refusal = answer(status: 405)
            refusal.headers.append(("Allow", "POST"))
            return Judged(answer: refusal, violations: ["\(request.method) \(request.path): every call is a POST"])
        }
        let verifier = verifier(for: call)
        return held.state.withLock { state in judge(call, verifier, poisons, &state) }
    }

    private func judge(
        _ call: StreamOneCall, _ verifier: StreamOneVerifier?, _ poisons: [Faults.Poison],
        _ state: inout StreamOneState
    ) -> Judged {
        let offset = state.settings.clockOffsetSeconds
        let moment = StreamOneState.Moment(now: time.now + .seconds(offset), instant: time.instant)
        var violations = call.oddities
        var answer: StreamOneAnswer
        var session: String?
        do throws(StreamOneRefusal) {
            try call.check(&violations)
            try state.checkTimestamp(call, at: moment, &violations)
            let actor = try state.authenticate(call, at: moment, &violations)
            session = actor.session
            answer = try state.perform(
                call, actor, verifier: verifier, poisons: poisons, at: moment, &violations)
            answer.isCacheable = call.isRead
        } catch {
            switch error {
            case .http(let status): return Judged(answer: self.answer(status: status), violations: violations)
            case .status(let status): answer = StreamOneAnswer(status: status)
            }
        }
        let known = call.isTimezoneKnown ? call.parameters["timezone"] : nil
        answer.timezone = known ?? state.settings.timezone
        if let session, state.sessions[session]?.isDeleted == false {
            answer.sessionTimeout = state.settings.sessionTimeoutSeconds
        }
        state.count(answer.status)
        var sent = SimulatedAnswer.json(200, answer.text)
        if offset != 0 {
            sent.headers.append(("Date", Faults.RetryAfter(seconds: 0, form: .imf).value(at: moment.now)))
        }
        return Judged(answer: sent, items: answer.status == .ok ? items(call, &state) : .init(), violations: violations)
    }

    private func items(_ call: StreamOneCall, _ state: inout StreamOneState) -> Judged.Items {
        let text = Array(call.received.utf8)
        // A login is never the same as another one.
        let identity = call.command == "session" ? state.random.next() : text.withUnsafeBufferPointer { digest($0) }
        let orderKey = call.accounts.isEmpty ? call.customer : nil
        return Judged.Items(text: text, ranges: [text.indices], identities: [identity], orderKey: orderKey)
    }

    /// For `session/create` alone: of the user whose challenge it brings.
    private func verifier(for call: StreamOneCall) -> StreamOneVerifier? {
        guard call.name == "session/create", let challenge = call.arguments["challenge"] else { return nil }
        let user = held.state.withLock { state in
            state.challenges[challenge].flatMap { $0.isUsed ? nil : $0.user }.flatMap(state.settings.user(_:))
        }
        guard let user else { return nil }
        if let made = held.verifiers.withLock({ $0[user.id] }), made.isFor(user) { return made }
        let made = StreamOneVerifier(for: user)
        held.verifiers.withLock { $0[user.id] = made }
        return made
    }

    // MARK: Control

    func control(_ request: SimulatedRequest) -> SimulatedAnswer? {
        switch (request.path, request.method) {
        case ("/control", "GET"): .json(200, held.state.withLock { shown($0) })
        case ("/control", "POST"): change(request.body)
        case ("/control", _): Self.notAllowed("GET, POST")
        case ("/control/sessions", "GET"): .json(200, held.state.withLock { sessions($0) })
        case ("/control/sessions", "DELETE"):
            held.state.withLock { state in
                state.forgetSessions()
                return SimulatedAnswer(status: 204)
            }
        case ("/control/sessions", _): Self.notAllowed("GET, DELETE")
        default: nil
        }
    }

    private func change(_ body: [UInt8]) -> SimulatedAnswer {
        held.state.withLock { state in
            do throws(StreamOneSettings.Problem) {
                try state.change(body)
                return .json(200, shown(state))
            } catch {
                return SimulatedAnswer(
                    status: 400, headers: [("Content-Type", "text/plain; charset=utf-8")],
                    body: Array("\(error)\n".utf8))
            }
        }
    }

    private func shown(_ state: StreamOneState) -> String {
        var json = JSONText()
        for member in StreamOneSettings.Member.allCases { json.raw(member.rawValue, state.settings.shown(member)) }
        json.object("statuses") { json in
            for (status, count) in state.statuses.sorted(by: { $0.key.rawValue < $1.key.rawValue }) {
                json.number("\(status.rawValue)", count)
            }
        }
        return json.finished
    }

    private func sessions(_ state: StreamOneState) -> String {
        let now = time.instant
        let alive = state.sessions.values.filter { $0.value.isAlive(at: now) }.sorted { $0.key < $1.key }
        return JSONText.array(
            alive.map { id, session in
                JSONText.object { json in
                    json.string("id", id)
                    json.string("application", session.application)
                    json.string("user", session.user)
                    json.number("secondsLeft", Int((session.endsAt - now).components.seconds))
                }
            })
    }

    private static func notAllowed(_ allowed: String) -> SimulatedAnswer {
        SimulatedAnswer(status: 405, headers: [("Allow", allowed)])
    }
}
