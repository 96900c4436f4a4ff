internal import PosternCore
internal import Synchronization

/// Pearson AppServices behind its proxy (port 9003): users, devices, groups, their ties, and app monitoring.
///
/// It answers as the platform would and reports what a gateway must never send: anything wrong on the wire, a step out
/// of its order, a refused token. What a gateway may send depends on what it was told, so answers that a fault loses
/// are not held against it, and those that a fault makes up count.
///
/// **Control.** `GET /control` shows the settings and the declared tokens; `POST /control` with a JSON object changes what
/// it names, all or nothing; `GET /control/state` gives what the platform holds as canonical JSON. `docs/simulators.md`
/// describes each member:
///
/// - what is right: `organization`, `application`, `apiKey`, `basePath`;
/// - how errors look: `style` (401 or 404 for not found), `notFoundError`, `errorStyle` (of refused tokens),
///   `errorStatus` (of all Usergrid errors), `answers` (scripted ones);
/// - tokens: `tokens` (declared ones), `onlyDeclaredTokens`, `bindTokens`, `tokenLifeSeconds`, `invalidateToken`,
///   `invalidateRate`, `graceMilliseconds`;
/// - what the platform holds: `users`, `devices`, `groups`, `connections`, `remove`, `reset`, `exclusiveDevices`,
///   `onlyExistingGroups`, `monitoring`, `seed`.
///
/// **Received.** One object for each request that was done, in this order of members, those left out that there are not:
/// `{"user","device","group","step","file","notifier","deviceToken","provider","token","body"}`. `user` is the one named
/// or else the one whose token it is; `token` is the token's number in the order of arrival, from 1; `body` is the text
/// sent. The step is one of `register_device`, `register_user`, `connect`, `preferences`, `disconnect`,
/// `unregister_device`, `get_group`, `create_group`, `add_user`, `remove_user`, `monitoring_configuration`, `metrics`,
/// `crash_log`. Duplicates, and groups that are not found, are answers in the 400s and not in the list.
final class AppServicesSimulator: Simulator {
    let name = "appservices"
    let orderField = "user"
    private let time: any TimeSource
    private let state: Mutex<AppServicesState>

    init(time: any TimeSource = SystemTime(), seed: UInt64 = 0) {
        self.time = time
        state = Mutex(AppServicesState(seed: seed))
    }

    func judge(_ request: SimulatedRequest, poisons: [Faults.Poison]) -> Judged {
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

    private func call(_ request: SimulatedRequest) -> AppServicesCall {
        AppServicesCall(request, basePath: state.withLock { $0.settings.basePath })
    }

    // MARK: Control

    func control(_ request: SimulatedRequest) -> SimulatedAnswer? {
        switch (request.path, request.method) {
        case ("/control", "GET"): return .json(200, state.withLock { $0.settingsText })
        case ("/control", "POST"):
            do throws(AppServicesControl.Problem) {
                let control = try AppServicesControl(request.body, now: time.now, instant: time.instant)
                return .json(200, try change(control))
            } catch {
                return .json(400, #"{"error":\#(quoted(error.description))}"#)
            }
        case ("/control/state", "GET"): return .json(200, state.withLock { $0.platform.canonical })
        case ("/control", _): return SimulatedAnswer(status: 405, headers: [("Allow", "GET, POST")])
        case ("/control/state", _): return SimulatedAnswer(status: 405, headers: [("Allow", "GET")])
        default: return nil
        }
    }

    private func change(_ control: AppServicesControl) throws(AppServicesControl.Problem) -> String {
        try state.withLock { (state) throws(AppServicesControl.Problem) in
            try control.apply(to: &state)
            return state.settingsText
        }
    }
}

extension AppServicesState {
    fileprivate var settingsText: String {
        let declared = tokens.all.filter(\.value.isDeclared).sorted { $0.value.number < $1.value.number }
        let list = declared.map { text, token in
            AppServicesJSON.object(of: [
                .init(name: "token", value: .string(text)), .init(name: "valid", value: .bool(token.isValid)),
                .init(name: "user", value: token.owner.map { .string($0) } ?? .null),
                .init(name: "provider", value: token.provider.map { .string($0) } ?? .null),
            ])
        }
        return AppServicesJSON.object(
            of: (settings.json.members ?? []) + [.init(name: "tokens", value: .array(list))]
        ).canonical
    }
}
