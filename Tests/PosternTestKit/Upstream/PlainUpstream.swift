public import PosternCore
public import PosternUpstream

/// An upstream without a service: takes any payload, joins a batch with commas, and judges by the status alone.
///
/// 2xx delivers, 401 asks for a token, 403 holds, 410 refuses and is kept, 413 and 422 split, 500 suspects, other 5xx
/// and 429 retry.
public struct PlainUpstream: BatchingUpstream, TokenUpstream {
    public let name: UpstreamName
    public let kinds: [Kind]
    public var traits: Traits
    public var tokenSource: (any TokenSource)?
    public let verifiesAtStart: Bool

    public init(
        _ name: String = "plain", kinds: [Kind] = ["thing"], laneRule: LaneRule = .acrossLanes,
        tokenSource: (any TokenSource)? = nil, verifiesAtStart: Bool = false,
        routes: [UpstreamRoute] = [], hasSessions: Bool = false
    ) {
        guard let name = UpstreamName(name) else { preconditionFailure("\(name) is not a name") }
        self.name = name
        self.kinds = kinds
        traits = Traits { traits in
            traits.laneRule = laneRule
            traits.routes = routes
            traits.hasSessions = hasSessions
        }
        self.tokenSource = tokenSource
        self.verifiesAtStart = verifiesAtStart
    }

    public func validate(
        _ payload: JSONValue, of kind: Kind, in context: ValidationContext
    ) throws(InvalidPayload) -> ValidPayload {
        guard payload.kind == .object else { throw InvalidPayload([PayloadError("", "must be an object")]) }
        return ValidPayload()
    }

    public func plan(for messages: [Message], in context: PlanContext) -> Plan {
        let headers = context.token.map { [(name: "Authorization", value: "Bearer \($0.value)")] } ?? []
        return .send(
            UpstreamRequest(
                url: "http://plain.test/", headers: headers, body: messages.spliced(prefix: "", suffix: "")),
            count: messages.count)
    }

    public func judge(_ response: UpstreamResponse, to batch: Batch, in context: PlanContext) -> Decision {
        switch response.status {
        case 200..<300: Decision(.delivered(result: response.body.isEmpty ? nil : response.body))
        case 401: Decision(.refreshToken)
        case 403: Decision(.holdUpstream(.credentials, detail: "forbidden"))
        case 410: Decision(Judgement(.reject(reason: "gone"), refusal: response.body))
        case 413, 422: Decision(.split(reason: "refused"))
        case 500: Decision(.suspect(after: nil))
        case 429: Decision(.retry(after: response.header("Retry-After").flatMap(Int.init).map { .seconds($0) }))
        default: Decision(.retry(after: nil))
        }
    }
}

/// An upstream that behaves like a plain one, except for what it overrides.
public protocol PlainAtHeart: BatchingUpstream {
    var plain: PlainUpstream { get }
}

extension PlainAtHeart {
    public var plain: PlainUpstream { PlainUpstream() }
    public var name: UpstreamName { plain.name }
    public var kinds: [Kind] { plain.kinds }
    public var traits: Traits { plain.traits }

    public func validate(
        _ payload: JSONValue, of kind: Kind, in context: ValidationContext
    ) throws(InvalidPayload) -> ValidPayload {
        try plain.validate(payload, of: kind, in: context)
    }
    public func plan(for messages: [Message], in context: PlanContext) -> Plan {
        plain.plan(for: messages, in: context)
    }
    public func judge(_ response: UpstreamResponse, to batch: Batch, in context: PlanContext) -> Decision {
        plain.judge(response, to: batch, in: context)
    }
}
