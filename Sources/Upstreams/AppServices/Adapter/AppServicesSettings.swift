import PosternCore
import PosternUpstream

struct AppServicesSettings: SettingsSection {
    var baseURL = BaseURL(known: "https://mobileservices.openclasslabs.com/appservices")
    var organization = ""
    var application = ""
    var apiKey = ""
    var provider = Provider.pi
    var notifier = "apple"
    var onlyAddUserToExistingGroups = false
    /// The older names of two settings of `monitoring`.
    var monitoringEnabled = false
    var uploadURL = ""
    var uploadHosts: [String] = []
    var monitoring = MonitoringSettings()
    /// Zero means that items wait forever.
    var giveUpAfter = Duration.seconds(604_800)
    var sdk = SDKSettings()
    var answerWait = Duration.seconds(5)

    static let fields: [SettingField<Self>] = own + sdkFields

    private static let sdkFields =
        SettingField<Self>.sdk(
            isEnabled: \.sdk.isEnabled, prefix: \.sdk.prefix, maxBodyBytes: \.sdk.maxBodyBytes,
            requestsPerSecondPerAddress: \.sdk.requestsPerSecondPerAddress) + [
            .whenInvalid(\.sdk.whenInvalid),
            .wholeSeconds(
                "sdk.waitSeconds", 0...60, \.answerWait,
                "How long a call waits for the platform's answer once it is stored; 0: not at all."),
        ]

    var conflicts: [(property: PartialKeyPath<Self>, detail: String)] {
        guard sdk.isEnabled, organization.isEmpty || application.isEmpty || apiKey.isEmpty else { return [] }
        return [(\.sdk.isEnabled, "needs organization, application and apiKey: callers are checked against them")]
    }

    private static let own: [SettingField<Self>] = [
        .address("baseURL", \.baseURL, "URL of AppServices."),
        .text(
            "organization", \.organization, rule: noSpace, simulated: "acme",
            "The organization's name, from Pearson."),
        .text(
            "application", \.application, rule: noSpace, simulated: "campus-dev",
            "The application's name, from Pearson; development and distribution builds have two, so two upstreams."),
        .text(
            "apiKey", \.apiKey, rule: noSpace, secret: true, simulated: "SAMPLEKEY7Q2W9E4R6T1Y8U3I5O0PAS1",
            "The application's key, from Pearson."),
        .choice("authenticationProvider", \.provider, "Issuer of the tokens of items that do not name one."),
        .text(
            "notifier", \.notifier, rule: notifierName,
            "The server's notifier, for items that name none: 1 to 64 letters, digits, _ and -."),
        .bool(
            "onlyAddUserToExistingGroups", \.onlyAddUserToExistingGroups,
            "Whether a missing group fails `group_add` instead of being created."),
        .bool("monitoringEnabled", \.monitoringEnabled, "As `monitoring.enabled`, if that is null."),
        .spelledURL("customUploadUrl", \.uploadURL, "As `monitoring.uploadURL`, if that is empty."),
        .list(
            "uploadHosts", \.uploadHosts,
            rule: Setting.Rule(UploadHosts.form) { $0.allSatisfy(UploadHosts.isHost) },
            "Hosts, with a port if it is not the usual one, to which the platform's configuration may have metrics sent, besides that of `baseURL`."
        ),
        .wholeSeconds(
            "giveUpAfterSeconds", 0...315_360_000, \.giveUpAfter,
            "How long an item may wait, for a token too, before it expires; four times as long for "
                + "`unregister`, `disconnect` and `device_unregister`; "
                + "0: no limit."),
        .optionalBool(
            "monitoring.enabled", \.monitoring.enabled,
            "Whether `metrics` and `crash` are accepted; null: as `monitoringEnabled` says."),
        .optionalNumber(
            "monitoring.samplingRate", 0...100, \.monitoring.options.samplingRate,
            "Per cent of the sessions whose metrics are uploaded; null: as the platform's configuration says."),
        .optionalInteger(
            "monitoring.logLevelToMonitor", 2...7, \.monitoring.options.logLevelToMonitor,
            "The least level of log entries that are uploaded, from 2 (verbose) to 7 (assert); null: as the platform says."
        ),
        .optionalBool(
            "monitoring.networkMonitoringEnabled", \.monitoring.options.networkMonitoringEnabled,
            "Whether the entries of `metrics` are uploaded; null: as the platform says."),
        .optionalBool(
            "monitoring.enableLogMonitoring", \.monitoring.options.enableLogMonitoring,
            "Whether log entries are uploaded; null: as the platform says."),
        .wholeSeconds(
            "monitoring.uploadIntervalSeconds", 0...86400, \.monitoring.uploadInterval,
            "Metrics that arrive in an interval of that length are uploaded at its end; 0: at once."),
        .spelledURL(
            "monitoring.uploadURL", \.monitoring.options.uploadURL,
            "URL to which metrics are sent; empty: that of the platform's configuration, else that of the application."),
    ]

    var takesMonitoring: Bool { monitoring.enabled ?? monitoringEnabled }

    private static let noSpace = Setting.Rule<String>("must hold no white space and no control character") { text in
        !text.unicodeScalars.contains { $0.value < 0x21 || $0.value == 0x7F }
    }
    private static let notifierName = Setting.Rule<String>(
        "must be 1 to 64 letters, digits, _ and -", isMet: Rules.isNotifier)
}

/// The settings of app monitoring.
struct MonitoringSettings: Sendable, Equatable {
    var enabled: Bool?
    /// Where there is a value, it overrides the platform's configuration.
    var options = MonitoringOptions()
    var uploadInterval = Duration.zero
}
