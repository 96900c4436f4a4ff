import PosternSimulatorKit

/// How the simulated platform behaves; `/control` shows and changes it (`appservices.md`).
struct AppServicesSettings: ControlMembers {
    enum ErrorStyle: String, ControlChoice {
        case usergrid, fault, empty, html, errorIn200, noEntities, emptyEntities
    }

    enum NotFoundError: String, ControlChoice {
        case serviceResource = "service_resource_not_found"
        case entity = "entity_not_found"
    }

    /// A status of not found.
    enum Style: String, ControlChoice {
        case unauthorized = "401"
        case absent = "404"

        var status: Int { self == .absent ? 404 : 401 }
    }

    /// A response that replaces the platform's own.
    struct Scripted: Codable, Sendable {
        var step: Call.Step?
        var user: String?
        var device: String?
        var group: String?
        var times: Int?
        /// Whether the request is carried out all the same.
        var taken: Bool?
        var status: Int
        var error: String?
        var fault: String?
        var body: String?
        var headers: [String: String]?

        var timesLeft: Int { times ?? 1 }

        func applies(to call: Call, _ step: Call.Step) -> Bool {
            func fits(_ wanted: String?, _ actual: String?) -> Bool {
                wanted == nil || wanted?.lowercased() == actual?.lowercased()
            }
            return timesLeft > 0 && fits(self.step?.rawValue, step.rawValue) && fits(user, call.user)
                && fits(device, call.device) && fits(group, call.group)
        }
    }

    @OrNull var basePath: String?
    @OrNull var organization: String?
    @OrNull var application: String?
    @OrNull var apiKey: String?
    var style = Style.absent
    var notFoundError = NotFoundError.serviceResource
    var errorStyle = ErrorStyle.usergrid
    @OrNull var errorStatus: Int?
    var answers: [Scripted] = []
    var onlyDeclaredTokens = false
    var bindTokens = false
    var tokenLifeSeconds = 0
    var invalidateRate = 0.0
    var graceMilliseconds = 100
    var exclusiveDevices = true
    var onlyExistingGroups = false
    /// An object; `false` if monitoring is not provided, `true` for the usual one.
    var monitoring = Self.monitoringConfiguration
    var seed: UInt64 = 0

    /// The identifying values are those of the specification's example (V15).
    static let monitoringConfiguration = JSONTree.object(of: [
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

    /// The next scripted response for a call, counted.
    mutating func script(for call: Call, _ step: Call.Step) -> Scripted? {
        guard let index = answers.firstIndex(where: { $0.applies(to: call, step) }) else { return nil }
        answers[index].times = answers[index].timesLeft - 1
        let scripted = answers[index]
        answers.removeAll { $0.timesLeft <= 0 }
        return scripted
    }

    /// Replaces `true` in `monitoring` by the usual configuration, and adds its members that an object lacks.
    mutating func completeMonitoring() {
        if monitoring == .bool(true) { monitoring = Self.monitoringConfiguration }
        guard let given = monitoring.members else { return }
        monitoring = .object(of: (Self.monitoringConfiguration.members ?? []) + given)
    }

    static let free: Set = ["monitoring"]

    var problem: String? {
        if let basePath, !(basePath.isEmpty || basePath.hasPrefix("/") && !basePath.hasSuffix("/")) {
            return "basePath: must begin with a slash and end without one"
        }
        switch monitoring {
        case .bool, .object: break
        case .array, .string, .number, .null: return "monitoring: must be true, false or an object"
        }
        return answers.lazy.compactMap { scripted in
            PosternSimulatorKit.problem("answers: status", scripted.status, 100...599)
                ?? PosternSimulatorKit.problem("answers: times", scripted.times, 1...1_000_000_000)
        }.first
            ?? PosternSimulatorKit.problem("errorStatus", errorStatus, 100...599)
            ?? PosternSimulatorKit.problem("tokenLifeSeconds", tokenLifeSeconds, 0...1_000_000_000)
            ?? PosternSimulatorKit.problem("graceMilliseconds", graceMilliseconds, 0...1_000_000_000)
            ?? PosternSimulatorKit.problem("invalidateRate", invalidateRate, 0...1)
    }
}
