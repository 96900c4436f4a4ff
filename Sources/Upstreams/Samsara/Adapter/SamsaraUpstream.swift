import PosternCore
public import PosternUpstream

/// The ingestion API of the analytics platform Samsara: events are sent as a JSON array.
///
/// Events are sent in any order and in several requests at a time, but those of one `sourceId` keep their order.
struct SamsaraUpstream: ConfigurableUpstream, BatchingUpstream, ProbingUpstream,
    SDKServingUpstream
{
    static let typeName = "samsara"
    static let summary = "Event ingestion of the analytics platform Samsara."

    let name: UpstreamName
    let kinds: [Kind] = ["event"]
    let traits = Traits { traits in
        traits.laneRule = .acrossLanes
        // Every stored event has its source.
        traits.laneName = { payload, _ in payload["sourceId"]?.string }
    }

    let settings: SamsaraSettings
    let url: String
    private let statusURL: String
    /// In the order of their names, so that requests are the same each time.
    private let fixedHeaders: [(name: String, value: String)]
    private let validation: SamsaraValidation
    let sdk: SDKEndpoints?

    /// The largest buffer of Samsara's own clients; the server has no limit.
    static let maxEvents = 10000

    init(_ name: UpstreamName, _ settings: SamsaraSettings) {
        self.name = name
        self.settings = settings
        var base = settings.url
        base.cut(oneOf: ["/v1/events", "/v1"])
        url = base.text + "/v1/events"
        statusURL = base.text + "/v1/api-status"
        fixedHeaders = settings.headers.sorted { $0.key < $1.key }.map { ($0.key, $0.value) }
        validation = SamsaraValidation(
            sourceID: settings.sourceID.isEmpty ? nil : settings.sourceID, addsID: settings.addsID,
            maxBytes: settings.eventMaxBytes)
        sdk = settings.sdk.isEnabled ? SamsaraSDK(settings: settings).endpoints(of: name) : nil
    }

    func limits(_ configured: BatchLimits) -> BatchLimits {
        BatchLimits(
            maxMessages: min(configured.maxMessages, Self.maxEvents), maxBytes: configured.maxBytes, overhead: 2)
    }

    func validate(_ payload: JSONValue, of kind: Kind, in context: ValidationContext) throws(InvalidPayload)
        -> ValidPayload
    {
        try validation.validate(payload, in: context)
    }

    /// The time of sending is determined for each attempt, and never stored.
    func plan(for messages: [Message], in context: PlanContext) -> Plan {
        let headers = [
            ("Accept", "application/json"),
            // Without a charset: the server compares the whole value.
            ("Content-Type", "application/json"),
            ("X-Samsara-publishedTimestamp", String(context.now.milliseconds)),
        ]
        let request = UpstreamRequest(
            url: url, headers: headers + fixedHeaders, body: messages.spliced(prefix: "[", suffix: "]"),
            gzip: settings.compression == .gzip, statusDecides: Answer.isDecided)
        return .send(request, count: messages.count)
    }

    func judge(_ response: UpstreamResponse, to batch: Batch, in context: PlanContext) -> Decision {
        Decision(Answer(response, to: batch, now: context.now).judgement)
    }

    /// The API has no credentials. What it shows is a flag for load balancers, without effect on events (Assumption 4).
    func probe(in context: any UpstreamRouteContext) async -> ProbeReport {
        let request = UpstreamRequest(
            method: .get, url: statusURL, headers: [("Accept", "application/json")] + fixedHeaders)
        return await context.probe(request) { response in
            guard [200, 503].contains(response.status), let flag = Self.flag(of: response.body) else {
                var report = ProbeReport.usual(for: response)
                if report.outcome == .ok { (report.outcome, report.detail) = (.failed, "the response has no status") }
                return report
            }
            return ProbeReport(.ok, status: response.status, detail: "the API is \(flag); it has no credentials to try")
        }
    }

    private static func flag(of body: [UInt8]) -> String? {
        let read = JSONParser.ofThisThread.parse(body) { $0["status"]?.string }
        return (try? read.get()).flatMap { ["online", "offline"].contains($0) ? $0 : nil }
    }
}

extension UpstreamType {
    /// For `UpstreamRegistry`.
    public static let samsara = UpstreamType(SamsaraUpstream.self)
}
