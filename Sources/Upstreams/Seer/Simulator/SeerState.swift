import PosternCore
import PosternSimulatorKit

/// The state of the Seer simulator: settings, tokens, counts. A value; `SeerSimulator` guards it.
struct SeerState: Sendable {
    private(set) var settings = SeerSettings()
    private var tokens: Tokens
    /// Chooses which reports get 401.
    private var random: SplitMix64
    /// The credentials of the first request, for comparison.
    private var firstLogin: Login?
    private var firstAPIKey: String??
    /// When the slow response in progress will be complete.
    private var tokenAnswerDueAt: MonotonicInstant?
    private var counts = Counts()

    struct Counts: Encodable, Sendable {
        var tokenRequests = 0
        /// Requests that arrived while another one was waiting for its response.
        var overlappingTokenRequests = 0
        var tokensIssued = 0
        var reportsWithoutAuthorization = 0
        var expiredTokenReports = 0
        var randomRefusals = 0
        var reports: [String: Reports] = [:]
    }

    /// The counts of the reports to one path.
    struct Reports: Encodable, Sendable {
        var requests = 0
        var accepted = 0
        var items = 0
        /// The size of the largest body that was accepted.
        var largestBytes = 0
    }

    init(seed: UInt64) {
        tokens = Tokens(seed: seed)
        random = SplitMix64(state: seed)
    }

    // MARK: Keys

    /// Whether a request with this key is rejected, and its violations.
    private mutating func check(_ query: Query) -> (isRefused: Bool, violations: [String]) {
        let wanted = settings.apiKey
        guard wanted.isEmpty else {
            let isMissing = query.apiKey == nil
            return (
                query.apiKey != wanted, query.violations + (isMissing ? ["a request without the apikey"] : [])
            )
        }
        guard let first = firstAPIKey else {
            firstAPIKey = .some(query.apiKey)
            return (false, query.violations)
        }
        return (false, query.violations + (first == query.apiKey ? [] : ["an apikey other than in the first request"]))
    }

    // MARK: Tokens

    /// Responds to a well-formed request for a token.
    mutating func token(_ login: Login?, _ query: Query, _ moment: Moment) -> SimulatedResult {
        let key = check(query)
        guard !key.isRefused else { return SimulatedResult(answer: Answer.forbidden, violations: key.violations) }
        guard let login, isAccepted(login) else {
            return SimulatedResult(answer: Answer.badLogin, violations: key.violations)
        }
        var violations = key.violations
        if let firstLogin, firstLogin != login { violations.append("credentials other than in the first request") }
        firstLogin = firstLogin ?? login
        var judged = answerToken(moment)
        judged.violations = violations
        return judged
    }

    /// Called for every request for a token, valid or not.
    mutating func recordTokenRequest(_ moment: Moment) {
        counts.tokenRequests += 1
        if let due = tokenAnswerDueAt, moment.instant < due { counts.overlappingTokenRequests += 1 }
    }

    private func isAccepted(_ login: Login) -> Bool {
        (settings.clientId.isEmpty || settings.clientId == login.clientId)
            && (settings.clientSecret.isEmpty || settings.clientSecret == login.clientSecret)
    }

    private mutating func answerToken(_ moment: Moment) -> SimulatedResult {
        switch settings.tokenAnswer {
        case .normal: return SimulatedResult(answer: Answer.json(200, newToken(moment)))
        case .junk:
            return SimulatedResult(answer: Answer.json(200, Self.junk[counts.tokenRequests % Self.junk.count]))
        case .slow(let milliseconds):
            let delay = Duration.milliseconds(milliseconds)
            tokenAnswerDueAt = moment.instant + delay
            return SimulatedResult(answer: Answer.json(200, newToken(moment)), delay: delay)
        case .status(let status) where [204, 205, 304].contains(status):
            return SimulatedResult(answer: SimulatedAnswer(status: status))
        case .status(let status) where status < 300:
            return SimulatedResult(answer: Answer.json(status, newToken(moment)))
        case .status(let status):
            return SimulatedResult(answer: Answer.json(status, #"{"access_token":"\#(tokens.decoy())"}"#))
        }
    }

    private mutating func newToken(_ moment: Moment) -> String {
        let token = tokens.issue(at: moment.now, life: settings.tokenLife)
        counts.tokensIssued += 1
        // As the platform's JSON writer did at the time.
        let text = token.text.replacing("/", with: #"\/"#)
        let date = settings.expirationForm.written(token.expiresAt).map { #","expiration_date":\#($0)"# } ?? ""
        return #"{"token_type":"BearerToken","access_token":"\#(text)"\#(date)}"#
    }

    private static let junk = [
        "<html>Welcome</html>", "", "{}", "[]", "null", #"{"access_token":""}"#, #"{"access_token":null}"#,
        #"{"access_token":17}"#, #"{"access_token":{"a":"b"}}"#, #"{"accessToken":"abc"}"#, #"{"access_token":"abc"#,
    ]

    // MARK: Reports

    /// Why a report is rejected without being read; nil if it is read.
    mutating func admit(
        _ request: SimulatedRequest, _ query: Query, to path: String, _ moment: Moment
    ) -> (refusal: SimulatedAnswer?, violations: [String]) {
        counts.reports[path, default: Reports()].requests += 1
        let key = check(query)
        var violations = key.violations
        let isLetIn = authorize(request, moment, &violations)
        if key.isRefused { return (Answer.forbidden, violations) }
        return (isLetIn ? nil : Answer.badToken, violations)
    }

    private mutating func authorize(
        _ request: SimulatedRequest, _ moment: Moment, _ violations: inout [String]
    ) -> Bool {
        guard let authorization = request.header("Authorization") else {
            counts.reportsWithoutAuthorization += 1
            violations.append("a report without Authorization")
            return false
        }
        let token = String(authorization.dropFirst("Bearer ".count))
        guard authorization.hasPrefix("Bearer "), !token.isEmpty, !token.contains(where: \.isWhitespace) else {
            violations.append("an Authorization that is not a Bearer token")
            return false
        }
        if tokens.isWorn(token, at: request.sentAt ?? moment.instant) {
            violations.append("a token that was refused more than five seconds before")
        }
        switch tokens.state(of: token, at: moment.now) {
        case .unknown:
            violations.append("a token that was never issued")
            return false
        case .dead:
            if tokens.isExpired(token, at: moment.now) { counts.expiredTokenReports += 1 }
            recordRefusal(of: token, request, moment)
            return false
        case .good:
            guard random.fraction() < settings.refuse401Rate else { return true }
            counts.randomRefusals += 1
            recordRefusal(of: token, request, moment, revoking: settings.revoke)
            return false
        }
    }

    private mutating func recordRefusal(
        of token: String, _ request: SimulatedRequest, _ moment: Moment, revoking: Bool = false
    ) {
        let knownAt = request.isAnswerLost ? nil : request.answeredAt ?? moment.instant
        tokens.recordRefusal(of: token, knownAt: knownAt, revoking: revoking)
    }

    mutating func recordAccepted(items: Int, bytes: Int, on path: String) {
        counts.reports[path, default: Reports()].accepted += 1
        counts.reports[path, default: Reports()].items += items
        let largest = counts.reports[path, default: Reports()].largestBytes
        counts.reports[path, default: Reports()].largestBytes = max(largest, bytes)
    }

    // MARK: Control

    mutating func change(_ body: [UInt8]) throws(ControlProblem) {
        let request = try ControlRequest<SeerSettings, Commands>(body, changing: settings)
        settings = request.settings
        if request.names.contains("apiKey") { firstAPIKey = nil }
        if !request.names.isDisjoint(with: ["clientId", "clientSecret"]) { firstLogin = nil }
        if let seed = request.commands.seed { random = SplitMix64(state: seed) }
        if request.commands.revokeNow == true { tokens.revokeAll() }
    }

    func shown(at now: Timestamp) -> [JSONTree.Member] {
        let validTokens = JSONTree.Member(name: "validTokens", value: .number("\(tokens.validCount(at: now))"))
        return settings.shown + (tree(of: counts).members ?? []) + [validTokens]
    }
}
