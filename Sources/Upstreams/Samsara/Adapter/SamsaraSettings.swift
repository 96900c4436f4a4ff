import PosternCore
import PosternUpstreamKit

struct SamsaraSettings: SettingsSection {
    enum Compression: String, CaseIterable { case gzip, none }

    var url = BaseURL(known: "http://samsara-ingestion.local:9000")
    var compression = Compression.gzip
    var sourceID = ""
    var addsID = false
    var eventMaxBytes = 262_144
    var headers: [String: String] = [:]

    static let fields: [SettingField<Self>] = [
        .address("url", \.url, "Where the ingestion API is; /v1/events is appended unless it is there."),
        .choice("compression", \.compression, "Coding of request bodies: gzip or none."),
        .text(
            "sourceId", \.sourceID, rule: notBlank,
            "sourceId of events that have none; empty: their UDID, or they are refused."),
        .bool(
            "addId", \.addsID,
            "Gives events without an id a UUID, so that Samsara can tell equal ones from repeated ones."),
        .integer(
            "eventMaxBytes", 1...16_777_216, \.eventMaxBytes,
            "Largest event in bytes; Samsara's broker silently drops events above 270336."),
        .headers(
            "headers", \.headers, besides: ["x-samsara-publishedtimestamp"],
            "Further headers of every request, for a proxy in front of the API."),
    ]

    private static let notBlank = SettingRule<String>("must not be blank") { text in
        text.isEmpty || !text.allSatisfy(\.isWhitespace)
    }
}
