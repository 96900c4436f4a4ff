import PosternCore
public import PosternUpstream

/// A service that takes notes, one per request: as small as a type of upstream can be.
struct ToyUpstream: ConfigurableUpstream {
    struct Settings: SettingsSection {
        var url = BaseURL(known: "http://toy.local:8090")
        var apiKey = ""

        static let fields: [SettingField<Self>] = [
            .address("url", \.url, "Where the service is."),
            .text("apiKey", \.apiKey, secret: true, simulated: "toy-key", "Its key."),
        ]
    }

    static let typeName = "toy"
    static let summary = "Notes, one per request."
    let kinds: [Kind] = ["note"]
    let name: UpstreamName
    let settings: Settings

    init(_ name: UpstreamName, _ settings: Settings) {
        self.name = name
        self.settings = settings
    }

    func validate(_ payload: JSONValue, of kind: Kind, in context: ValidationContext) throws(InvalidPayload)
        -> ValidPayload
    {
        guard payload.kind == .object else { throw InvalidPayload([PayloadError("", "must be an object")]) }
        return ValidPayload(lane: .named("notes"))
    }

    func plan(for messages: [Message], in context: PlanContext) -> Plan {
        let headers = [("Content-Type", "application/json"), ("X-Key", settings.apiKey)]
        let request = UpstreamRequest(
            url: settings.url.text + "/notes", headers: headers, body: messages[0].payload)
        return .send(request, count: 1)
    }

    func judge(_ response: UpstreamResponse, to batch: Batch, in context: PlanContext) -> Decision {
        Decision(.usual(for: response, now: context.now))
    }
}

extension UpstreamType {
    public static let toy = UpstreamType(ToyUpstream.self)
}
