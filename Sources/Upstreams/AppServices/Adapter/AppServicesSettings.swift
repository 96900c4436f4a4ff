import PosternCore
import PosternUpstreamKit

struct AppServicesSettings: SettingsSection {
    var baseURL = BaseURL(known: "https://mobileservices.openclasslabs.com/appservices")
    var organization = ""
    var application = ""
    var apiKey = ""
    var provider = Provider.pi
    var notifier = "apple"
    var onlyAddUserToExistingGroups = false
    var takesMetrics = false
    /// As configured; empty means the application's default.
    var uploadURL = ""
    /// Zero means that items wait forever.
    var giveUpAfter = Duration.seconds(604_800)

    static let fields: [SettingField<Self>] = [
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
        .bool("monitoringEnabled", \.takesMetrics, "Whether `metrics` are accepted."),
        .spelledURL(
            "customUploadUrl", \.uploadURL, "URL to which metrics are sent; empty: that of the application."),
        .wholeSeconds(
            "giveUpAfterSeconds", 0...315_360_000, \.giveUpAfter,
            "How long an item may wait, for a token too, before it expires; four times as long for `unregister`; "
                + "0: no limit."),
    ]

    private static let noSpace = SettingRule<String>("must hold no white space and no control character") { text in
        !text.unicodeScalars.contains { $0.value < 0x21 || $0.value == 0x7F }
    }
    private static let notifierName = SettingRule<String>(
        "must be 1 to 64 letters, digits, _ and -", isMet: Rules.isNotifier)
}
