import PosternCore
import PosternJSON
import PosternUpstreamKit

/// App monitoring (section 4.11): its configuration is requested first, and then metrics are sent, once.
struct Monitoring: Sendable {
    let requests: Requests
    /// The URL to which metrics are sent instead; empty means the default.
    let uploadURL: String

    /// The application's monitoring configuration: canonical text of the members that uploads repeat.
    static let configurationKey = "monitoring"
    /// After that time it is requested again.
    private static let configurationLife = Duration.seconds(86400)
    private static let longestText = 200
    private static let mostLogs = 100
    static let mayHaveArrived =
        "metrics may have arrived and have no key, so they are not sent again"

    // MARK: Sending

    func plan(for message: Message, in context: PlanContext) throws -> Plan {
        // An upload that was in flight when a run was killed. Messages of older versions have not kept their step.
        let progress = AppServicesProgress(message.progress)
        if message.mayHaveArrived, progress.sent != .fetchConfiguration {
            return .settle(
                count: 1, as: .dropped, reason: Self.mayHaveArrived,
                steps: progress.results(of: .metrics, failed: .uploadMetrics))
        }
        guard let configuration = try context.state.value(of: Self.configurationKey),
            fetchedAt(configuration) + Self.configurationLife > context.now
        else { return send(requests.configurationRequest, .fetchConfiguration, progress) }
        guard let body = body(of: message, configuration: configuration, now: context.now) else {
            return .settle(count: 1, as: .failed, reason: "the stored payload cannot be read")
        }
        return send(requests.metricsRequest(body, to: uploadURL), .uploadMetrics, progress)
    }

    /// The step is kept before the request leaves: after a kill, only the step that was in flight may have arrived.
    private func send(_ request: UpstreamRequest, _ step: Step, _ progress: AppServicesProgress) -> Plan {
        var request = request
        request.progress = progress.sending(step).stored
        return .send(request, count: 1)
    }

    private func fetchedAt(_ configuration: [UInt8]) -> Timestamp {
        let found = JSONParser.ofThisThread.parse(configuration) { $0["fetchedAtMs"]?.integer ?? 0 }
        if case .success(let milliseconds) = found { return Timestamp(milliseconds: milliseconds) }
        return Timestamp(milliseconds: 0)
    }

    private func body(of message: Message, configuration: [UInt8], now: Timestamp) -> String? {
        let names = ["instaOpsApplicationId", "orgName", "appName", "fullAppName"]
        let known = JSONParser.ofThisThread.parse(configuration) { root in
            names.compactMap { name in root[named: name].map { (name: name, json: CanonicalJSON.text($0)) } }
        }
        let given = JSONParser.ofThisThread.parse(message.payload) { root -> [(name: String, json: String)] in
            let logs = (root["logs"]?.elements.prefix(Self.mostLogs)).map {
                $0.map { entry($0, cutting: "logMessage") }
            }
            let metrics = root["metrics"]?.elements.map { entry($0, cutting: "url") }
            return [
                ("logs", JSONWriter.array(logs ?? [])), ("metrics", JSONWriter.array(metrics ?? [])),
                ("sessionMetrics", root["sessionMetrics"].map { entry($0) } ?? "{}"),
            ]
        }
        guard case .success(let fixed) = known, case .success(let own) = given else { return nil }
        return CanonicalJSON.object(fixed + own + [("timeStamp", "\"\(now.milliseconds)\"")])
    }

    /// All values are strings; unknown ones are absent.
    private func entry(_ value: JSONValue, cutting long: String? = nil) -> String {
        CanonicalJSON.object(
            value.members.compactMap { key, value in
                let name = key.string ?? ""
                guard value.kind != .null else { return nil }
                var text = value.string ?? CanonicalJSON.text(value)
                if name == long { text = String(text.prefix(Self.longestText)) }
                return (name, JSONEscapes.quoted(text))
            })
    }
}
