import PosternCore
public import PosternSimulatorKit
internal import Synchronization

/// The StreamOne platform API, version 3.
///
/// It has configured applications and users, checks each signature over the received bytes, and responds to every call
/// with HTTP 200 and a status in the body, in the bytes that PHP would write. What a gateway must never send according
/// to the specification gets the same response and is noted as a violation. Where the sources do not document the
/// platform's response, the simulator uses these: 6 for a wrong `api` or `format`, for an impossible value and for an
/// argument twice, 7 for a parameter twice or one of the other kind of actor, 3 for a query or body in another encoding
/// than PHP's, 282 for a dead session, 281 for a wrong password, an unknown user and a used, old or unknown challenge.
///
/// `streamone.md` describes `/received` and `/control`.
struct StreamOneSimulator: ControlledSimulator {
    let name = "streamone"
    let orderField = "account"
    let held: SharedState
    private let time: any TimeSource

    final class SharedState: Sendable {
        let state: Mutex<StreamOneState>
        /// By user ID, created at the first login.
        let verifiers = Mutex<[String: Verifier]>([:])
        init(seed: UInt64) { state = Mutex(StreamOneState(seed: seed)) }
    }

    init(seed: UInt64 = 0, time: any TimeSource = SystemTime()) {
        held = SharedState(seed: seed)
        self.time = time
    }

    // MARK: The upstream

    func judge(_ request: SimulatedRequest, poisons: [Faults.Poison]) -> SimulatedResult {
        let prefix = held.state.withLock { $0.settings.prefix }
        guard let call = Call(request, prefix: prefix) else {
            return SimulatedResult(
                answer: answer(status: 404),
                violations: ["\(request.method) \(request.path): there is no such endpoint"])
        }
        guard request.method == "POST" else {
            return SimulatedResult(
                answer: .notAllowed("POST"), violations: ["\(request.method) \(request.path): every call is a POST"])
        }
        let verifier = verifier(for: call)
        return held.state.withLock { state in judge(call, verifier, poisons, &state) }
    }

    private func judge(
        _ call: Call, _ verifier: Verifier?, _ poisons: [Faults.Poison],
        _ state: inout StreamOneState
    ) -> SimulatedResult {
        let offset = state.settings.clockOffsetSeconds
        let moment = Moment(time, ahead: .seconds(offset))
        var violations = call.oddities
        var answer: Answer
        var session: String?
        do throws(StreamOneError) {
            try call.check(&violations)
            try state.checkTimestamp(call, at: moment, &violations)
            let actor = try state.authenticate(call, at: moment, &violations)
            session = actor.session
            answer = try state.perform(
                call, actor, verifier: verifier, poisons: poisons, at: moment, &violations)
            answer.isCacheable = call.isRead
        } catch {
            switch error {
            case .http(let status): return SimulatedResult(answer: self.answer(status: status), violations: violations)
            case .status(let status): answer = Answer(status: status)
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
        var result = SimulatedResult(
            answer: sent, items: answer.status == .ok ? items(call, &state) : .init(), violations: violations)
        // What is in the call itself, and stays wrong however often it is repeated.
        if [.accountNotFound, .customerNotFound].contains(answer.status) { result.rejected = items(call, &state) }
        return result
    }

    private func items(_ call: Call, _ state: inout StreamOneState) -> SimulatedResult.Items {
        let text = Array(call.received.utf8)
        // No login equals another one.
        let identity = call.command == "session" ? state.random.next() : text.withUnsafeBufferPointer { digest($0) }
        let orderKey = call.accounts.isEmpty ? call.customer : nil
        return SimulatedResult.Items(text: text, ranges: [text.indices], identities: [identity], orderKey: orderKey)
    }

    /// The verifier of the user whose challenge the call contains; only for `session/create`.
    private func verifier(for call: Call) -> Verifier? {
        guard call.name == "session/create", let challenge = call.arguments["challenge"] else { return nil }
        let user = held.state.withLock { state in
            state.challenges[challenge].flatMap { $0.isUsed ? nil : $0.user }.flatMap(state.settings.user(_:))
        }
        guard let user else { return nil }
        if let made = held.verifiers.withLock({ $0[user.id] }), made.isFor(user) { return made }
        let made = Verifier(for: user)
        held.verifiers.withLock { $0[user.id] = made }
        return made
    }

    // MARK: Control

    func shownControl() -> [JSONTree.Member] {
        held.state.withLock { state in
            let counts = Dictionary(uniqueKeysWithValues: state.statuses.map { ($0.key.rawValue, $0.value) })
            return state.settings.shownWithoutSecrets + [.init(name: "statuses", value: tree(of: counts))]
        }
    }

    func change(_ body: [UInt8]) throws(ControlProblem) {
        try held.state.withLock { state throws(ControlProblem) in try state.change(body) }
    }

    func controlPart(_ request: SimulatedRequest) -> SimulatedAnswer? {
        switch (request.path, request.method) {
        case ("/control/sessions", "GET"):
            return .json(200, tree(of: held.state.withLock { living($0) }).canonical)
        case ("/control/sessions", "DELETE"):
            held.state.withLock { $0.forgetSessions() }
            return SimulatedAnswer(status: 204)
        case ("/control/sessions", _): return .notAllowed("GET, DELETE")
        default: return nil
        }
    }

    private struct LivingSession: Encodable {
        let id: String
        let application: String
        let user: String
        let secondsLeft: Int64
    }

    private func living(_ state: StreamOneState) -> [LivingSession] {
        let now = time.instant
        return state.sessions.values.filter { $0.value.isAlive(at: now) }.sorted { $0.key < $1.key }
            .map { id, session in
                LivingSession(
                    id: id, application: session.application, user: session.user,
                    secondsLeft: (session.endsAt - now).components.seconds)
            }
    }
}

extension SimulatorType {
    /// For `SimulatorRegistry`.
    public static let streamone = SimulatorType { StreamOneSimulator(seed: $0, time: $1) }
}
