import PosternCore

/// The analytics backend Curio, to which devices report visits, screens, events and what belongs to push.
///
/// Each visitor has a lane: strictly one request at a time, in the order of acceptance. An action goes alone while it
/// is fresh, screens and events in periodic batches if so configured, and whatever is late or has failed once by
/// offline batches, which carry times (`CurioItem.way`).
struct CurioUpstream: Upstream {
    let name: UpstreamName
    let kinds = CurioKind.allCases.map { Kind($0.rawValue) }
    let laneRule = LaneRule.separate
    let acceptsByState = true

    let settings: CurioSettings

    func limits(_ configured: BatchLimits) -> BatchLimits {
        BatchLimits(
            maxMessages: min(configured.maxMessages, CurioSettings.mostRecords), maxBytes: configured.maxBytes)
    }

    /// As configured, and as requests spell it.
    var secrets: [String] {
        let key = settings.requests.apiKey
        guard !key.isEmpty else { return [] }
        let encoded = String(decoding: CurioEncoding.encoded(key), as: UTF8.self)
        return key == encoded ? [key] : [key, encoded]
    }

    var missingSettings: [String] {
        [("apiKey", settings.requests.apiKey), ("trackingCode", settings.requests.trackingCode)]
            .filter { $1.isEmpty }.map(\.0)
    }

    func admit(_ payload: JSONValue, of kind: Kind, in context: AdmissionContext) throws(InvalidPayload) -> Admission {
        guard let kind = CurioKind(kind) else { throw InvalidPayload([PayloadFault("", "is of an unknown kind")]) }
        return try settings.admission.admit(payload, of: kind, in: context)
    }

    func accept(_ candidate: Candidate, in state: any UpstreamState) throws(Refusal) -> [StateChange] {
        try CurioAcceptance(settings: settings, candidate: candidate, state: state).changes()
    }

    func plan(for messages: [Message], in context: PlanContext) -> Plan {
        CurioPlanner(settings: settings, messages: messages, context: context).plan()
    }

    func judge(_ response: UpstreamResponse, to batch: Batch, in context: PlanContext) -> Judgement {
        CurioAnswer(response, to: batch, settings: settings, in: context)?.judgement ?? Judgement(.retry(after: nil))
    }

    let resources = [CurioSessionView.resource]
}

extension CurioUpstream {
    static let type = UpstreamType(
        name: "curio",
        settings: [
            .init(
                "serverURL", .text, default: .text("https://curiotest.turkcell.com.tr/api/v2"),
                "Where the API is, its version included."),
            .init("apiKey", .text, default: .text(""), secret: true, "Key of the application, from Turkcell."),
            .init("trackingCode", .text, default: .text(""), "Tracking code of the application, from Turkcell."),
            .init(
                "sessionTimeoutMinutes", .integer(1...1440), default: .integer(30),
                "Minutes without a request after which the server ends a session."),
            .init(
                "periodicDispatchEnabled", .flag, default: .flag(false),
                "Sends screens and events in batches, once in dispatchPeriodMinutes for each visitor."),
            .init(
                "dispatchPeriodMinutes", .integer(1...1440), default: .integer(5),
                "Minutes between two such batches; at most sessionTimeoutMinutes."),
            .init(
                "maxCachedActivityCount", .integer(1...4000), default: .integer(1000),
                "Undelivered actions of one visitor; further ones are refused with 503."),
            .init(
                "onlineMaxAgeSeconds", .integer(0...31_536_000), default: .integer(60),
                "Age in seconds up to which an action goes alone and gets the server's time; older ones go by batch."),
            .init(
                "fetchLocationEnabled", .flag, default: .flag(true), "Takes locations; otherwise they are refused."),
            .init(
                "maxValidLocationTimeIntervalSeconds", .number(0...31_536_000), default: .number(600),
                "Age in seconds of the oldest location taken."),
            .init(
                "userAgentVersion", .text, default: .text("1.2.4"),
                "Version in the User-Agent, IOS CurioSDK v<version>."),
            .init(
                "registerForRemoteNotifications", .flag, default: .flag(true),
                "For devices alone; taken so that an application's settings can stand in one place."),
            .init(
                "notificationTypes", .text, default: .text("Sound,Badge,Alert"),
                "For devices alone, as above: Sound, Badge, Alert."),
        ],
        addressSetting: "serverURL",
        simulated: ["apiKey": "0f1e2d3c4b5a69788796a5b4c3d2e1f0", "trackingCode": "GW7DEM01"],
        make: { name, settings throws(SettingProblems) in
            CurioUpstream(name: name, settings: try CurioSettings(settings))
        })
}

extension CurioSettings {
    init(_ values: SettingValues) throws(SettingProblems) {
        var problems: [(setting: String, detail: String)] = []
        var serverURL = ""
        do {
            serverURL = try BaseURL(values.text("serverURL")).text
        } catch {
            problems.append(("serverURL", error.detail))
        }
        for setting in ["apiKey", "trackingCode"] where values.text(setting).utf8.contains(0) {
            problems.append((setting, "must not hold U+0000"))
        }
        let version = values.text("userAgentVersion")
        if version.isEmpty || !version.utf8.allSatisfy({ (0x21...0x7E).contains($0) }) {
            problems.append(("userAgentVersion", "must be ASCII without white space, and not empty"))
        }
        let timeout = values.integer("sessionTimeoutMinutes")
        let period = values.flag("periodicDispatchEnabled") ? values.integer("dispatchPeriodMinutes") : nil
        if let period, period > timeout {
            problems.append(("dispatchPeriodMinutes", "must not exceed sessionTimeoutMinutes, which is \(timeout)"))
        }
        guard problems.isEmpty else { throw SettingProblems(problems) }

        requests = CurioRequests(
            serverURL: serverURL, apiKey: values.text("apiKey"), trackingCode: values.text("trackingCode"),
            sessionTimeoutMinutes: timeout, userAgent: "IOS CurioSDK v\(version)")
        onlineMaxAge = .seconds(values.integer("onlineMaxAgeSeconds"))
        dispatchPeriod = period.map { .seconds($0 * 60) }
        maxCachedActivityCount = values.integer("maxCachedActivityCount")
        sessionTimeout = .seconds(timeout * 60)
        admission = CurioAdmission(
            takesLocations: values.flag("fetchLocationEnabled"),
            longestLocationAge: .seconds(values.number("maxValidLocationTimeIntervalSeconds")))
    }
}
