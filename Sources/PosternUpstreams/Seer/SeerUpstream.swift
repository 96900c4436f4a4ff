import PosternCore

/// Pearson's Seer collects activity streams, instrumentation and Tin Can statements.
///
/// A lane for each kind, so that kinds keep their order and do not wait for each other. Texts are forwarded as they came.
struct SeerUpstream: Upstream {
    let name: UpstreamName
    let kinds: [Kind]
    let laneRule = LaneRule.separate
    let tokenSource: (any TokenSource)?
    let missingSettings: [String]
    let secrets: [String]
    let resources: [Resource]

    private let endpoints: SeerEndpoints
    private let rules: SeerRules
    private let bundleSize: Int
    private let reportsByItself: Bool
    private let inFlightPerKind: Int

    /// `{"activities":[` and `]}`: the wrapper of a batch, for statements too.
    static let wrapping = 17

    /// Behind the lane of a kind: reports that somebody waits for while the queue waits for a flush.
    private static let direct = "!direct"

    // MARK: Accepting

    func admit(_ payload: JSONValue, of kind: Kind, in context: AdmissionContext) throws(InvalidPayload) -> Admission {
        let kind = SeerKind(kind)
        try rules.check(payload, as: kind)
        var lane = kind.name
        if inFlightPerKind > 1 { lane += "/\(context.random().0 % UInt64(inFlightPerKind))" }
        guard !reportsByItself else { return Admission(lane: .named(lane)) }
        // The queue waits; who waits for the answer does not. Still one request of a kind at a time.
        return context.isAwaited
            ? Admission(lane: .named(lane + Self.direct, group: lane))
            : Admission(lane: .named(lane, group: lane), waitsFor: .schedule)
    }

    func codes(for refusal: StoreRefusal) -> [String: Int] {
        switch refusal {
        case .queueFull: ["seerCode": 9]
        case .diskFull: ["seerCode": 10]
        }
    }

    // MARK: Sending

    func limits(_ configured: BatchLimits) -> BatchLimits {
        BatchLimits(
            maxMessages: configured.maxMessages, maxBytes: min(configured.maxBytes, bundleSize),
            overhead: Self.wrapping)
    }

    func limits(_ configured: BatchLimits, ofLane name: String) -> BatchLimits {
        var limits = limits(configured)
        let kind = SeerKind(Kind(String(name.prefix { $0 != "/" && $0 != "!" })))
        if kind.batchEndpoint == nil || name.hasSuffix(Self.direct) { limits.maxMessages = 1 }
        return limits
    }

    func plan(for messages: [Message], in context: PlanContext) -> Plan {
        var carried = messages[...]
        if !reportsByItself, !isDirect(messages[0]) {
            carried = messages.prefix(while: context.isFlushed)
            if carried.isEmpty { return .wait(.schedule, until: .never) }
        }
        let kind = SeerKind(messages[0].kind)
        guard let batch = kind.batchEndpoint, !isDirect(messages[0]),
            messages[0].payload.count <= bundleSize - Self.wrapping
        else {
            return .send(
                report(to: endpoints.url(named: kind.endpoint), messages[0].payload, token: context.token), count: 1)
        }
        let body = Array(carried).spliced(prefix: "{\"activities\":[", suffix: "]}")
        return .send(report(to: endpoints.url(batch), body, token: context.token), count: carried.count)
    }

    private func isDirect(_ message: Message) -> Bool {
        if case .named(let lane, _) = message.lane { lane.hasSuffix(Self.direct) } else { false }
    }

    private func report(to url: String, _ body: [UInt8], token: Token?) -> UpstreamRequest {
        UpstreamRequest(
            url: url,
            headers: [
                ("Authorization", "Bearer \(token?.value ?? "")"), ("Accept", "application/json"),
                ("Content-Type", "application/json"),
            ], body: body)
    }

    func judge(_ response: UpstreamResponse, to batch: Batch, in context: PlanContext) -> Judgement {
        SeerAnswer(response, now: context.now).judgement
    }

    // MARK: Showing

    /// The SDK's events.
    func name(of event: UpstreamEvent) -> String? {
        switch event {
        case .tokenFetched: "SeerTokenFetch"
        case .ready: "SeerRequestStartSession"
        case .flushFinished: "SeerRequestReportQueue"
        case .batchEnded: "SeerRequestResultForQueuedBatch"
        case .settled(let kind): SeerKind.presets.first { $0.kind == kind }?.endpoint
        }
    }
}

extension SeerUpstream {
    static let type = UpstreamType(
        name: "seer",
        settings: [
            .init(
                "baseURL", .text, default: .text("https://seer-beacon.qaprod.ecollege.com"),
                "Where Seer is; the default is its test server."),
            .init("clientId", .text, default: .text(""), "The client's id, from the Seer team; without a colon."),
            .init("clientSecret", .text, default: .text(""), secret: true, "The client's secret, from the Seer team."),
            .init(
                "apiKey", .text, default: .text(""), secret: true,
                "Goes on every URL as apikey; empty: there is none."),
            .init(
                "bundleSizeBytes", .integer(1024...1_048_576), default: .integer(102_400),
                "Bytes of the largest batch, its wrapper included, and of the largest payload."),
            .init(
                "autoReportQueue", .flag, default: .flag(true),
                "Whether queued messages go out by themselves; if not, they wait for a flush."),
            .init(
                "maxInFlightPerKind", .integer(1...16), default: .integer(1),
                "Requests of one kind at a time; with more than one a kind keeps no order."),
            .init(
                "endpoints", .texts, default: .texts([:]),
                "Paths by name: the SDK's names give its endpoints other paths, further names are further kinds."),
        ],
        addressSetting: "baseURL",
        simulated: ["clientId": "simulated-client", "clientSecret": "simulated-secret"],
        // Only bytes bound a batch.
        batchMaxMessages: 1 << 20,
        make: { name, settings throws(SettingProblems) in try SeerUpstream(name, settings) })

    init(_ name: UpstreamName, _ settings: SettingValues) throws(SettingProblems) {
        var problems: [(setting: String, detail: String)] = []
        var endpoints: SeerEndpoints?
        do throws(SettingProblems) {
            endpoints = try Self.endpoints(settings)
        } catch {
            problems += error.problems
        }
        let clientID = settings.text("clientId")
        let secret = settings.text("clientSecret")
        // RFC 7617, section 2: the first colon ends the id.
        if clientID.contains(":") { problems.append(("clientId", "must not contain a colon")) }
        guard problems.isEmpty, let endpoints else { throw SettingProblems(problems) }

        self.name = name
        self.endpoints = endpoints
        kinds = SeerKind.presets.map(\.kind) + endpoints.customNames.map { Kind($0) }
        bundleSize = settings.integer("bundleSizeBytes")
        rules = SeerRules(maxBytes: bundleSize)
        reportsByItself = settings.flag("autoReportQueue")
        inFlightPerKind = settings.integer("maxInFlightPerKind")
        missingSettings = ["clientId", "clientSecret"].filter { settings.text($0).isEmpty }
        let source = SeerTokenSource(url: endpoints.url(.tokenFetch), clientID: clientID, clientSecret: secret)
        tokenSource = source
        let key = settings.text("apiKey")
        secrets = [secret, key, PercentEncoding.encode(key)].filter { !$0.isEmpty }
        resources = [SeerEndpointTable.resource(endpoints)]
    }

    private static func endpoints(_ settings: SettingValues) throws(SettingProblems) -> SeerEndpoints {
        let base: BaseURL
        do {
            base = try BaseURL(settings.text("baseURL"))
        } catch {
            throw SettingProblems([("baseURL", error.detail)])
        }
        return try SeerEndpoints(base: base, entries: settings.texts("endpoints"), apiKey: settings.text("apiKey"))
    }
}
