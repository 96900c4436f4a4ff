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
    var sdk = SDKSettings(whenInvalid: .deadLetter)
    var sdkClients: [SeerSDKClient] = []
    var tokenLife = Duration.seconds(3600)

    static let fields: [SettingField<Self>] = own + sdkFields

    private static let sdkFields =
        SettingField<Self>.sdk(
            isEnabled: \.sdk.isEnabled, prefix: \.sdk.prefix, maxBodyBytes: \.sdk.maxBodyBytes,
            requestsPerSecondPerAddress: \.sdk.requestsPerSecondPerAddress) + [
            .whenInvalid(\.sdk.whenInvalid),
            .sdkClients("sdk.clients", \.sdkClients),
            .wholeSeconds(
                "sdk.tokenSeconds", 60...2_592_000, \.tokenLife,
                "How long a token that the gateway issues is good, as its client is told; it is accepted for a day longer."
            ),
        ]

    var conflicts: [(property: PartialKeyPath<Self>, detail: String)] {
        guard sdk.isEnabled, sdkClients.isEmpty, clientID.isEmpty || clientSecret.isEmpty else { return [] }
        return [(\.sdk.isEnabled, "needs clientId and clientSecret, or sdk.clients: clients are checked against them")]
    }

    private static let own: [SettingField<Self>] = [
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

extension SeerSettings {
    /// Suffix of the lane of a kind, for what does not wait while the queue waits for a flush.
    static let direct = "!direct"

    /// - Parameter isDirect: Whether the report does not wait for a flush.
    func lane(of kind: SeerKind, isDirect: Bool, _ random: () -> (UInt64, UInt64)) -> Lane {
        var lane = kind.name
        if inFlightPerKind > 1 { lane += "/\(random().0 % UInt64(inFlightPerKind))" }
        if reportsByItself { return .named(lane) }
        return .named(isDirect ? lane + Self.direct : lane, group: lane)
    }
}
