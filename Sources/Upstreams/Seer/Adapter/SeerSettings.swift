import PosternCore
import PosternUpstream

struct SeerSettings: SettingsSection {
    var baseURL = BaseURL(known: "https://seer-beacon.qaprod.ecollege.com")
    var clientID = ""
    var clientSecret = ""
    var apiKey = ""
    var verifiesAtStart = true
    var bundleSize = 102_400
    var reportsByItself = true
    var inFlightPerKind = 1
    var endpoints: [String: String] = [:]

    static let fields: [SettingField<Self>] = [
        .address("baseURL", \.baseURL, "URL of Seer; the default is its test server."),
        .text(
            "clientId", \.clientID, rule: noColon, simulated: "simulated-client",
            "The client's id, from the Seer team; without a colon."),
        .text(
            "clientSecret", \.clientSecret, secret: true, simulated: "simulated-secret",
            "The client's secret, from the Seer team."),
        .text("apiKey", \.apiKey, secret: true, "Added to every URL as apikey; empty: none."),
        .bool(
            "verifyAtStart", \.verifiesAtStart,
            "Whether a token is fetched at the start and after a change of these settings, to verify the credentials before the first message."
        ),
        .integer(
            "bundleSizeBytes", 1024...1_048_576, \.bundleSize,
            "Bytes of the largest batch, its wrapper included, and of the largest payload."),
        .bool(
            "autoReportQueue", \.reportsByItself,
            "Whether queued messages are sent automatically; if not, they wait for a flush."),
        .integer(
            "maxInFlightPerKind", 1...16, \.inFlightPerKind,
            "Requests of one kind at a time; with more than one, the order of the kind is not kept."),
        .strings(
            "endpoints", \.endpoints, rule: Setting.Rule(problems: Endpoints.problems), containsURLs: true,
            "Paths by name: the SDK's names give its endpoints other paths, further names are further kinds."),
    ]

    /// RFC 7617, section 2: the first colon ends the id.
    private static let noColon = Setting.Rule<String>("must not contain a colon") { !$0.contains(":") }
}
