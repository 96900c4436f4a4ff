import PosternCore
import PosternUpstream

/// What the platform's configuration of monitoring says (section 4.11), as far as it is kept in the state: an object
/// with those of its members that matter, the application's defaults among them, and when it was fetched.
struct MonitoringConfiguration {
    /// What uploads repeat: names and JSON texts.
    private(set) var identity: [(name: String, json: String)] = []
    private(set) var fetchedAt = Timestamp(milliseconds: 0)
    private(set) var options = MonitoringOptions()

    private static let required = ["instaOpsApplicationId", "orgName", "appName"]
    private static let defaults = [
        "samplingRate", "logLevelToMonitor", "networkMonitoringEnabled", "enableLogMonitoring",
    ]

    /// After that time it is requested again.
    private static let life = Duration.seconds(86400)

    func isCurrent(at now: Timestamp) -> Bool { fetchedAt + Self.life > now }

    init?(stored: [UInt8]?) {
        guard let stored else { return nil }
        let read = JSONParser.ofThisThread.parse(stored) { root in
            identity = (Self.required + ["fullAppName"]).compactMap { name in
                root[named: name].map { (name, CanonicalJSON.text($0)) }
            }
            fetchedAt = Timestamp(milliseconds: root["fetchedAtMs"]?.integer ?? 0)
            options = MonitoringOptions(root)
        }
        guard case .success = read else { return nil }
    }

    enum Answer {
        /// The text to keep.
        case provided(String)
        case disabled
        case missing
    }

    static func read(_ root: JSONValue, at now: Timestamp) -> Answer {
        if root["monitoringDisabled"]?.kind == .true { return .disabled }
        guard root["error"] == nil, root["instaOpsApplicationId"]?.kind == .number,
            required.dropFirst().allSatisfy({ root[named: $0]?.isFilledString ?? false })
        else { return .missing }
        func members(_ names: [String], of object: JSONValue?) -> [(name: String, json: String)] {
            names.compactMap { name in object?[named: name].map { (name, CanonicalJSON.text($0)) } }
        }
        return .provided(
            CanonicalJSON.object(
                members(required + ["fullAppName", "customUploadUrl"], of: root)
                    + members(defaults, of: root["defaultAppConfig"])
                    + [("fetchedAtMs", String(now.milliseconds))]))
    }
}

/// What is uploaded, and where. The settings override the platform's configuration where they have a value.
struct MonitoringOptions: Equatable {
    /// Of the sessions, in per cent.
    var samplingRate: Double?
    /// 2 (verbose) to 7 (assert).
    var logLevelToMonitor: Int?
    var networkMonitoringEnabled: Bool?
    var enableLogMonitoring: Bool?
    /// Empty means that of the application.
    var uploadURL = ""

    init() {}

    /// Members that are not of the right kind are ignored.
    fileprivate init(_ root: JSONValue) {
        func flag(_ value: JSONValue?) -> Bool? {
            value?.kind == .true ? true : value?.kind == .false ? false : nil
        }
        if let rate = root["samplingRate"], rate.kind == .number {
            samplingRate = Double(String(decoding: rate.bytes, as: UTF8.self))
        }
        logLevelToMonitor = root["logLevelToMonitor"]?.integer.map { Int(clamping: $0) }
        networkMonitoringEnabled = flag(root["networkMonitoringEnabled"])
        enableLogMonitoring = flag(root["enableLogMonitoring"])
        uploadURL = root["customUploadUrl"]?.string ?? ""
    }

    /// Without what samples and filters.
    var uploadingAll: Self {
        var all = Self()
        all.uploadURL = uploadURL
        return all
    }

    /// Whether the platform gives a URL that would count if `hosts` permitted it.
    func ignoresURL(of platform: Self, permitting hosts: UploadHosts) -> Bool {
        uploadURL.isEmpty && !platform.uploadURL.isEmpty && !hosts.permit(platform.uploadURL)
    }

    /// A URL of the platform is ignored unless `hosts` permit it.
    func overriding(_ platform: Self, permitting hosts: UploadHosts) -> Self {
        var both = self
        both.samplingRate = samplingRate ?? platform.samplingRate
        both.logLevelToMonitor = logLevelToMonitor ?? platform.logLevelToMonitor
        both.networkMonitoringEnabled = networkMonitoringEnabled ?? platform.networkMonitoringEnabled
        both.enableLogMonitoring = enableLogMonitoring ?? platform.enableLogMonitoring
        if uploadURL.isEmpty, hosts.permit(platform.uploadURL) { both.uploadURL = platform.uploadURL }
        return both
    }

    /// The levels of log entries, from 2 on.
    private static let levels = ["V", "D", "I", "W", "E", "A"]

    /// Whether log entries of that level are uploaded. Of an unknown level, they are.
    func takes(logLevel: String) -> Bool {
        guard enableLogMonitoring ?? true else { return false }
        guard let index = Self.levels.firstIndex(of: logLevel), let least = logLevelToMonitor else { return true }
        return index + 2 >= least
    }

    /// Whether the session is in the sample: always the same answer for a session.
    func takes(session: String) -> Bool {
        guard let samplingRate else { return true }
        return Double(TextDigest.of([session]).0 % 10_000) < samplingRate * 100
    }
}
