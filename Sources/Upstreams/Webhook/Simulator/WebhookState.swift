import PosternCore
import PosternSimulatorKit

/// The state of the webhook simulator: settings, tokens, and the requests that were seen. A value; `WebhookSimulator`
/// guards it.
struct WebhookState: Sendable {
    private(set) var settings = WebhookSettings()
    /// When each token expires.
    private var tokens: [String: Timestamp] = [:]
    private var random: SplitMix64
    /// The digests of requests that were accepted, by their key.
    var accepted = Recent<UInt64>(limit: 10_000)
    private var counts = Counts()

    struct Counts: Encodable, Sendable {
        var tokensIssued = 0
        /// Requests with a key that was accepted before; their items are not accepted again.
        var replays = 0
        var signedRequests = 0
    }

    init(seed: UInt64) { random = SplitMix64(state: ~seed) }

    // MARK: Tokens (RFC 6749, section 4.4)

    mutating func token(_ authorization: String?, _ form: [String: String], at now: Timestamp) -> SimulatedResult {
        guard form["grant_type"] == "client_credentials",
            form["scope"] ?? "" == settings.scope || settings.scope.isEmpty,
            settings.tokenParameters.allSatisfy({ pair in form.contains { "\($0.key)=\($0.value)" == pair } })
        else {
            return SimulatedResult(
                answer: Answer.refusal(400, "invalid_request"), violations: ["a form of another kind"])
        }
        let header = authorization.flatMap { Login(authorization: $0) }
        guard let login = header ?? Login(form: form) else {
            return SimulatedResult(
                answer: Answer.badCredentials("Basic"), violations: ["a token request without credentials"])
        }
        // RFC 6749, section 2.3.
        guard authorization == nil || form["client_secret"] == nil else {
            return SimulatedResult(
                answer: Answer.refusal(400, "invalid_request"),
                violations: ["credentials in the header and in the form"])
        }
        let isExpected =
            switch settings.clientAuthentication {
            case .any: true
            case .basic: header != nil
            case .post: header == nil
            }
        guard isExpected else { return SimulatedResult(answer: Answer.badCredentials("Basic")) }
        guard settings.clientId.isEmpty || settings.clientId == login.id,
            settings.clientSecret.isEmpty || settings.clientSecret == login.secret
        else { return SimulatedResult(answer: Answer.badCredentials("Basic")) }
        // It contains the time, so tokens of the next run are different, whatever the seed.
        let token = hexDigits(random.next()) + "." + hexDigits(UInt64(bitPattern: now.milliseconds)) + "+/=="
        tokens = tokens.filter { $0.value > now }
        tokens[token] = now + .milliseconds(settings.tokenLifeSeconds * 1000)
        counts.tokensIssued += 1
        let life = Int(settings.tokenLifeSeconds)
        return SimulatedResult(
            answer: .json(200, #"{"access_token":"\#(token)","token_type":"Bearer","expires_in":\#(life)}"#))
    }

    /// Whether a request with that header may be processed.
    func isAuthorized(_ authorization: String?, at now: Timestamp) -> Bool {
        guard settings.authorization.isEmpty else { return authorization == settings.authorization }
        guard counts.tokensIssued > 0, authorization?.hasPrefix("Basic ") != true else { return true }
        guard let authorization, authorization.hasPrefix("Bearer ") else { return false }
        return tokens[String(authorization.dropFirst("Bearer ".count))].map { now <= $0 } ?? false
    }

    // MARK: Repeated requests

    mutating func recordSigned() { counts.signedRequests += 1 }
    mutating func recordReplay() { counts.replays += 1 }

    // MARK: Control

    mutating func change(_ body: [UInt8]) throws(ControlProblem) {
        let request = try ControlRequest<WebhookSettings, Commands>(body, changing: settings)
        settings = request.settings
        if request.commands.revokeNow == true { tokens = [:] }
    }

    func shown() -> [JSONTree.Member] { settings.shown + (tree(of: counts).members ?? []) }
}

/// The credentials of a client, as RFC 6749, section 2.3.1, encodes them.
struct Login: Equatable {
    let id: String
    let secret: String

    init?(authorization: String) {
        guard authorization.hasPrefix("Basic "), let bytes = base64Decoded(authorization.dropFirst(6)) else {
            return nil
        }
        let parts = bytes.split(separator: UInt8(ascii: ":"), maxSplits: 1, omittingEmptySubsequences: false)
        let texts = parts.compactMap { PercentDecoded($0, plusIsSpace: true).text }
        guard texts.count == 2 else { return nil }
        (id, secret) = (texts[0], texts[1])
    }

    /// As a form contains them.
    init?(form: [String: String]) {
        guard let id = form["client_id"], let secret = form["client_secret"] else { return nil }
        (self.id, self.secret) = (id, secret)
    }
}

/// The responses of the simulator.
enum Answer {
    static func refusal(_ status: Int, _ reason: String) -> SimulatedAnswer {
        .json(status, #"{"error":\#(quoted(reason))}"#)
    }

    static func badCredentials(_ scheme: String) -> SimulatedAnswer {
        refusal(401, "invalid_client").with("WWW-Authenticate", "\(scheme) realm=\"webhook\"")
    }
}
