import PosternCore

/// The ingestion API of the analytics platform Samsara: events go out as a JSON array.
///
/// Any order and several requests at a time, but events of one `sourceId` keep theirs.
struct SamsaraUpstream: Upstream {
    let name: UpstreamName
    let kinds: [Kind] = ["event"]
    let laneRule = LaneRule.mixed

    let url: String
    private let gzip: Bool
    private let fixedHeaders: [(name: String, value: String)]
    private let admission: SamsaraAdmission

    /// The largest buffer of Samsara's own clients; the server has no limit.
    static let mostEvents = 10000

    func limits(_ configured: BatchLimits) -> BatchLimits {
        BatchLimits(
            maxMessages: min(configured.maxMessages, Self.mostEvents), maxBytes: configured.maxBytes, overhead: 2)
    }

    var secrets: [String] { fixedHeaders.map(\.value) }

    func admit(_ payload: JSONValue, of kind: Kind, in context: AdmissionContext) throws(InvalidPayload) -> Admission {
        try admission.admit(payload, in: context)
    }

    /// The time of the send is made anew for each attempt and never stored.
    func plan(for messages: [Message], in context: PlanContext) -> Plan {
        let headers = [
            ("Accept", "application/json"),
            // Without a charset: the server compares the whole value.
            ("Content-Type", "application/json"),
            ("X-Samsara-publishedTimestamp", String(context.now.milliseconds)),
        ]
        let request = UpstreamRequest(
            url: url, headers: headers + fixedHeaders, body: messages.spliced(prefix: "[", suffix: "]"), gzip: gzip)
        return .send(request, count: messages.count)
    }

    func judge(_ response: UpstreamResponse, to batch: Batch, in context: PlanContext) -> Judgement {
        SamsaraAnswer(response, to: batch, now: context.now).judgement
    }
}

extension SamsaraUpstream {
    static let type = UpstreamType(
        name: "samsara",
        settings: [
            .init(
                "url", .text, default: .text("http://samsara-ingestion.local:9000"),
                "Where the ingestion API is; /v1/events is appended unless it is there."),
            .init(
                "compression", .choice(["gzip", "none"]), default: .text("gzip"),
                "Coding of request bodies: gzip or none."),
            .init(
                "sourceId", .text, default: .text(""),
                "sourceId of events that have none; empty: their UDID, or they are refused."),
            .init(
                "addId", .flag, default: .flag(false),
                "Gives events without an id a UUID, so that Samsara can tell equal ones from repeated ones."),
            .init(
                "eventMaxBytes", .integer(1...16_777_216), default: .integer(262_144),
                "Largest event in bytes; Samsara's broker drops events above 270336 without a word."),
            .init(
                "headers", .texts, default: .texts([:]), secret: true,
                "Further headers of every request, for a proxy in front of the API."),
        ],
        addressSetting: "url",
        make: { name, settings throws(SettingProblems) in try SamsaraUpstream(name, settings) })

    init(_ name: UpstreamName, _ settings: SettingValues) throws(SettingProblems) {
        var problems: [(setting: String, detail: String)] = []
        var url = ""
        do {
            var base = try BaseURL(settings.text("url"))
            base.cut(oneOf: ["/v1/events", "/v1"])
            url = base.text + "/v1/events"
        } catch {
            problems.append(("url", error.detail))
        }
        var headers: [(name: String, value: String)] = []
        switch FixedHeaders.checked(settings.texts("headers"), besides: ["x-samsara-publishedtimestamp"]) {
        case .success(let checked): headers = checked
        case .failure(let bad): problems += bad.details.map { ("headers", $0) }
        }
        let sourceID = settings.text("sourceId")
        if !sourceID.isEmpty, sourceID.allSatisfy(\.isWhitespace) {
            problems.append(("sourceId", "must not be blank"))
        }
        guard problems.isEmpty else { throw SettingProblems(problems) }

        self.name = name
        self.url = url
        gzip = settings.text("compression") == "gzip"
        fixedHeaders = headers
        admission = SamsaraAdmission(
            sourceID: sourceID.isEmpty ? nil : sourceID, addsID: settings.flag("addId"),
            maxBytes: settings.integer("eventMaxBytes"))
    }
}
