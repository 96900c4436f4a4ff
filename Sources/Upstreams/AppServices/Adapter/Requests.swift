import PosternCore
import PosternUpstream

/// Builds the requests (sections 3 and 4).
struct Requests: Sendable {
    /// Base URL, organization and application.
    private let root: String
    private let query: String
    let notifier: String

    init(base: BaseURL, organization: String, application: String, apiKey: String, notifier: String) {
        root = "\(base.text)/\(PercentEncoding.encode(organization))/\(PercentEncoding.encode(application))"
        query = "?api_key=" + PercentEncoding.encode(apiKey)
        self.notifier = notifier
    }

    /// `lists`: the preferences of the device, for D. `registeredNotifier`: the one that the device was registered with.
    func request(
        _ step: Step, for item: Item, lists: String?, registeredNotifier: String?,
        credential: HeldCredential
    ) -> UpstreamRequest {
        let (method, segments, body) = call(step, for: item, lists: lists, registeredNotifier: registeredNotifier)
        let path = segments.map { "/" + PercentEncoding.encode($0) }.joined()
        return UpstreamRequest(
            method: method, url: root + path + query, headers: headers(credential), body: Array(body.utf8),
            endpoint: step.rawValue, step: step.rawValue, credentialVersion: credential.version)
    }

    private func call(
        _ step: Step, for item: Item, lists: String?, registeredNotifier: String?
    ) -> (UpstreamRequest.Method, [String], body: String) {
        switch step {
        // The singular is intended: see section 4.1.
        case .registerDevice: (.put, ["device", item.device], registration(item))
        case .registerUser: (.post, ["users"], object([("username", item.user)]))
        case .connect: (.post, ["users", item.user, "devices", item.device], "")
        case .savePreferences:
            (.put, ["device", item.device], Self.preferences(lists ?? PreferenceLists().text))
        case .disconnect: (.delete, ["users", item.user, "devices", item.device], "")
        case .blankToken:
            (.put, ["device", item.device], blanking(item, notifier: item.notifier ?? registeredNotifier ?? notifier))
        case .findGroup: (.get, ["groups", item.group], "")
        case .createGroup: (.post, ["groups"], object([("path", item.group), ("title", item.group)]))
        case .addToGroup: (.post, ["groups", item.group, "users", item.user], "")
        case .removeFromGroup: (.delete, ["groups", item.group, "users", item.user], "")
        case .fetchConfiguration, .uploadCrashLog, .uploadMetrics:
            preconditionFailure("monitoring goes without a token")
        }
    }

    /// Section 3.1: on every data call, those without a body included.
    private func headers(_ credential: HeldCredential) -> [(name: String, value: String)] {
        let token = String(decoding: credential.value, as: UTF8.self)
        let own: (name: String, value: String) =
            switch Provider(rawValue: credential.note) {
            case .mi: ("X-Authorization", token)
            case .pi, nil: ("Authorization", "Bearer " + token)
            }
        let provider = Provider(rawValue: credential.note) ?? .pi
        return [("Content-Type", "application/json"), own, ("X-Auth-Provider", provider.rawValue)]
    }

    // MARK: Bodies

    private func registration(_ item: Item) -> String {
        let details = [
            ("deviceModel", item.deviceModel), ("devicePlatform", item.devicePlatform),
            ("deviceOSVersion", item.deviceOSVersion),
        ].compactMap { name, value in value.map { (name, $0) } }
        return object(
            [
                (Self.property(item.notifier ?? notifier), item.deviceToken), ("type", "device"),
                ("uuid", item.device),
            ] + details)
    }

    private func blanking(_ item: Item, notifier: String) -> String {
        object([(Self.property(notifier), ""), ("type", "device"), ("uuid", item.device)])
    }

    static func preferences(_ lists: String) -> String { preferencesStart + lists + preferencesEnd }

    /// The lists in a body that `preferences` has made.
    static func lists(ofPreferences body: [UInt8]) -> ArraySlice<UInt8>? {
        guard body.starts(with: preferencesStart.utf8) else { return nil }
        return body.dropFirst(preferencesStart.utf8.count).dropLast(preferencesEnd.utf8.count)
    }

    private static let preferencesStart = #"{"mobileplatform":{"preferences":"#
    private static let preferencesEnd = "}}"

    /// The notifier in a body that `registration` has made.
    static func notifier(ofRegistration body: [UInt8]) -> String? {
        let read = JSONParser.ofThisThread.parse(body) { root -> String? in
            let names = root.members.compactMap { $0.key.string }
            return names.first { $0.hasSuffix(propertySuffix) }.map { String($0.dropLast(propertySuffix.count)) }
        }
        return (try? read.get()) ?? nil
    }

    /// One flat name with dots in it.
    private static func property(_ notifier: String) -> String { notifier + propertySuffix }

    private static let propertySuffix = ".notifier.id"

    private func object(_ members: [(String, String)]) -> String {
        CanonicalJSON.object(members.map { ($0.0, JSONEscapes.quoted($0.1)) })
    }

    // MARK: Monitoring (section 4.11): no api key, no token

    var configurationRequest: UpstreamRequest {
        UpstreamRequest(
            method: .get, url: root + "/apm/apigeeMobileConfig",
            endpoint: Step.fetchConfiguration.rawValue, step: Step.fetchConfiguration.rawValue,
            statusDecides: { !(200...299).contains($0) })
    }

    /// - Parameter file: A UUID and `.crash`.
    func crashRequest(_ text: String, file: String) -> UpstreamRequest {
        UpstreamRequest(
            method: .put, url: root + "/apm/crashLogs/" + file, headers: [("Content-Type", "text/plain")],
            body: Array(text.utf8), endpoint: Step.uploadCrashLog.rawValue, step: Step.uploadCrashLog.rawValue,
            statusDecides: { _ in true })
    }

    /// - Parameter url: The URL for uploads; empty means the default.
    func metricsRequest(_ body: String, to url: String) -> UpstreamRequest {
        UpstreamRequest(
            url: url.isEmpty ? root + "/apm/apmMetrics" : url,
            headers: [("Content-Type", "application/json; charset=utf-8")], body: Array(body.utf8),
            endpoint: Step.uploadMetrics.rawValue, step: Step.uploadMetrics.rawValue,
            statusDecides: { !(200...299).contains($0) })
    }
}
