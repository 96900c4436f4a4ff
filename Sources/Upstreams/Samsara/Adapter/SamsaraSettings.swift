import PosternCore
import PosternUpstream

struct SamsaraSettings: SettingsSection {
    enum Compression: String, CaseIterable { case gzip, none }

    var url = BaseURL(known: "http://samsara-ingestion.local:9000")
    var compression = Compression.gzip
    var sourceID = ""
    var addsID = false
    var eventMaxBytes = 262_144
    var headers: [String: String] = [:]
    var sdk = SDKSettings(maxBodyBytes: 32 << 20)
    var sdkServesRoot = false
    var isAnonymous = false
    var stampsEvents = true

    static let fields: [SettingField<Self>] = own + sdkFields

    private static let sdkFields =
        SettingField<Self>.sdk(
            isEnabled: \.sdk.isEnabled, prefix: \.sdk.prefix, maxBodyBytes: \.sdk.maxBodyBytes,
            requestsPerSecondPerAddress: \.sdk.requestsPerSecondPerAddress) + [
            .whenInvalid(\.sdk.whenInvalid),
            .bool(
                "sdk.rootPath", \.sdkServesRoot,
                "Whether /v1/events and /v1/api-status are served, too, for clients that drop the path of their URL."),
            .bool(
                "sdk.anonymous", \.isAnonymous,
                "Whether clients without an API key are let in: those of a network, or who know the prefix."),
            .bool(
                "sdk.stampEvents", \.stampsEvents,
                "Whether events get the members receivedAt and publishedAt, as the platform sets them on receipt."),
        ]

    private static let own: [SettingField<Self>] = [
        .address("url", \.url, "URL of the ingestion API; /v1/events is appended unless it is present."),
        .choice("compression", \.compression, "Coding of request bodies: gzip or none."),
        .text(
            "sourceId", \.sourceID, rule: notBlank,
            "sourceId of events without one; empty: their UDID is used, and events without a UDID are rejected."),
        .bool(
            "addId", \.addsID,
            "Whether events without an id get a UUID, so that Samsara can tell equal events from repeated ones."),
        .integer(
            "eventMaxBytes", 1...16_777_216, \.eventMaxBytes,
            "Largest event in bytes; Samsara's broker silently drops events above 270336."),
        .headers(
            "headers", \.headers, besides: ["x-samsara-publishedtimestamp"],
            "Further headers of every request, for a proxy in front of the API."),
    ]

    private static let notBlank = Setting.Rule<String>("must not be blank") { text in
        text.isEmpty || !text.allSatisfy(\.isWhitespace)
    }
}
