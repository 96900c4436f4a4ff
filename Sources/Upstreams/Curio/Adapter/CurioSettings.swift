import PosternCore
import PosternUpstream

/// The configuration of one application, checked.
struct CurioSettings: SettingsSection {
    var serverURL = BaseURL(known: "https://curiotest.turkcell.com.tr/api/v2")
    var apiKey = ""
    var trackingCode = ""
    var sessionTimeoutMinutes = 30
    var dispatchesPeriodically = false
    var dispatchPeriodMinutes = 5
    var maxCachedActivityCount = 1000
    /// Requests for one item contain no time, so older actions are sent in batches.
    var onlineMaxAge = Duration.seconds(60)
    var takesLocations = true
    /// Older locations are rejected.
    var longestLocationAge = Duration.seconds(600)
    var userAgentVersion = "1.2.4"
    var sdk = SDKSettings(whenInvalid: .deadLetter)
    /// How long a request of an SDK for which there is no room is held.
    var holdTime = Duration.seconds(35)

    static let fields: [SettingField<Self>] = own + sdkFields

    private static let sdkFields =
        SettingField<Self>.sdk(
            isEnabled: \.sdk.isEnabled, prefix: \.sdk.prefix, maxBodyBytes: \.sdk.maxBodyBytes,
            requestsPerSecondPerAddress: \.sdk.requestsPerSecondPerAddress) + [
            .whenInvalid(\.sdk.whenInvalid),
            .wholeSeconds(
                "sdk.holdSeconds", 0...300, \.holdTime,
                "How long a request is held while there is no room for it, before its connection is closed without an answer."
            ),
        ]

    private static let own: [SettingField<Self>] = [
        .address("serverURL", \.serverURL, "URL of the API, including its version."),
        .text(
            "apiKey", \.apiKey, rule: noNUL, secret: true, simulated: "0f1e2d3c4b5a69788796a5b4c3d2e1f0",
            "Key of the application, from Turkcell."),
        .text(
            "trackingCode", \.trackingCode, rule: noNUL, simulated: "GW7DEM01",
            "Tracking code of the application, from Turkcell."),
        .integer(
            "sessionTimeoutMinutes", 1...1440, \.sessionTimeoutMinutes,
            "Minutes without a request after which the server ends a session."),
        .bool(
            "periodicDispatchEnabled", \.dispatchesPeriodically,
            "Whether screens and events are sent in batches, once in dispatchPeriodMinutes for each visitor."),
        .integer(
            "dispatchPeriodMinutes", 1...1440, \.dispatchPeriodMinutes,
            "Minutes between two such batches; at most sessionTimeoutMinutes."),
        .integer(
            "maxCachedActivityCount", 1...4000, \.maxCachedActivityCount,
            "Undelivered actions of one visitor; further ones get 503."),
        .wholeSeconds(
            "onlineMaxAgeSeconds", 0...31_536_000, \.onlineMaxAge,
            "Age in seconds up to which an action is sent alone, with the server's time; older ones go in batches."),
        .bool("fetchLocationEnabled", \.takesLocations, "Whether locations are accepted; otherwise they are rejected."),
        .seconds(
            "maxValidLocationTimeIntervalSeconds", 0...31_536_000, \.longestLocationAge,
            "Age in seconds of the oldest location that is accepted."),
        .text(
            "userAgentVersion", \.userAgentVersion, rule: headerWord,
            "Version in the User-Agent, IOS CurioSDK v<version>."),
    ]

    private static let noNUL = Setting.Rule<String>("must not hold U+0000") { !$0.utf8.contains(0) }
    private static let headerWord = Setting.Rule<String>("must be ASCII without white space, and not empty") { text in
        !text.isEmpty && text.utf8.allSatisfy { (0x21...0x7E).contains($0) }
    }

    var conflicts: [(property: PartialKeyPath<Self>, detail: String)] {
        var found: [(property: PartialKeyPath<Self>, detail: String)] = []
        if dispatchesPeriodically, dispatchPeriodMinutes > sessionTimeoutMinutes {
            let detail = "must not exceed sessionTimeoutMinutes, which is \(sessionTimeoutMinutes)"
            found.append((\.dispatchPeriodMinutes, detail))
        }
        if sdk.isEnabled, apiKey.isEmpty || trackingCode.isEmpty {
            found.append((\.sdk.isEnabled, "needs apiKey and trackingCode: callers are checked against them"))
        }
        return found
    }

    // MARK: Derived values

    var requests: Requests {
        Requests(
            serverURL: serverURL.text, apiKey: apiKey, trackingCode: trackingCode,
            sessionTimeoutMinutes: sessionTimeoutMinutes, userAgent: "IOS CurioSDK v\(userAgentVersion)")
    }
    var validation: CurioValidation {
        CurioValidation(takesLocations: takesLocations, longestLocationAge: longestLocationAge)
    }
    /// How long screens and events are collected; nil if each is sent alone.
    var dispatchPeriod: Duration? { dispatchesPeriodically ? .seconds(dispatchPeriodMinutes * 60) : nil }
    private var sessionTimeout: Duration { .seconds(sessionTimeoutMinutes * 60) }
    /// The session's own, if its start has one.
    func timeout(of session: Session) -> Duration { session.timeoutMinutes.map { .seconds($0 * 60) } ?? sessionTimeout }

    /// The largest batch that an SDK sends.
    static let maxRecords = 250
    /// How many times an item may find its session dead before it is sent in a batch, which needs no live session.
    static let maxRounds = 5

    /// Warnings about values that are allowed but probably not intended.
    var warning: String? {
        dispatchPeriod == sessionTimeout
            ? "dispatchPeriodMinutes is sessionTimeoutMinutes: sessions may die between two batches" : nil
    }

    /// How long a session is remembered after its last action; after its end, only so that its code is not accepted twice.
    func retention(of session: Session) -> Duration { timeout(of: session) * (session.isEnded ? 2 : 24) }
    /// Its row is renewed if it has not been for this long.
    func renewal(of session: Session) -> Duration { timeout(of: session) * 4 }
}
