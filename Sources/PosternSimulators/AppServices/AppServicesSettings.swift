/// How the simulated platform behaves; `/control` shows and changes it. The members are described at
/// `AppServicesSimulator`.
struct AppServicesSettings: Sendable {
    enum ErrorStyle: String, Sendable, CaseIterable {
        case usergrid, fault, empty, html, errorIn200, noEntities, emptyEntities
    }

    /// An answer given in place of the platform's own.
    struct Scripted: Sendable {
        var step: String?
        var user: String?
        var device: String?
        var group: String?
        var times: Int
        /// Done all the same.
        var isTaken: Bool
        var answer: Answer

        struct Answer: Sendable {
            var status: Int
            var error: String?
            var fault: String?
            var body: String
            var headers: [AppServicesJSON.Member]
        }

        func applies(to call: AppServicesCall, _ step: AppServicesCall.Step) -> Bool {
            func fits(_ wanted: String?, _ actual: String?) -> Bool {
                wanted == nil || wanted?.lowercased() == actual?.lowercased()
            }
            return times > 0 && fits(self.step, step.rawValue) && fits(user, call.user) && fits(device, call.device)
                && fits(group, call.group)
        }
    }

    var basePath: String?
    var organization: String?
    var application: String?
    var apiKey: String?
    var style = 404
    var notFoundError = "service_resource_not_found"
    var errorStyle = ErrorStyle.usergrid
    var errorStatus: Int?
    var answers: [Scripted] = []
    var onlyDeclaredTokens = false
    var bindTokens = false
    var tokenLifeSeconds = 0
    var invalidateRate = 0.0
    var graceMilliseconds = 100
    var exclusiveDevices = true
    var onlyExistingGroups = false
    /// Nil when monitoring is not provided.
    var monitoring: AppServicesJSON? = Self.monitoringConfiguration
    var seed: UInt64 = 0

    /// The identifying values are those of the specification's example (V15).
    static let monitoringConfiguration = AppServicesJSON.object(of: [
        .init(name: "instaOpsApplicationId", value: .number("21493")),
        .init(name: "orgName", value: .string("acme")), .init(name: "appName", value: .string("campus-dev")),
        .init(name: "fullAppName", value: .string("acme_campusdev")),
        .init(name: "monitoringDisabled", value: .bool(false)),
        .init(
            name: "defaultAppConfig",
            value: .object(of: [
                .init(name: "samplingRate", value: .number("100")),
                .init(name: "agentUploadIntervalInSeconds", value: .number("60")),
                .init(name: "logLevelToMonitor", value: .number("2")),
                .init(name: "networkMonitoringEnabled", value: .bool(true)),
                .init(name: "enableLogMonitoring", value: .bool(true)),
            ])),
    ])

    /// The next scripted answer for a call, counted.
    mutating func script(for call: AppServicesCall, _ step: AppServicesCall.Step) -> Scripted? {
        guard let place = answers.firstIndex(where: { $0.applies(to: call, step) }) else { return nil }
        answers[place].times -= 1
        let scripted = answers[place]
        answers.removeAll { $0.times <= 0 }
        return scripted
    }

    // MARK: Text

    var json: AppServicesJSON {
        func text(_ value: String?) -> AppServicesJSON { value.map { .string($0) } ?? .null }
        func number(_ value: some CustomStringConvertible) -> AppServicesJSON { .number("\(value)") }
        let members: [(String, AppServicesJSON)] = [
            ("basePath", text(basePath)), ("organization", text(organization)), ("application", text(application)),
            ("apiKey", text(apiKey)), ("style", .string("\(style)")), ("notFoundError", .string(notFoundError)),
            ("errorStyle", .string(errorStyle.rawValue)), ("errorStatus", errorStatus.map { number($0) } ?? .null),
            ("answers", .array(answers.map(\.json))), ("onlyDeclaredTokens", .bool(onlyDeclaredTokens)),
            ("bindTokens", .bool(bindTokens)), ("tokenLifeSeconds", number(tokenLifeSeconds)),
            ("invalidateRate", number(invalidateRate)), ("graceMilliseconds", number(graceMilliseconds)),
            ("exclusiveDevices", .bool(exclusiveDevices)), ("onlyExistingGroups", .bool(onlyExistingGroups)),
            ("monitoring", monitoring ?? .bool(false)), ("seed", number(seed)),
        ]
        return .object(of: members.map { .init(name: $0, value: $1) })
    }
}

extension AppServicesSettings.Scripted {
    var json: AppServicesJSON {
        var members: [(String, AppServicesJSON)] = [
            ("times", .number("\(times)")), ("taken", .bool(isTaken)), ("status", .number("\(answer.status)")),
            ("body", .string(answer.body)), ("headers", .object(answer.headers)),
        ]
        let texts = [
            ("step", step), ("user", user), ("device", device), ("group", group), ("error", answer.error),
            ("fault", answer.fault),
        ]
        for (name, value) in texts { if let value { members.append((name, .string(value))) } }
        return .object(of: members.map { .init(name: $0, value: $1) })
    }

    /// Reads one; the error is a sentence.
    init(_ json: AppServicesJSON) throws(AppServicesControl.Problem) {
        let known = [
            "body", "device", "error", "fault", "group", "headers", "status", "step", "taken", "times", "user",
        ]
        let reader = try AppServicesControl.Reader(json, known: known, at: "answers")
        guard let status = try reader.int("status", 100...599) else {
            throw .init(description: "answers: status is missing")
        }
        step = try reader.text("step")
        if let step, AppServicesCall.Step(rawValue: step) == nil {
            let steps = AppServicesCall.Step.allCases.map(\.rawValue).joined(separator: ", ")
            throw .init(description: "answers: step is one of \(steps)")
        }
        user = try reader.text("user")
        device = try reader.text("device")
        group = try reader.text("group")
        times = try reader.int("times", 1...1_000_000_000) ?? 1
        isTaken = try reader.flag("taken") ?? false
        let headers = try reader.object("headers") ?? []
        guard headers.allSatisfy({ $0.value.string != nil }) else {
            throw .init(description: "answers: headers is an object of texts")
        }
        answer = Answer(
            status: status, error: try reader.text("error"), fault: try reader.text("fault"),
            body: try reader.text("body") ?? "", headers: headers)
    }
}
