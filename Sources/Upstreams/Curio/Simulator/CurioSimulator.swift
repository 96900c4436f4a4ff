import PosternCore
public import PosternSimulatorKit
internal import Synchronization

/// Turkcell Curio, as far as its clients reveal it, on `/visit/create` and the other endpoints, bare or below
/// `/api/v2`.
///
/// Wrong credentials get 412, a session that is not live 401, and a request that cannot be understood 400. Where the
/// specification makes assumptions, so does the simulator. What a gateway must never do is accepted all the same and
/// noted as a violation.
///
/// `curio.md` describes `/received` and `/control`.
final class CurioSimulator: ControlledSimulator {
    let name = "curio"
    let orderField = "visitor"
    private let time: any TimeSource
    private let state: Mutex<CurioState>

    init(seed: UInt64 = 0, time: any TimeSource = SystemTime()) {
        self.time = time
        state = Mutex(CurioState(seed: seed))
    }

    private var moment: Moment { Moment(time) }

    // MARK: Requests

    func judge(_ request: SimulatedRequest, poisons: [Faults.Poison]) -> SimulatedResult {
        guard let endpoint = Endpoint(path: request.path) else {
            return SimulatedResult(answer: answer(status: 404), violations: ["a path that is not one of the endpoints"])
        }
        guard request.method == "POST" else {
            return SimulatedResult(
                answer: answer(status: 405).with("Allow", "POST"),
                violations: ["\(endpoint.rawValue) with another method than POST"])
        }
        let moment = moment
        let parsed = Request(endpoint, request, nowMs: moment.now.milliseconds)
        let poison = poisons.first { poison in parsed.actions.contains { poison.matches($0) } }
        return state.withLock { state in
            state.recordKnown(by: parsed)
            if let refusal = state.refusal(of: parsed, at: moment, isLost: request.isAnswerLost) {
                var findings = parsed.findings
                if let violation = refusal.violation { findings.record(violation) }
                return SimulatedResult(answer: answer(status: refusal.status), violations: findings.violations)
            }
            if let poison {
                return SimulatedResult(answer: answer(status: poison.status), violations: parsed.findings.violations)
            }
            let taken = state.take(parsed, at: moment)
            return SimulatedResult(answer: taken.answer, items: taken.items, violations: taken.findings.violations)
        }
    }

    // MARK: Control

    func shownControl() -> [JSONTree.Member] {
        let moment = moment
        return state.withLock { $0.shown(at: moment) }
    }

    func change(_ body: [UInt8]) throws(ControlProblem) {
        let moment = moment
        try state.withLock { state throws(ControlProblem) in
            let request = try ControlRequest<CurioSettings, Commands>(body, changing: state.settings)
            state.settings = request.settings
            if let seed = request.commands.seed { state.random = SplitMix64(state: seed) }
            if let visitor = request.commands.killSessions {
                state.killSessions(of: visitor == "all" ? "" : visitor, at: moment)
            }
        }
    }
}

extension Faults.Poison {
    fileprivate func matches(_ action: Action) -> Bool {
        Array(action.json(after: "").utf8).withUnsafeBufferPointer { matches($0) }
    }
}

extension SimulatorType {
    /// For `SimulatorRegistry`.
    public static let curio = SimulatorType { CurioSimulator(seed: $0, time: $1) }
}
