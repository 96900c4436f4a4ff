import PosternCore
public import PosternSimulatorKit
internal import Synchronization

/// Pearson Seer as its clients know it: tokens for client credentials, and reports with these tokens.
///
/// The server itself was never observed: if the specification defines no status, the simulator uses the usual one. What
/// a gateway must never send is noted as a violation. Credentials that an operator may have mistyped, and tokens that
/// have just expired, get 401 or 403 and are not violations.
///
/// `seer.md` describes `/received` and `/control`.
final class SeerSimulator: ControlledSimulator {
    let name = "seer"
    let orderField = ""
    private let time: any TimeSource
    private let state: Mutex<SeerState>

    /// The maximum size of a bundle, whatever the settings of a gateway (specification, section "Settings").
    private static let largestBundle = 1 << 20

    /// - Parameter seed: of the tokens, and of the choice which reports are refused.
    init(seed: UInt64 = 0, time: any TimeSource = SystemTime()) {
        self.time = time
        state = Mutex(SeerState(seed: seed))
    }

    private var moment: Moment { Moment(time) }

    func judge(_ request: SimulatedRequest, poisons: [Faults.Poison]) -> SimulatedResult {
        if request.path == Endpoint.tokenPath { return judgeTokenRequest(request) }
        let settings = state.withLock { $0.settings }
        guard let endpoint = settings.endpoint(request.path) else {
            let line = "\(request.method) \(request.path)".prefix(100)
            return SimulatedResult(answer: Answer.notFound, violations: ["\(line): there is no such endpoint"])
        }
        return judgeReport(request, to: endpoint, bundleLimit: settings.bundleLimit, poisons)
    }

    func answer(status: Int) -> SimulatedAnswer {
        let answer = Answer.refusal(status, "simulated")
        return (300..<400).contains(status) ? answer.with("Location", "/elsewhere") : answer
    }

    // MARK: POST /oauth/access_token

    private func judgeTokenRequest(_ request: SimulatedRequest) -> SimulatedResult {
        let moment = moment
        state.withLock { $0.recordTokenRequest(moment) }
        guard request.method == "POST" else { return Self.wrongMethod(request) }
        var violations = request.framingViolations
        // HTTP libraries send `*/*` if none is set.
        if let accept = request.header("Accept"), accept != "*/*" { violations.append("an Accept on a token request") }
        let login = request.header("Authorization").flatMap { Login(authorization: $0) }
        if login == nil { violations.append("a token request without Basic credentials") }
        let hasForm = request.header("Content-Type") == "application/x-www-form-urlencoded"
        if !hasForm {
            violations.append("a token request whose Content-Type is not application/x-www-form-urlencoded")
        }
        let hasGrant = request.body == Array("grant_type=client_credentials".utf8)
        if !hasGrant { violations.append("a token request whose body is not grant_type=client_credentials") }
        let query = Query(request.query)
        guard hasForm, hasGrant else {
            return SimulatedResult(
                answer: Answer.refusal(400, "invalid_request"), violations: violations + query.violations)
        }
        var judged = state.withLock { $0.token(login, query, moment) }
        judged.violations = violations + judged.violations
        return judged
    }

    // MARK: Reports

    private func judgeReport(
        _ request: SimulatedRequest, to endpoint: Endpoint, bundleLimit: Int, _ poisons: [Faults.Poison]
    ) -> SimulatedResult {
        guard request.method == "POST" else { return Self.wrongMethod(request) }
        let (moment, path) = (moment, endpoint.path)
        let query = Query(request.query, own: endpoint.query)
        var (refusal, violations) = state.withLock {
            $0.admit(request, query, to: path, moment)
        }
        violations += request.framingViolations + Self.headerViolations(of: request)
        if request.body.count > Self.largestBundle { violations.append("a body of more than 1048576 bytes") }
        if refusal == nil { refusal = Self.refusal(of: request, bundleLimit: bundleLimit) }
        if let refusal { return SimulatedResult(answer: refusal, violations: violations) }

        var judged = request.body.withUnsafeBufferPointer { Self.judge($0, to: endpoint, poisons) }
        judged.violations = violations + judged.violations
        judged.setText(request.body)
        guard judged.answer == Answer.accepted else { return judged }
        let count = judged.items.ranges.count
        state.withLock { $0.recordAccepted(items: count, bytes: request.body.count, on: path) }
        return judged
    }

    /// Reasons to reject the request by its head alone.
    private static func refusal(of request: SimulatedRequest, bundleLimit: Int) -> SimulatedAnswer? {
        if request.body.count > bundleLimit { return Answer.refusal(413, "too large") }
        let coding = request.header("Content-Encoding")?.lowercased()
        let type = request.header("Content-Type")?.lowercased()
        let isJSON = type == "application/json" || type?.hasPrefix("application/json;") ?? false
        return (coding ?? "identity") == "identity" && isJSON ? nil : Answer.refusal(415, "unsupported media type")
    }

    private static func judge(
        _ text: UnsafeBufferPointer<UInt8>, to endpoint: Endpoint, _ poisons: [Faults.Poison]
    ) -> SimulatedResult {
        let body = Body(text, isBatch: endpoint.isBatch)
        if let refusal = body.refusal {
            return SimulatedResult(answer: Answer.refusal(400, refusal), violations: body.violations + [refusal])
        }
        let complaints = body.items.enumerated()
            .map { (index: $0, pointers: endpoint.kind.complaints(about: $1, in: text)) }
            .filter { !$0.pointers.isEmpty }
        guard complaints.isEmpty else {
            return SimulatedResult(
                answer: Answer.refusal(of: complaints), violations: body.violations + ["an item the rules refuse"])
        }
        let texts = body.items.map { UnsafeBufferPointer(rebasing: text[$0.range]) }
        if let poison = poisons.first(where: { poison in texts.contains { poison.matches($0) } }) {
            var result = SimulatedResult(
                answer: Answer.refusal(poison.status, "bad item"), violations: body.violations)
            result.rejected = .init(
                ranges: poisons.hits(body.items.map(\.range), of: text), orderKey: endpoint.kindPath)
            return result
        }
        let salt = Array(endpoint.kindPath.utf8).withUnsafeBufferPointer { digest($0) }
        let items = SimulatedResult.Items(
            ranges: body.items.map(\.range), identities: texts.map { digest($0) ^ salt }, orderKey: endpoint.kindPath)
        return SimulatedResult(answer: Answer.accepted, items: items, violations: body.violations)
    }

    // MARK: What a gateway must not do

    private static func wrongMethod(_ request: SimulatedRequest) -> SimulatedResult {
        SimulatedResult(
            answer: Answer.notAllowed,
            violations: ["\(request.method.prefix(20)) \(request.path.prefix(100)): only POST is used"])
    }

    private static func headerViolations(of request: SimulatedRequest) -> [String] {
        ["Accept", "Content-Type"].compactMap { name in
            request.header(name) == "application/json" ? nil : "a report whose \(name) is not application/json"
        }
    }

    // MARK: /control

    func shownControl() -> [JSONTree.Member] { state.withLock { $0.shown(at: time.now) } }

    func change(_ body: [UInt8]) throws(ControlProblem) {
        try state.withLock { state throws(ControlProblem) in try state.change(body) }
    }
}

extension SimulatorType {
    /// For `SimulatorRegistry`.
    public static let seer = SimulatorType { SeerSimulator(seed: $0, time: $1) }
}
