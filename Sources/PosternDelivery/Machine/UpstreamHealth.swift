import PosternCore
import PosternUpstream

/// Which requests may be sent: one circuit for the upstream as a whole, and one for each of its endpoints.
///
/// - A response that is a failure, a rate limit, or a rejection of our credentials or URL concerns the endpoint that
///   sent it. Only that endpoint waits as long as another one is known to work: its circuit is closed and it succeeded
///   in the last 30 s. Otherwise the whole upstream waits, and is probed with one request at a time.
/// - A success of another endpoint, including of a request that was already in flight, narrows an upstream-wide wait to
///   the endpoints that caused it.
/// - If every endpoint has the rejected credentials or URL, all wait at first, and only a probe ends that.
/// - After such a rejection other messages probe soon: those for endpoints that have rejected nothing at once, and then
///   those for endpoints that have, one at a time. The number of these probes is limited; after that, they are rare.
/// - A connection that fails concerns the host, so the whole upstream. Any success ends that.
struct UpstreamHealth: Equatable {
    struct Endpoint: Equatable {
        var circuit: Circuit
        var hold: Verdict.HoldReason?
        var lastSuccessAt: Timestamp?
        /// The first message of the batch whose failure opened the circuit.
        var cause: MessageID?
        /// The error of its latest failure.
        var lastError: AttemptError?
        /// The numbers of the latest request that it accepted, and of the latest one that began or continued a hold.
        var latestTaken = 0
        var latestRefused = 0
        /// The number of probes in a row that continued its hold.
        var refusedProbes = 0
        /// When refused messages are sent again if no other message probes it before.
        var repeatsAt: Timestamp?

        /// When it is probed at the latest; nil if it does not wait, or is being probed.
        var latestProbeAt: Timestamp? { circuit.reopensAt.map { max($0, repeatsAt ?? $0) } }
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
    static let probePause = Duration.seconds(1)

    private(set) var upstream: Circuit
    /// Why an operator has to intervene before the upstream works.
    private(set) var hold: Verdict.HoldReason?
    private(set) var endpoints: [String: Endpoint] = [:]
    /// The endpoints whose failures made the whole upstream wait. Empty if its host did.
    private var causes: Set<String> = []
    /// Whether the reason for the hold concerns every endpoint.
    private var holdsAll = false
    /// The number of probes in a row that continued the hold of the upstream.
    private var refusedProbes = 0

    init(upstream: Circuit, hold: Verdict.HoldReason? = nil) {
        self.upstream = upstream
        self.hold = hold
    }

    var most: Int {
        get { upstream.most }
        set { upstream.most = newValue }
    }

    /// Endpoints that wait although the upstream does not.
    var waitingEndpoints: [String: Endpoint] { endpoints.filter { $0.value.circuit.state != .closed } }
    /// Whether an operator has to intervene at any endpoint, for `reason` if that is given.
    func isHeld(for reason: Verdict.HoldReason? = nil) -> Bool {
        ([hold] + endpoints.values.map(\.hold)).contains { $0 != nil && (reason == nil || $0 == reason) }
    }
    /// Messages whose failure made an endpoint wait.
    var causingMessages: [MessageID] { endpoints.values.compactMap(\.cause) }

    // MARK: Queries

    /// The upstream's circuit for people. After a rejection it may be open until now, so that a message for an endpoint
    /// that was not tried yet probes the upstream at once. If there is none, it is open until the endpoints that rejected
    /// something are probed.
    var shown: Circuit.State {
        guard case .open(let until) = upstream.state, hold != nil else { return upstream.state }
        return .open(until: max(until, causes.compactMap { endpoints[$0]?.latestProbeAt }.min() ?? until))
    }

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
                && other.lastSuccessAt.map { Self.isEvidence($0, at: now) } ?? false
        }
    }

    /// If the success lies in the future, the clock was set back after it, and its age is unknown.
    private static func isEvidence(_ success: Timestamp, at now: Timestamp) -> Bool {
        (success - evidenceLife...success + evidenceLife).contains(now)
    }

    // MARK: Results

    private mutating func update<R>(_ endpoint: String, _ body: (inout Endpoint) -> R) -> R {
        body(&endpoints[endpoint, default: Endpoint(circuit: Circuit(most: upstream.most))])
    }

    mutating func sent(to endpoint: String, now: Timestamp) {
        upstream.sent(now: now)
        update(endpoint) { $0.circuit.sent(now: now) }
    }

    /// The endpoint responded as one that works, including by rejecting a message. `taken`: the number of the request if
    /// it accepted that. Returns what has recovered.
    mutating func succeeded(at endpoint: String, taken: Int? = nil, now: Timestamp) -> OutageScope? {
        let hasRecovered = update(endpoint) { known in
            let hasRecovered = known.circuit.succeeded()
            known.lastSuccessAt = now
            known.latestTaken = max(known.latestTaken, taken ?? 0)
            if known.circuit.state == .closed { known.endHold() }
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
        endHold()
        return wasDown ? .upstream : hasRecovered ? .endpoint : nil
    }

    /// The hold of the upstream as a whole has ended.
    private mutating func endHold() {
        hold = nil
        holdsAll = false
        causes = []
        refusedProbes = 0
    }

    /// The endpoint failed by `message` and is tried again from `retryAt` on. `atOnce` does not wait for more failures.
    /// Returns what began to wait.
    mutating func failed(
        at endpoint: String, by message: MessageID, retryAt: Timestamp, atOnce: Bool, error: AttemptError? = nil,
        now: Timestamp
    ) -> OutageScope? {
        let othersWork = othersWork(besides: endpoint, now: now) && upstream.state == .closed
        let endpointWentDown = update(endpoint) { known in
            let wentDown = atOnce ? known.circuit.hold(until: retryAt) : known.circuit.failed(retryAt: retryAt)
            known.lastError = error
            if known.circuit.state != .closed, known.cause == nil { known.cause = message }
            return wentDown
        }
        if othersWork { return endpointWentDown ? .endpoint : nil }
        let wentDown = atOnce ? upstream.hold(until: retryAt) : upstream.failed(retryAt: retryAt)
        if upstream.state != .closed { causes.insert(endpoint) }
        return wentDown ? .upstream : nil
    }

    /// The endpoint refused the request with that number, which began with `message`: our credentials or the URL are
    /// wrong, or a message of the request is the cause. `holdsAll` does not ask whether others work, unless that is
    /// known because this endpoint is held alone. `probeAt`: when to probe after that many refused probes. Returns what
    /// began to wait.
    mutating func refused(
        at endpoint: String, by message: MessageID, number: Int, for reason: Verdict.HoldReason, holdsAll: Bool,
        error: AttemptError, now: Timestamp, probeAt: (Int) -> Timestamp
    ) -> OutageScope? {
        let isHeld = endpoints[endpoint]?.hold != nil
        let othersWork =
            upstream.state == .closed && (isHeld || !holdsAll && othersWork(besides: endpoint, now: now))
        let endpointWentDown = update(endpoint) { known in
            if known.circuit.state == .halfOpen { known.refusedProbes += 1 }
            // An endpoint that accepted something since its last refusal is probed by another message at once: the message
            // is likely to be the cause. Otherwise, it is probed later than the upstream, so that the next probe of that
            // reaches another endpoint, if there is one. A request that was sent before the hold does not prolong it.
            let hasJustWorked =
                known.refusedProbes == 0 && known.latestTaken > known.latestRefused
                && known.lastSuccessAt.map { Self.isEvidence($0, at: now) } ?? false
            let isNoProbe = known.hold != nil && known.circuit.reopensAt != nil
            let wentDown = known.circuit.hold(
                until: isNoProbe ? now : probeAt(hasJustWorked ? 0 : known.refusedProbes + 2))
            known.hold = reason
            known.lastError = error
            known.latestRefused = max(known.latestRefused, number)
            if known.cause == nil { known.cause = message }
            return wentDown
        }
        if othersWork { return endpointWentDown ? .endpoint : nil }
        if holdsAll { self.holdsAll = true }
        if upstream.state == .halfOpen { refusedProbes += 1 }
        // An endpoint that has not refused anything is probed as soon as there is a message for it; those that have take
        // turns.
        causes.insert(endpoint)
        let probeAt = probeAt(refusedProbes)
        for cause in causes {
            update(cause) { if $0.circuit.reopensAt != nil { $0.circuit.hold(until: probeAt) } }
        }
        let wentDown = upstream.hold(until: self.holdsAll ? probeAt : now)
        hold = reason
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
        for name in endpoints.keys {
            update(name) { known in
                known.circuit.probeNow(now: now)
                known.repeatsAt = nil
            }
        }
    }

    /// The refused messages are sent again from `moment` on.
    mutating func sendsAgain(at endpoint: String, from moment: Timestamp) {
        update(endpoint) { $0.repeatsAt = moment }
    }

    /// Other credentials or another URL are used from now on: probes may follow soon again.
    mutating func credentialsReplaced() {
        refusedProbes = 0
        for name in endpoints.keys { update(name) { $0.refusedProbes = 0 } }
    }

    /// Nothing is queued, so that no probe will show whether a failure whose wait is over has ended. Returns whether the
    /// upstream as a whole waits no more.
    mutating func becameEmpty(now: Timestamp) -> Bool {
        for (name, known) in endpoints where known.circuit.reopensAt.map({ $0 <= now }) ?? false {
            update(name) { known in
                known.circuit.close()
                known.endHold()
            }
        }
        guard waitEndsAt.map({ $0 <= now }) ?? (upstream.state == .closed) else { return false }
        defer {
            upstream.close()
            endHold()
        }
        return upstream.state != .closed
    }

    /// When the upstream as a whole waits no more, if no message probes it before: after the endpoints that caused the wait.
    private var waitEndsAt: Timestamp? {
        upstream.reopensAt.map { until in causes.compactMap { endpoints[$0]?.circuit.reopensAt }.reduce(until, max) }
    }

    /// The earliest end of a wait.
    var firstOpening: Timestamp? {
        (endpoints.values.map(\.circuit.reopensAt) + [waitEndsAt]).compactMap(\.self).min()
    }

    /// The message that made an endpoint wait is gone: the endpoint, and an upstream that waits because of it, are
    /// probed.
    mutating func causeIsGone(_ message: MessageID, now: Timestamp) {
        for (name, known) in endpoints where known.cause == message {
            update(name) { known in
                known.cause = nil
                known.repeatsAt = nil
                known.circuit.probeNow(now: now)
            }
            if causes.contains(name) { upstream.probeNow(now: now) }
        }
    }
}

extension UpstreamHealth.Endpoint {
    /// What made it wait has ended.
    fileprivate mutating func endHold() {
        hold = nil
        cause = nil
        refusedProbes = 0
        repeatsAt = nil
    }
}
