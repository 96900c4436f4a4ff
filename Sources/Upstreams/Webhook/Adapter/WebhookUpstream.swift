import Foundation
import PosternCore
public import PosternUpstream

/// Any HTTP API that takes JSON by POST, PUT or PATCH.
///
/// The configuration lists the kinds and the URL of each. Payloads are forwarded as they were received, several
/// in one request if that is configured. Messages with equal values of one member keep their order, others do not.
struct WebhookUpstream: ConfigurableUpstream, BatchingUpstream, TokenUpstream {
    static let typeName = "webhook"
    static let summary = "Any HTTP API that takes JSON, with the requests and signatures of webhooks."
    static let takesCallbacks = true

    let name: UpstreamName
    let kinds: [Kind]
    let traits: Traits
    let tokenSource: (any TokenSource)?

    var verifiesAtStart: Bool { settings.verifiesAtStart }

    let settings: WebhookSettings
    /// By kind.
    private let targets: [String: WebhookSettings.Target]
    private let body: Body
    private let signer: Signer
    /// Nil if there is none, or if it depends on a token that is fetched.
    private let authorization: String?
    /// In the order of their names, so that requests are the same each time.
    private let fixedHeaders: [(name: String, value: String)]

    init(_ name: UpstreamName, _ settings: WebhookSettings) {
        self.name = name
        self.settings = settings
        kinds = settings.kinds.keys.sorted().map { Kind($0) }
        let fanOuts = settings.kinds.filter { !$0.value.fanOut.isEmpty }.map { kind, endpoint in
            (Kind(kind), endpoint.fanOut.map { Traits.Leg($0, of: name) })
        }
        let schemas = settings.kinds.map { (Kind($0), $1.schema?.text ?? Array("{}".utf8)) }
        let rates = settings.kinds.filter { $0.value.rate != Traits.Rate() }.map { (Kind($0), $1.rate) }
        traits = Traits { [orderBy = settings.orderBy] traits in
            traits.fanOuts = Dictionary(uniqueKeysWithValues: fanOuts)
            traits.rates = Dictionary(uniqueKeysWithValues: rates)
            traits.documentedKinds = Dictionary(uniqueKeysWithValues: schemas)
            traits.laneRule = .acrossLanes
            traits.sendsKindsApart = true
            traits.laneName = { payload, _ in orderBy.name(in: payload) }
        }
        targets = settings.targets
        body = Body(settings)
        signer = Signer(settings.signingSecrets)
        authorization = settings.auth.authorization
        tokenSource = settings.auth.tokenSource
        fixedHeaders = settings.headers.sorted { $0.key < $1.key }.map { ($0.key, $0.value.value) }
    }

    var missingSettings: [String] { settings.unset }

    // MARK: Accepting

    func validate(_ payload: JSONValue, of kind: Kind, in context: ValidationContext) throws(InvalidPayload)
        -> ValidPayload
    {
        let endpoint = settings.kinds[kind.description]
        if let errors = endpoint?.schema?.errors(of: payload), !errors.isEmpty { throw InvalidPayload(errors) }
        // The order of a fan-out is that of each leg.
        guard endpoint?.fanOut.isEmpty ?? true else { return ValidPayload() }
        return ValidPayload(lane: try settings.orderBy.lane(of: payload))
    }

    // MARK: Sending

    func endpoint(of kind: Kind) -> String? { targets[kind.description]?.name }

    func limits(_ configured: BatchLimits) -> BatchLimits { body.limits(configured) }

    func plan(for messages: [Message], in context: PlanContext) -> Plan {
        guard let target = targets[messages[0].kind.description] else {
            // The kind is no longer configured. After a reload, it is planned again.
            return .wait(.credentials, until: .never)
        }
        let carried = settings.batch == .none ? Array(messages.prefix(1)) : messages
        let key = BatchKey.of(carried, for: name)
        var request = UpstreamRequest(
            method: target.method, url: target.url, body: body.bytes(of: carried), endpoint: target.name,
            statusDecides: { _ in true })
        if let authorization { request.headers.append(("Authorization", authorization)) }
        if tokenSource != nil { request.headers.append(("Authorization", "Bearer \(context.token?.value ?? "")")) }
        request.headers += [("Accept", "*/*"), ("Content-Type", body.mediaType), ("Idempotency-Key", key)]
        if signer.isOn {
            let unsigned = request
            request = signed(unsigned, id: key, at: context.now)
            request.signedAgain = { signed(unsigned, id: key, at: $0) }
        } else {
            request.headers += fixedHeaders
        }
        return .send(request, count: carried.count)
    }

    /// The time is that of the attempt, so that a receiver can refuse old requests.
    private func signed(_ request: UpstreamRequest, id: String, at now: Timestamp) -> UpstreamRequest {
        let seconds = now.milliseconds / 1000
        var request = request
        request.proofs = signer.signatures(id: id, seconds: seconds, body: request.body)
        request.headers += [
            ("webhook-id", id), ("webhook-timestamp", "\(seconds)"),
            ("webhook-signature", request.proofs.map { "v1,\($0)" }.joined(separator: " ")),
        ]
        request.headers += fixedHeaders
        return request
    }

    // MARK: Judging

    /// Statuses that clearly say that the message is the cause. Any other one of 400 to 499 may be about something else,
    /// and would otherwise fail every message.
    private static let blaming: Set = [400, 409, 410, 412, 413, 422]

    /// What an API says about single messages of a batch has no common form, so a batch that is rejected is halved.
    func judge(_ response: UpstreamResponse, to batch: Batch, in context: PlanContext) -> Decision {
        let status = response.status
        let after = response.retryAfter(now: context.now)
        if settings.successStatuses.contains(status) { return Decision(.delivered()) }
        if settings.retryStatuses.contains(status) { return Decision(.retry(after: after)) }
        if settings.rejectStatuses.contains(status) { return Decision(.split(reason: response.excerpt)) }
        switch status {
        case 200..<300 where !settings.successStatuses.isEmpty:
            return Decision(
                .holdUpstream(.configuration, detail: "HTTP \(status), which is not one of successStatuses"))
        case 401 where tokenSource != nil: return Decision(.refreshToken)
        // The API fails, or it cannot cope with one of the messages.
        case 500: return Decision(.suspect(after: after))
        default:
            let verdict = Verdict.usual(for: response, now: context.now)
            if case .split(let reason) = verdict, !Self.blaming.contains(status) {
                return Decision(Judgement(.suspect(after: after), reason: reason))
            }
            return Decision(verdict)
        }
    }
}

extension WebhookSettings.Authentication {
    fileprivate var authorization: String? {
        switch scheme {
        case .none, .oauth2: nil
        case .basic: "Basic \(Data("\(username):\(password.value)".utf8).base64EncodedString())"
        case .bearer: "Bearer \(token.value)"
        }
    }

    fileprivate var tokenSource: ClientCredentials? {
        guard scheme == .oauth2 else { return nil }
        var form = [("grant_type", "client_credentials")]
        if !scope.isEmpty { form.append(("scope", scope)) }
        form += parameters.sorted { $0.key < $1.key }.map { ($0.key, $0.value) }
        let body = form.map { "\(PercentEncoding.encode($0))=\(PercentEncoding.encode($1))" }
        return ClientCredentials(
            url: tokenURL, id: PercentEncoding.encode(clientID), secret: PercentEncoding.encode(clientSecret.value),
            sentBy: clientAuthentication, body: body.joined(separator: "&"), headers: [("Accept", "application/json")]
        ) { body, now in
            // RFC 6749, section 5.1: seconds. Some servers write a string.
            let text = body["expires_in"].flatMap {
                $0.kind == .number ? String(decoding: $0.bytes, as: UTF8.self) : $0.string
            }
            guard let seconds = text.flatMap(Double.init), (1...1e9).contains(seconds) else { return nil }
            return now + .seconds(Int64(seconds))
        }
    }
}

extension UpstreamType {
    /// For `UpstreamRegistry`.
    public static let webhook = UpstreamType(WebhookUpstream.self)
}
