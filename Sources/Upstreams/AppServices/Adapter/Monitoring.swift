import PosternCore
import PosternJSON
import PosternUpstreamKit

/// App monitoring (section 4.11): its configuration is requested first, and then metrics are sent, once.
struct Monitoring: Sendable {
    let requests: Requests
    /// The URL to which metrics are sent instead; empty means the default.
    let uploadURL: String

    /// The application's monitoring configuration: canonical text of the members that uploads repeat.
    private static let configurationKey = "monitoring"
    /// After that time it is requested again.
    private static let configurationLife = Duration.seconds(86400)
    private static let longestText = 200
    private static let mostLogs = 100
    private static let mayHaveArrived =
        "metrics may have arrived and have no key, so they are not sent again"

    // MARK: Sending

    func plan(for message: Message, in context: PlanContext) throws -> Plan {
        // An upload that was in flight when a run was killed. Messages of older versions have not kept their step.
        if message.mayHaveArrived, MonitoringProgress(message.progress).sent != .fetchConfiguration {
            return .settle(count: 1, as: .dropped, reason: Self.mayHaveArrived)
        }
        guard let configuration = try context.state.value(of: Self.configurationKey),
            fetchedAt(configuration) + Self.configurationLife > context.now
        else { return send(requests.configurationRequest) }
        guard let body = body(of: message, configuration: configuration, now: context.now) else {
            return .settle(count: 1, as: .failed, reason: "the stored payload cannot be read")
        }
        return send(requests.metricsRequest(body, to: uploadURL))
    }

    /// The step is kept before the request leaves: after a kill, only the step that was in flight may have arrived.
    private func send(_ request: UpstreamRequest) -> Plan {
        var request = request
        request.progress = MonitoringProgress(sent: request.step.flatMap(Step.init)).stored
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

    // MARK: Answers

    func decision(on response: UpstreamResponse, to step: String?, at now: Timestamp) -> Decision {
        let isUpload = step == Step.uploadMetrics.rawValue
        switch response.status {
        case 200..<300:
            return isUpload
                ? decision(upload: response.body)
                : decision(configuration: response.body, at: now)
        case 300..<400:
            return Decision(.holdUpstream(.configuration, detail: "HTTP \(response.status) from monitoring"))
        case 401, 403, 404:
            return refused("HTTP \(response.status) from monitoring")
        default:
            // An upload that failed may have been counted all the same.
            if isUpload { return refused("HTTP \(response.status) from monitoring") }
            return response.status < 500 && ![408, 425, 429].contains(response.status) && response.status >= 400
                ? refused("HTTP \(response.status) from monitoring")
                : Decision(.retry(after: response.retryAfter(now: now)))
        }
    }

    func decision(on failure: TransferFailure, to step: String?) -> Decision? {
        guard step == Step.uploadMetrics.rawValue else { return nil }
        guard failure.mayHaveArrived else { return Decision(.retry(after: nil), tookNothing: true) }
        return refused(Self.mayHaveArrived)
    }

    private func decision(upload body: [UInt8]) -> Decision {
        let read = JSONParser.ofThisThread.parse(body) { $0["message"]?.string?.lowercased() ?? "" }
        if case .success(let word) = read, word.hasPrefix("successfully sent") {
            return Decision(.delivered())
        }
        return refused("monitoring did not say that it was sent")
    }

    private func decision(configuration body: [UInt8], at now: Timestamp) -> Decision {
        let read = JSONParser.ofThisThread.parse(body) { root -> (text: String?, isDisabled: Bool) in
            let needed = ["instaOpsApplicationId", "orgName", "appName"]
            let isDisabled = root["monitoringDisabled"]?.kind == .true
            guard root["error"] == nil, root["instaOpsApplicationId"]?.kind == .number,
                needed.dropFirst().allSatisfy({ root[named: $0]?.isFilledString ?? false })
            else { return (nil, isDisabled) }
            let kept = (needed + ["fullAppName"]).compactMap { name in
                root[named: name].map { (name: name, json: CanonicalJSON.text($0)) }
            }
            return (CanonicalJSON.object(kept + [("fetchedAtMs", String(now.milliseconds))]), isDisabled)
        }
        guard case .success(let found) = read else {
            return Decision(.suspect(after: nil, rule: .afterTries(Answer.junkLimit)))
        }
        if found.isDisabled { return refused("monitoring is disabled for the application") }
        guard let text = found.text else { return refused("monitoring is not provided for the application") }
        return Decision(
            .proceed(progress: MonitoringProgress(sent: .fetchConfiguration).stored),
            changes: [.set(key: Self.configurationKey, value: Array(text.utf8))])
    }

    private func refused(_ reason: String) -> Decision { Decision(.reject(reason: reason)) }
}
