import PosternCore

/// Which requests may be sent: one circuit for the upstream as a whole, and one for each of its endpoints.
///
/// - A response that is a failure, a rate limit, or a rejection of our credentials or URL concerns the endpoint that
///   sent it. Only that endpoint waits as long as another one is known to work: its circuit is closed and it succeeded
///   in the last 30 s. Otherwise the whole upstream waits, and is probed with one request at a time.
/// - A success of another endpoint, including of a request that was already in flight, narrows an upstream-wide wait to
///   the endpoints that caused it.
/// - If every endpoint has the rejected credentials or URL, all wait, and only a probe ends that.
/// - A connection that fails concerns the host, so the whole upstream. Any success ends that.
struct UpstreamHealth: Equatable {
    struct Endpoint: Equatable {
        var circuit: Circuit
        var hold: HoldReason?
        var lastSuccessAt: Timestamp?
        /// The first message of the batch whose failure opened the circuit.
        var cause: MessageID?
        /// The error of its latest failure.
        var lastError: AttemptError?
    }

    /// What began to wait or has recovered, for the operator.
    enum OutageScope: Equatable {
        case upstream
        /// One endpoint alone.
        case endpoint
    }

    /// The time for which a success is evidence that the upstream works.
    static let evidenceLife = Duration.seconds(30)
    /// How long other requests to an endpoint wait while one probes it.
    private static let probePause = Duration.seconds(1)

    private(set) var upstream: Circuit
    /// Why an operator has to intervene before the upstream works.
    private(set) var hold: HoldReason?
    private(set) var endpoints: [String: Endpoint] = [:]
    /// The endpoints whose failures made the whole upstream wait. Empty if its host did.
    private var causes: Set<String> = []
    /// Whether the reason for the hold concerns every endpoint.
    private var holdsAll = false

    init(upstream: Circuit, hold: HoldReason? = nil) {
        self.upstream = upstream
        self.hold = hold
    }

    var most: Int {
        get { upstream.most }
        set { upstream.most = newValue }
    }

    /// Endpoints that wait although the upstream does not.
    var waitingEndpoints: [String: Endpoint] { endpoints.filter { $0.value.circuit.state != .closed } }
    /// Messages whose failure made an endpoint wait.
    var causingMessages: [MessageID] { endpoints.values.compactMap(\.cause) }

    // MARK: Queries

    /// How long a request to `endpoint` has to wait, and for what; nil if it may be sent.
    func wait(of endpoint: String, now: Timestamp) -> (until: Timestamp, reason: WaitReason)? {
        guard let known = endpoints[endpoint] else { return nil }
        let reason: WaitReason = known.hold == .credentials ? .credentials : .circuit
        switch known.circuit.state {
        case .closed: return nil
        case .open(let until): return until <= now ? nil : (until, reason)
        case .halfOpen: return (now + Self.probePause, reason)
        }
    }

    private func othersWork(besides endpoint: String, now: Timestamp) -> Bool {
        endpoints.contains { name, other in
            name != endpoint && other.circuit.state == .closed
                // If a success lies in the future, the clock was set back after it, and its age is unknown.
                && other.lastSuccessAt.map { ($0 - Self.evidenceLife...$0 + Self.evidenceLife).contains(now) } ?? false
        }
    }

    // MARK: Results

    private mutating func update<R>(_ endpoint: String, _ body: (inout Endpoint) -> R) -> R {
        body(&endpoints[endpoint, default: Endpoint(circuit: Circuit(most: upstream.most))])
    }

    mutating func sent(to endpoint: String, now: Timestamp) {
        upstream.sent(now: now)
        update(endpoint) { $0.circuit.sent(now: now) }
    }

    /// The endpoint responded as one that works, including by rejecting a message. Returns what has recovered.
    mutating func succeeded(at endpoint: String, now: Timestamp) -> OutageScope? {
        let hasRecovered = update(endpoint) { known in
            let hasRecovered = known.circuit.succeeded()
            known.lastSuccessAt = now
            if known.circuit.state == .closed { (known.hold, known.cause) = (nil, nil) }
            return hasRecovered
        }
        let wasDown = upstream.state != .closed
        // A rate limit of the endpoint itself is obeyed to its end, whatever was sent before it.
        if case .open = upstream.state, !holdsAll, !causes.contains(endpoint) {
            upstream.close()
        } else {
            upstream.succeeded()
        }
        guard upstream.state == .closed else { return hasRecovered ? .endpoint : nil }
        hold = nil
        holdsAll = false
        causes = []
        return wasDown ? .upstream : hasRecovered ? .endpoint : nil
    }

    /// The endpoint failed by `message` and is tried again from `retryAt` on. `atOnce` does not wait for more failures;
    /// `holdsAll` does not ask whether others work. Returns what began to wait.
    mutating func failed(
        at endpoint: String, by message: MessageID, retryAt: Timestamp, atOnce: Bool, hold reason: HoldReason? = nil,
        holdsAll: Bool = false, error: AttemptError? = nil, now: Timestamp
    ) -> OutageScope? {
        let othersWork = !holdsAll && othersWork(besides: endpoint, now: now) && upstream.state == .closed
        let endpointWentDown = update(endpoint) { known in
            let wentDown = atOnce ? known.circuit.hold(until: retryAt) : known.circuit.failed(retryAt: retryAt)
            if let reason { known.hold = reason }
            known.lastError = error
            if known.circuit.state != .closed, known.cause == nil { known.cause = message }
            return wentDown
        }
        if othersWork { return endpointWentDown ? .endpoint : nil }
        let wentDown = atOnce ? upstream.hold(until: retryAt) : upstream.failed(retryAt: retryAt)
        if upstream.state != .closed { causes.insert(endpoint) }
        if let reason { hold = reason }
        if holdsAll { self.holdsAll = true }
        return wentDown ? .upstream : nil
    }

    /// The request got no response. Returns what began to wait.
    mutating func hostFailed(at endpoint: String, retryAt: Timestamp, now: Timestamp) -> OutageScope? {
        update(endpoint) { $0.circuit.abandoned(now: now) }
        return upstream.failed(retryAt: retryAt) ? .upstream : nil
    }

    /// The result of a request that was sent is not known.
    mutating func abandoned(at endpoint: String, now: Timestamp) {
        upstream.abandoned(now: now)
        update(endpoint) { $0.circuit.abandoned(now: now) }
    }

    /// Probes now instead of waiting.
    mutating func probeNow(now: Timestamp) {
        upstream.probeNow(now: now)
        for name in endpoints.keys { update(name) { $0.circuit.probeNow(now: now) } }
    }

    /// The message that made an endpoint wait is gone: the endpoint, and an upstream that waits because of it, are
    /// probed.
    mutating func causeIsGone(_ message: MessageID, now: Timestamp) {
        for (name, known) in endpoints where known.cause == message {
            update(name) { known in
                known.cause = nil
                known.circuit.probeNow(now: now)
            }
            if causes.contains(name) { upstream.probeNow(now: now) }
        }
    }
}
