import PosternCore
public import PosternSimulatorKit
internal import Synchronization

/// An HTTP API that takes JSON, checks signatures of Standard Webhooks, and processes each `Idempotency-Key` once.
///
/// Anything with the media type of a form is a request for a token. `webhook.md` describes `/control`.
final class WebhookSimulator: ControlledSimulator {
    let name = "webhook"
    let orderField = "key"
    private let time: any TimeSource
    private let state: Mutex<WebhookState>

    init(seed: UInt64 = 0, time: any TimeSource = SystemTime()) {
        self.time = time
        state = Mutex(WebhookState(seed: seed))
    }

    func judge(_ request: SimulatedRequest, poisons: [Faults.Poison]) -> SimulatedResult {
        var result =
            request.header("Content-Type") == "application/x-www-form-urlencoded"
            ? judgeTokenRequest(request) : judgeMessages(request, poisons)
        result.violations += request.framingViolations
        return result
    }

    func answer(status: Int) -> SimulatedAnswer { Answer.refusal(status, "simulated") }

    private func judgeTokenRequest(_ request: SimulatedRequest) -> SimulatedResult {
        guard request.method == "POST" else { return Self.wrongMethod(request) }
        var form: [String: String] = [:]
        var repeated: [String] = []
        for pair in request.body.split(separator: UInt8(ascii: "&")) {
            let parts = pair.split(separator: UInt8(ascii: "="), maxSplits: 1, omittingEmptySubsequences: false)
                .compactMap { PercentDecoded($0, plusIsSpace: true).text }
            if parts.count == 2, form.updateValue(parts[1], forKey: parts[0]) != nil { repeated.append(parts[0]) }
        }
        let now = time.now
        var result = state.withLock { $0.token(request.header("Authorization"), form, at: now) }
        // RFC 6749, section 3.2.
        result.violations += repeated.map { "the parameter \($0.prefix(100)) more than once" }
        return result
    }

    // MARK: Messages

    private func judgeMessages(_ request: SimulatedRequest, _ poisons: [Faults.Poison]) -> SimulatedResult {
        guard ["POST", "PUT", "PATCH"].contains(request.method) else { return Self.wrongMethod(request) }
        let now = time.now
        let (settings, isAuthorized) = state.withLock {
            ($0.settings, $0.isAuthorized(request.header("Authorization"), at: now))
        }
        guard settings.paths.isEmpty || settings.paths.contains(request.path) else {
            let line = "\(request.method) \(request.path)".prefix(100)
            return SimulatedResult(
                answer: Answer.refusal(404, "not found"), violations: ["\(line): there is no such endpoint"])
        }
        guard isAuthorized else { return SimulatedResult(answer: Answer.badCredentials("Bearer")) }
        let signatures = Signatures(secrets: settings.signingSecrets, nowSeconds: now.milliseconds / 1000)
            .judge(request)
        guard signatures.isAccepted else {
            return SimulatedResult(answer: Answer.refusal(401, "invalid signature"), violations: signatures.violations)
        }
        if request.header("webhook-id") != nil { state.withLock { $0.recordSigned() } }
        var result = judgeBody(request, settings, poisons)
        result.violations += Self.headerViolations(of: request)
        return result
    }

    private func judgeBody(
        _ request: SimulatedRequest, _ settings: WebhookSettings, _ poisons: [Faults.Poison]
    ) -> SimulatedResult {
        let type = request.header("Content-Type")
        guard let type, ["application/json", "application/x-ndjson"].contains(type) else {
            return SimulatedResult(
                answer: Answer.refusal(415, "unsupported media type"), violations: ["a Content-Type that is not JSON"])
        }
        guard let key = request.header("Idempotency-Key"), (1...255).contains(key.utf8.count) else {
            return SimulatedResult(
                answer: Answer.refusal(400, "Idempotency-Key is required"), violations: ["no usable Idempotency-Key"])
        }
        var result = request.body.withUnsafeBufferPointer {
            Self.judge($0, isLines: type == "application/x-ndjson", settings, poisons)
        }
        result.setText(request.body)
        guard !result.items.ranges.isEmpty else { return result }
        return once(key, request, result)
    }

    private static func judge(
        _ text: UnsafeBufferPointer<UInt8>, isLines: Bool, _ settings: WebhookSettings, _ poisons: [Faults.Poison]
    ) -> SimulatedResult {
        let body = Body(text, isLines: isLines, settings)
        if let refusal = body.refusal {
            return SimulatedResult(answer: Answer.refusal(400, refusal), violations: [refusal])
        }
        let texts = body.items.map { UnsafeBufferPointer(rebasing: text[$0]) }
        if let poison = poisons.first(where: { poison in texts.contains { poison.matches($0) } }) {
            var result = SimulatedResult(answer: Answer.refusal(poison.status, "bad item"))
            result.rejected.ranges = poisons.hits(body.items, of: text)
            return result
        }
        return SimulatedResult(
            answer: .json(settings.status, #"{"accepted":\#(texts.count)}"#),
            items: .init(ranges: body.items, identities: texts.map { digest($0) }))
    }

    /// The same request with a known key is answered and not processed again. Another one with that key is rejected.
    private func once(_ key: String, _ request: SimulatedRequest, _ result: SimulatedResult) -> SimulatedResult {
        let target = "\(request.method) \(request.path)?\(request.query ?? "")\n"
        let fingerprint = (Array(target.utf8) + request.body).withUnsafeBufferPointer { digest($0) }
        return state.withLock { state in
            guard let accepted = state.accepted[key] else {
                state.accepted.insert(key, fingerprint)
                return result
            }
            guard accepted == fingerprint else {
                return SimulatedResult(
                    answer: Answer.refusal(422, "Idempotency-Key was used for another request"),
                    violations: ["an Idempotency-Key of another request"])
            }
            state.recordReplay()
            return SimulatedResult(answer: result.answer)
        }
    }

    // MARK: What a gateway must not do

    private static func wrongMethod(_ request: SimulatedRequest) -> SimulatedResult {
        SimulatedResult(
            answer: Answer.refusal(405, "method not allowed").with("Allow", "POST, PUT, PATCH"),
            violations: ["\(request.method.prefix(20)) \(request.path.prefix(100)): no such method"])
    }

    /// Repeated headers are joined by commas.
    private static func headerViolations(of request: SimulatedRequest) -> [String] {
        ["Authorization", "Content-Type", "Idempotency-Key", "webhook-id"].compactMap { name in
            request.headers.count { $0.name.lowercased() == name.lowercased() } > 1 ? "\(name) more than once" : nil
        }
    }

    // MARK: /control

    func shownControl() -> [JSONTree.Member] { state.withLock { $0.shown() } }

    func change(_ body: [UInt8]) throws(ControlProblem) {
        try state.withLock { state throws(ControlProblem) in try state.change(body) }
    }
}

extension SimulatorType {
    /// For `SimulatorRegistry`.
    public static let webhook = SimulatorType { WebhookSimulator(seed: $0, time: $1) }
}
