internal import PosternCore
internal import Synchronization

/// Turkcell Curio, as far as its clients reveal it, on `/visit/create` and the other endpoints, bare or below `/api/v2`.
///
/// Wrong credentials are answered 412, a session that is not live 401, what cannot be understood 400; where the
/// specification assumes, so does this. What a gateway must never do is taken nevertheless and noted as a violation.
///
/// An item of `/received` is one action, alone or a batch's record, as the simulator understood it:
///
///     {"visitor":"7B3A…","session":"6d55…","action":"screen_start","mode":"pdr","request":4,
///      "pageTitle":"Ana sayfa","path":"/home","timestamp":1421920801000,"code":"6f96…"}
///
/// `action` is the kind in the gateway's API, `mode` is `online`, `pdr` or `ocr`, `request` counts the requests that
/// were taken. Texts are decoded and have their names on the wire; a start of a session shows its device block.
/// `timestamp` is there in batches only, `code` where an action has a `hitCode` or `eventCode`. `CurioAction.identity`
/// says what counts as a duplicate.
///
/// `GET /control` shows settings and counts as JSON, `POST /control` changes them with an object of:
///
/// - `apiKey`, `trackingCode`: the right ones; empty for any;
/// - `sessionTimeoutMinutes`: instead of what requests say, fractions too; null to go by the requests;
/// - `killSessionRate`: how probably a live session dies just before a request that needs it, 0 to 1;
/// - `killSessions`: `"all"` or a visitor's code; ends live sessions now;
/// - `codeForm`: `string`, `number`, `mixed`, `missing` or `html`, how answers bring `hitCode` and `eventCode`;
/// - `adoptOtherSessionCode`: an OCR that leaves a live session is answered with another code, which takes its place;
/// - `seed`: of the randomness.
final class CurioSimulator: Simulator {
    let name = "curio"
    let orderField = "visitor"
    private let time: any TimeSource
    private let state: Mutex<CurioState>

    init(seed: UInt64 = 0, time: any TimeSource = SystemTime()) {
        self.time = time
        state = Mutex(CurioState(seed: seed))
    }

    private var moment: CurioState.Moment { CurioState.Moment(now: time.now, instant: time.instant) }

    // MARK: Requests

    func judge(_ request: SimulatedRequest, poisons: [Faults.Poison]) -> Judged {
        guard let endpoint = CurioEndpoint(path: request.path) else {
            return Judged(answer: answer(status: 404), violations: ["a path that is none of the endpoints"])
        }
        guard request.method == "POST" else {
            var answer = answer(status: 405)
            answer.headers.append(("Allow", "POST"))
            return Judged(answer: answer, violations: ["\(endpoint.rawValue) with another method than POST"])
        }
        let moment = moment
        let parsed = CurioRequest(endpoint, request, nowMs: moment.now.milliseconds)
        let poison = poisons.first { poison in parsed.actions.contains { poison.matches($0) } }
        return state.withLock { state in
            if let refusal = state.refusal(of: parsed, at: moment, isLost: request.isAnswerLost) {
                var findings = parsed.findings
                if let violation = refusal.violation { findings.note(violation) }
                return Judged(answer: answer(status: refusal.status), violations: findings.violations)
            }
            if let poison {
                return Judged(answer: answer(status: poison.status), violations: parsed.findings.violations)
            }
            let taken = state.take(parsed, at: moment)
            return Judged(answer: taken.answer, items: taken.items, violations: taken.findings.violations)
        }
    }

    // MARK: Control

    func control(_ request: SimulatedRequest) -> SimulatedAnswer? {
        guard request.path == "/control" else { return nil }
        let moment = moment
        switch request.method {
        case "GET": return .json(200, state.withLock { $0.json(at: moment) })
        case "POST": return state.withLock { change(&$0, request.body, at: moment) }
        default:
            var answer = answer(status: 405)
            answer.headers.append(("Allow", "GET, POST"))
            return answer
        }
    }

    /// All of it or nothing.
    private func change(_ state: inout CurioState, _ body: [UInt8], at moment: CurioState.Moment) -> SimulatedAnswer {
        let change = CurioChange(body, to: state.settings)
        guard change.problems.isEmpty else {
            return SimulatedAnswer(
                status: 400, headers: [("Content-Type", "text/plain; charset=utf-8")],
                body: Array(change.problems.map { $0 + "\n" }.joined().utf8))
        }
        state.settings = change.settings
        if let seed = change.seed { state.random = SeededRandom(seed: seed) }
        if let visitor = change.killed { state.killSessions(of: visitor, at: moment) }
        return .json(200, state.json(at: moment))
    }
}

extension Faults.Poison {
    fileprivate func matches(_ action: CurioAction) -> Bool {
        Array(action.json(after: "").utf8).withUnsafeBufferPointer { matches($0) }
    }

    fileprivate var status: Int {
        switch answer {
        case .failure: 500
        case .tooLarge: 413
        case .refusal, .naming: 400
        }
    }
}
