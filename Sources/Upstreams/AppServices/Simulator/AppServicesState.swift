import PosternCore
import PosternSimulatorKit

/// The state of the simulator. A value; `AppServicesSimulator` guards it.
struct AppServicesState: Sendable {
    var settings = AppServicesSettings()
    var platform: Platform
    var tokens = Tokens()
    var history = History()
    private var random: SplitMix64

    init(seed: UInt64) {
        settings.seed = seed
        platform = Platform(seed: seed)
        random = SplitMix64(state: seed)
    }

    mutating func reseed() {
        platform.seed(settings.seed)
        random = SplitMix64(state: settings.seed)
    }

    /// Clears everything except the settings.
    mutating func reset() {
        var fresh = AppServicesState(seed: settings.seed)
        fresh.settings = settings
        self = fresh
    }

    // MARK: One request

    /// - Parameter isAnswerLost: the gateway will not see the answer.
    mutating func judge(
        _ call: Call, poisons: [Faults.Poison], isAnswerLost: Bool, now: Timestamp, instant: MonotonicInstant
    ) -> SimulatedResult {
        let answers = Answer(
            settings: settings, organization: call.organization, application: call.application,
            apiKey: call.apiKey ?? "", now: now)
        var judged = SimulatedResult(answer: nil, violations: call.violations)
        guard let step = call.step else {
            judged.answer = strange(call, answers)
            return judged
        }
        tokens.see(call, settings, now: instant)
        judged.violations += history.objections(to: call, step, tokens, settings, now: instant)
        if step == .metrics {
            judged.violations += history.objectionsToCrashes(in: call, texts: platform.crashLogs)
        }
        let answer = answer(call, step, answers, poisons, instant, &judged)
        judged.answer = answer
        let told = KnownResult(answer, to: step)
        if !isAnswerLost { history.learn(told, call, step, &tokens, now: instant) }
        if step == .metrics, isAnswerLost || !(200...299).contains(answer.status) { history.learnUnclear(call) }
        return judged
    }

    /// An intermediary responded with a status only.
    mutating func pass(_ call: Call, _ answer: SimulatedAnswer, instant: MonotonicInstant) {
        guard let step = call.step else { return }
        tokens.see(call, settings, now: instant)
        history.learn(KnownResult(answer, to: step), call, step, &tokens, now: instant)
        guard step == .metrics else { return }
        history.learnUnclear(call)
        _ = history.objectionsToCrashes(in: call, texts: platform.crashLogs)
    }

    private func strange(_ call: Call, _ answers: Answer) -> SimulatedAnswer {
        switch call.target {
        case .noApplication:
            Answer.fault(
                404, "messaging.adaptors.http.flow.ApplicationNotFound", "Unable to identify proxy for host")
        case .wrongMethod: answers.error("unsupported_service_operation", 405, "Service operation not supported")
        case .nowhere, .step: answers.notFound
        }
    }

    /// In the order of the layers: proxy, application, operation.
    private mutating func answer(
        _ call: Call, _ step: Call.Step, _ answers: Answer,
        _ poisons: [Faults.Poison], _ instant: MonotonicInstant, _ judged: inout SimulatedResult
    ) -> SimulatedAnswer {
        if !step.isMonitoring, let refusal = refusal(of: call, answers, instant) { return refusal }
        let isOther =
            settings.organization.map { $0 != call.organization } == true
            || settings.application.map { $0 != call.application } == true
        if isOther {
            return answers.error("organization_application_not_found", 404, "Could not find application")
        }
        let scripted = settings.script(for: call, step)
        if let scripted, scripted.taken != true { return self.scripted(scripted, answers) }
        let item = Item(call, step, tokenNumber: call.auth.flatMap { tokens[$0.token]?.number }, tokens)
        if let refusal = item.refusal(by: poisons, answers) { return refusal }
        switch call.body {
        case .tooLarge: return Answer.html(413, "Request Entity Too Large")
        case .unreadable where !step.isMonitoring: return answers.error("json_parse", 400, "Cannot parse JSON")
        default: break
        }
        let own = step.isMonitoring ? monitor(call, step, answers, &judged) : perform(call, step, answers)
        // A 200 that contains an error has changed nothing.
        if KnownResult.isTaken(own, step) { judged.items = item.items }
        return scripted.map { self.scripted($0, answers) } ?? own
    }

    private mutating func refusal(
        of call: Call, _ answers: Answer, _ instant: MonotonicInstant
    ) -> SimulatedAnswer? {
        guard let key = call.apiKey else {
            return Answer.fault(
                401, "steps.oauth.v2.FailedToResolveAPIKey",
                "Failed to resolve API Key variable request.queryparam.api_key")
        }
        guard !key.isEmpty, settings.apiKey.map({ $0 == key }) ?? true else {
            return Answer.fault(401, "oauth.v2.InvalidApiKey", "Invalid ApiKey")
        }
        if settings.invalidateRate > 0, random.fraction() < settings.invalidateRate, let token = call.auth?.token {
            tokens.invalidate(token)
        }
        return tokens.refusal(of: call, now: instant).map { answers.refused($0) }
    }

    private func scripted(
        _ wanted: AppServicesSettings.Scripted, _ answers: Answer
    ) -> SimulatedAnswer {
        var answer: SimulatedAnswer
        if let error = wanted.error {
            answer = answers.error(error, wanted.status, "Scripted")
            answer.status = wanted.status
        } else if let fault = wanted.fault {
            answer = Answer.fault(wanted.status, fault, "Scripted")
        } else {
            answer = SimulatedAnswer(status: wanted.status, body: Array((wanted.body ?? "").utf8))
        }
        answer.headers += (wanted.headers ?? [:]).sorted { $0.key < $1.key }.map { ($0.key, $0.value) }
        return answer
    }

    private mutating func perform(
        _ call: Call, _ step: Call.Step, _ answers: Answer
    ) -> SimulatedAnswer {
        let action =
            switch step {
            case .getGroup: "get"
            case .disconnect, .disconnectAll, .removeUser: "delete"
            case .registerUser, .connect, .createGroup, .addUser: "post"
            default: "put"
            }
        let result = platform.perform(
            step, call, exclusiveDevices: settings.exclusiveDevices, now: answers.now)
        return answers.answer(result, action: action)
    }

    // MARK: Monitoring

    private mutating func monitor(
        _ call: Call, _ step: Call.Step, _ answers: Answer, _ judged: inout SimulatedResult
    ) -> SimulatedAnswer {
        let configuration = settings.monitoring
        guard configuration.members != nil else {
            return answers.error("entity_not_found", 404, "Monitoring is not provided for this application")
        }
        if step == .monitoringConfiguration { return .json(200, configuration.canonical) }
        if step == .crashLog {
            platform.takeCrashLog(call.file ?? "")
            return SimulatedAnswer(status: 200)
        }
        guard let metrics = call.json else { return answers.error("json_parse", 400, "Cannot parse JSON") }
        for name in ["instaOpsApplicationId", "orgName", "appName"]
        where metrics[name]?.canonical != configuration[name]?.canonical {
            judged.violations.append("\(step.rawValue): \(name) is not that of the monitoring configuration")
            return .json(400, #"{"message":"Unknown application"}"#)
        }
        if let name = metrics["fullAppName"]?.canonical, name != configuration["fullAppName"]?.canonical {
            judged.violations.append("\(step.rawValue): fullAppName is not that of the monitoring configuration")
        }
        platform.takeMetrics()
        return .json(200, #"{"message":"Successfully sent metrics"}"#)
    }
}

extension KnownResult {
    /// Whether the platform carried out the request.
    fileprivate static func isTaken(_ answer: SimulatedAnswer, _ step: Call.Step) -> Bool {
        step.isMonitoring ? (200...299).contains(answer.status) : Self(answer, to: step) == .ok
    }
}
