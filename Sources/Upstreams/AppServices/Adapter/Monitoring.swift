import PosternCore
import PosternUpstream

/// App monitoring (section 4.11): its configuration is requested first, then the text of a crash is stored under a name,
/// and then metrics, which name it, are sent once.
struct Monitoring: Sendable {
    let name: UpstreamName
    let requests: Requests
    /// What the settings say.
    let options: MonitoringOptions
    /// Where the platform may have metrics sent.
    let uploadHosts: UploadHosts
    /// Metrics that are accepted in an interval of that length are uploaded at its end; zero: at once.
    let uploadInterval: Duration
    /// Whether the platform's configuration is kept as it came, for the SDK.
    let keepsAnswer: Bool

    /// The application's monitoring configuration in the state.
    static let configurationKey = "monitoring"
    /// The same as the platform has sent it.
    static let answerKey = "monitoring-answer"
    static let mayHaveArrived = "metrics may have arrived and have no key, so they are not sent again"

    func plan(for message: Message, as kind: AppServicesKind, in context: PlanContext) -> Plan {
        let progress = AppServicesProgress(message.progress)
        // An upload that was in flight when a run was killed. Messages of older versions have not kept their step.
        if message.mayHaveArrived, progress.sent ?? .uploadMetrics == .uploadMetrics {
            return .settle(
                count: 1, as: .dropped, reason: Self.mayHaveArrived,
                steps: progress.results(of: kind, failed: .uploadMetrics))
        }
        if kind == .metrics, !context.isFlushed(message), let end = endOfInterval(message.acceptedAt),
            end > context.now
        {
            return .wait(.schedule, until: end)
        }
        if let named = Self.namedCrash(message, kind) {
            return send(requests.crashRequest(named.text, file: named.file), .uploadCrashLog, progress)
        }
        let stored = MonitoringConfiguration(stored: context.state.value(of: Self.configurationKey))
        guard let configuration = stored, configuration.isCurrent(at: context.now) else {
            return send(requests.configurationRequest, .fetchConfiguration, progress)
        }
        var options = options.overriding(configuration.options, permitting: uploadHosts)
        // The SDK has applied the platform's configuration.
        if message.isFromSDK { options = options.uploadingAll }
        guard let item = MonitoringItem(message, kind, options, crashFile: crashFile(of: message)) else {
            return .settle(count: 1, as: .failed, reason: "the stored payload cannot be read")
        }
        if kind == .crash, !progress.done.contains(.uploadCrashLog) {
            return send(requests.crashRequest(item.crashText, file: item.crashFile), .uploadCrashLog, progress)
        }
        if kind == .metrics, !options.takes(session: item.session) {
            return .settle(
                count: 1, as: .cancelled,
                reason: "its session is not in the sample that monitoring.samplingRate asks for")
        }
        let body = item.body(configuration, at: context.now)
        return send(requests.metricsRequest(body, to: options.uploadURL), .uploadMetrics, progress)
    }

    /// A crash report whose file the caller has named: metrics of the caller's own name it.
    static func namedCrash(_ message: Message, _ kind: AppServicesKind) -> (file: String, text: String)? {
        guard kind == .crash else { return nil }
        let read = JSONParser.ofThisThread.parseWithLoneSurrogates(message.payload) {
            ($0["name"]?.string, $0["text"]?.string ?? "")
        }
        guard case .success((let file?, let text)) = read else { return nil }
        return (file, text)
    }

    /// Nil if metrics are uploaded at once.
    private func endOfInterval(_ acceptedAt: Timestamp) -> Timestamp? {
        let length = uploadInterval.components.seconds * 1000
        guard length > 0 else { return nil }
        return Timestamp(milliseconds: (acceptedAt.milliseconds / length + 1) * length)
    }

    /// The same name in each attempt, so that repeating the upload of the text changes nothing.
    private func crashFile(of message: Message) -> String {
        let digest = TextDigest.of(["crash", "\(name)", "\(message.id)", "\(message.acceptedAt.milliseconds)"])
        return String(decoding: UUIDText.version4(digest), as: UTF8.self) + ".crash"
    }

    /// The step is kept before the request leaves: after a kill, only the step that was in flight may have arrived.
    private func send(_ request: UpstreamRequest, _ step: Step, _ progress: AppServicesProgress) -> Plan {
        var request = request
        request.progress = progress.with { $0.sent = step }.stored
        return .send(request, count: 1)
    }
}

/// An item of monitoring, with the parts that its requests need.
private struct MonitoringItem {
    let crashFile: String
    let crashText: String
    /// What the sample is taken of: the session, else the device, else the message.
    let session: String
    private let parts: [(name: String, json: String)]

    private static let longestText = 200
    private static let maxLogs = 100

    /// Nil if the payload cannot be read.
    init?(_ message: Message, _ kind: AppServicesKind, _ options: MonitoringOptions, crashFile: String) {
        let read = JSONParser.ofThisThread.parseWithLoneSurrogates(message.payload) { root in
            let metrics = root["sessionMetrics"]
            let session = metrics?["sessionId"]?.string ?? metrics?["deviceId"]?.string ?? "\(message.id)"
            let parts =
                kind == .crash
                ? Self.parts(ofCrash: root, file: crashFile, at: message.acceptedAt)
                : Self.parts(ofMetrics: root, options)
            return (text: root["text"]?.string ?? "", session: session, parts: parts)
        }
        guard case .success(let found) = read else { return nil }
        self.crashFile = crashFile
        (crashText, session, parts) = (found.text, found.session, found.parts)
    }

    func body(_ configuration: MonitoringConfiguration, at now: Timestamp) -> String {
        CanonicalJSON.object(configuration.identity + parts + [("timeStamp", "\"\(now.milliseconds)\"")])
    }

    private static func parts(
        ofMetrics root: JSONValue, _ options: MonitoringOptions
    ) -> [(name: String, json: String)] {
        let logs =
            (root["logs"]?.elements.lazy.filter { options.takes(logLevel: $0["logLevel"]?.string ?? "") })
            .map { Array($0.prefix(maxLogs)) } ?? []
        let metrics = options.networkMonitoringEnabled ?? true ? root["metrics"]?.elements.map { $0 } ?? [] : []
        return [
            ("logs", JSONWriter.array(logs.map { entry($0, cutting: "logMessage") })),
            ("metrics", JSONWriter.array(metrics.map { entry($0, cutting: "url") })),
            ("sessionMetrics", root["sessionMetrics"].map { entry($0) } ?? "{}"),
        ]
    }

    /// One log entry names the file.
    private static func parts(
        ofCrash root: JSONValue, file: String, at acceptedAt: Timestamp
    ) -> [(name: String, json: String)] {
        let log = [
            ("tag", "CRASH"), ("logLevel", "A"), ("logMessage", file), ("timeStamp", "\(acceptedAt.milliseconds)"),
        ]
        let device = root["deviceId"]?.string?.lowercased() ?? ""
        let session =
            root["sessionMetrics"].map { entry($0) } ?? CanonicalJSON.object([("deviceId", JSONEscapes.quoted(device))])
        return [
            ("logs", "[" + CanonicalJSON.object(log.map { ($0.0, JSONEscapes.quoted($0.1)) }) + "]"), ("metrics", "[]"),
            ("sessionMetrics", session),
        ]
    }

    /// All values are strings; unknown ones are absent.
    private static func entry(_ value: JSONValue, cutting long: String? = nil) -> String {
        CanonicalJSON.object(
            value.members.compactMap { key, value in
                let name = key.string ?? ""
                guard value.kind != .null else { return nil }
                var text = value.string ?? CanonicalJSON.text(value)
                if name == long { text = String(text.prefix(longestText)) }
                return (name, JSONEscapes.quoted(text))
            })
    }
}
