import PosternCore
public import PosternUpstream

/// Pearson's Seer collects activity streams, instrumentation and Tin Can statements.
///
/// A lane for each kind, so that kinds keep their order and do not wait for each other. Payloads are forwarded as they
/// were received.
struct SeerUpstream: ConfigurableUpstream, BatchingUpstream, TokenUpstream, EventNamingUpstream,
    SDKServingUpstream
{
    static let typeName = "seer"
    static let summary = "Pearson's Seer: activity streams, instrumentation and Tin Can statements."
    /// A batch is limited by bytes only.
    static let batchMaxMessages: Int? = 1 << 20

    let name: UpstreamName
    let kinds: [Kind]
    let tokenSource: (any TokenSource)?
    let traits: Traits

    var verifiesAtStart: Bool { settings.verifiesAtStart }

    let settings: SeerSettings
    private let endpoints: Endpoints
    private let rules: Rules
    let sdk: SDKEndpoints?

    /// `{"activities":[` and `]}`: the wrapper of a batch, for statements too.
    static let wrapping = 17

    init(_ name: UpstreamName, _ settings: SeerSettings) {
        self.name = name
        self.settings = settings
        endpoints = Endpoints(settings)
        kinds = SeerKind.presets.map(\.kind) + endpoints.customNames.map { Kind($0) }
        rules = Rules(maxBytes: settings.bundleSize)
        sdk = settings.sdk.isEnabled ? SeerSDK(settings, endpoints, kinds).endpoints(of: name) : nil
        tokenSource = SeerTokenSource.make(
            url: endpoints.url(.tokenFetch), clientID: settings.clientID, clientSecret: settings.clientSecret)
        traits = Traits { [endpoints] traits in
            traits.routes = [EndpointTable.resource(endpoints)]
            traits.codesWhenFull = Self.codes
        }
    }

    // MARK: Accepting

    func validate(_ payload: JSONValue, of kind: Kind, in context: ValidationContext) throws(InvalidPayload)
        -> ValidPayload
    {
        let kind = SeerKind(kind)
        try rules.check(payload, as: kind, maxFaults: context.maxFaults)
        // The queue waits; a report whose caller waits for the response does not. There is still one request of a kind
        // at a time.
        let isDirect = settings.reportsByItself || context.isAwaited
        let lane = settings.lane(of: kind, isDirect: isDirect, context.random)
        return isDirect ? ValidPayload(lane: lane) : ValidPayload(lane: lane, waitsFor: .schedule)
    }

    @Sendable private static func codes(for refusal: Traits.StoreFullReason) -> [String: Int] {
        switch refusal {
        case .queueFull: ["seerCode": 9]
        case .diskFull: ["seerCode": 10]
        }
    }

    // MARK: Sending

    func limits(_ configured: BatchLimits) -> BatchLimits {
        BatchLimits(
            maxMessages: configured.maxMessages, maxBytes: min(configured.maxBytes, settings.bundleSize),
            overhead: Self.wrapping)
    }

    func limits(_ configured: BatchLimits, ofLane name: String) -> BatchLimits {
        var limits = limits(configured)
        let kind = SeerKind(Kind(String(name.prefix { $0 != "/" && $0 != "!" })))
        if kind.batchEndpoint == nil || name.hasSuffix(SeerSettings.direct) { limits.maxMessages = 1 }
        return limits
    }

    func plan(for messages: [Message], in context: PlanContext) -> Plan {
        var carried = messages[...]
        if !settings.reportsByItself, !isDirect(messages[0]) {
            carried = messages.prefix(while: context.isFlushed)
            if carried.isEmpty { return .wait(.schedule, until: .never) }
        }
        guard kinds.contains(messages[0].kind) else {
            // Its endpoint is no longer configured. A reload makes the lane due again.
            return .wait(.credentials, until: .never)
        }
        let kind = SeerKind(messages[0].kind)
        guard let batch = kind.batchEndpoint, !isDirect(messages[0]),
            messages[0].payload.count <= settings.bundleSize - Self.wrapping
        else {
            return .send(report(to: kind.endpoint, messages[0].payload, token: context.token), count: 1)
        }
        let body = Array(carried).spliced(prefix: "{\"activities\":[", suffix: "]}")
        return .send(report(to: batch.rawValue, body, token: context.token), count: carried.count)
    }

    private func isDirect(_ message: Message) -> Bool {
        if case .named(let lane, _) = message.lane { lane.hasSuffix(SeerSettings.direct) } else { false }
    }

    private func report(to endpoint: String, _ body: [UInt8], token: Token?) -> UpstreamRequest {
        UpstreamRequest(
            url: endpoints.url(named: endpoint),
            headers: [
                ("Authorization", "Bearer \(token?.value ?? "")"), ("Accept", "application/json"),
                ("Content-Type", "application/json"),
            ], body: body, endpoint: endpoints.shownURL(named: endpoint), statusDecides: { _ in true })
    }

    func judge(_ response: UpstreamResponse, to batch: Batch, in context: PlanContext) -> Decision {
        Decision(Answer(response, now: context.now).judgement)
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

    /// The error that the SDK reports for an event; `docs/wire/seer.md` lists its codes.
    func failure(of event: UpstreamEvent) -> NamedEvent.Failure? {
        switch event {
        case .tokenFetched, .ready: .init(code: 1, name: "SeerTokenFetch")
        case .batchEnded, .settled: .init(code: 7, name: "SeerReporterError")
        case .flushFinished: nil
        }
    }
}

extension UpstreamType {
    /// For `UpstreamRegistry`.
    public static let seer = UpstreamType(SeerUpstream.self)
}
