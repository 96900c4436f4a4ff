import PosternCore
public import PosternSimulatorKit
internal import Synchronization

/// Pearson AppServices behind its proxy (port 9003): users, devices, groups, their ties, and app monitoring.
///
/// It responds as the platform would and reports what a gateway must never send: anything wrong on the wire, a step out
/// of its order, a rejected token. What a gateway may send depends on the responses that it got, so responses that a
/// fault loses do not count, and those that a fault produces do.
///
/// `appservices.md` describes `/received` and `/control`.
final class AppServicesSimulator: ControlledSimulator {
    let name = "appservices"
    let orderField = "user"
    private let time: any TimeSource
    private let state: Mutex<AppServicesState>

    init(time: any TimeSource = SystemTime(), seed: UInt64 = 0) {
        self.time = time
        state = Mutex(AppServicesState(seed: seed))
    }

    func judge(_ request: SimulatedRequest, poisons: [Faults.Poison]) -> SimulatedResult {
        let call = call(request)
        return state.withLock { state in
            state.judge(
                call, poisons: poisons, isAnswerLost: request.isAnswerLost, now: time.now, instant: time.instant)
        }
    }

    func answer(status: Int, to request: SimulatedRequest) -> SimulatedAnswer {
        let answer = answer(status: status)
        let call = call(request)
        state.withLock { $0.pass(call, answer, instant: time.instant) }
        return answer
    }

    private func call(_ request: SimulatedRequest) -> Call {
        Call(request, basePath: state.withLock { $0.settings.basePath })
    }

    // MARK: Control

    func shownControl() -> [JSONTree.Member] { state.withLock { $0.shown } }

    func change(_ body: [UInt8]) throws(ControlProblem) {
        try state.withLock { state throws(ControlProblem) in
            try state.change(body, now: time.now, instant: time.instant)
        }
    }

    func controlPart(_ request: SimulatedRequest) -> SimulatedAnswer? {
        guard request.path == "/control/state" else { return nil }
        return request.method == "GET" ? .json(200, state.withLock { $0.platform.canonical }) : .notAllowed("GET")
    }
}

extension SimulatorType {
    /// For `SimulatorRegistry`.
    public static let appservices = SimulatorType { AppServicesSimulator(time: $1, seed: $0) }
}
