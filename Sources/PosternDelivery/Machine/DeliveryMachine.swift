import PosternCore
import PosternStore
import PosternUpstream

/// All decisions about delivering to one upstream: what may be sent, what a response means for its batch, the circuits,
/// and the token, and which messages fail.
///
/// A plain value. It has no clock, no store and no transport: times and random numbers (0 ... 1) are arguments, and it
/// returns what the worker has to do. ARCHITECTURE.md has a picture of the states of a lane, and of a circuit.
///
/// A message is blamed only for itself. A clear rejection fails it at once. A doubtful answer (`Verdict.suspect`)
/// counts against a message only while it is sent alone, and only once something else was delivered after it; see
/// `DeliveryMachine+Suspect`. The count starts again with any other outcome.
struct DeliveryMachine: Equatable {
    /// What is queued in addition to the batch in question.
    enum OtherMessages: Equatable {
        case none
        /// Only messages that have to wait for this batch.
        case blocked
        /// A message that can be sent later, whatever happens to this batch.
        case later
        /// A message that can be sent now.
        case ready
    }

    /// The actions of the worker, in this order.
    enum Action {
        case record(Settlement)
        /// What waits for its endpoint or for credentials is due now.
        case wakeHeld
        /// Everything that waits for a time is due now. `isFlush`: whether this begins a flush.
        case makeDue(isFlush: Bool)
        case savePause(Bool)
        case saveFlush(MessageID)
        /// The first flush has ended.
        case finishFlush(FlushReport)
        case notify(Notice)
    }

    /// A log message for operators.
    enum Notice: Equatable {
        case isDown(AttemptError, until: Timestamp)
        case isBack
        /// The wait is over and nothing is queued: whether the upstream works will show with the next message.
        case waitEnded
        case endpointIsDown(String, AttemptError, until: Timestamp)
        case endpointIsBack(String)
        case isHeld(Verdict.HoldReason, AttemptError, endpoint: String)
        /// The endpoint rejects most messages, and fails no more of them.
        case isGuarded(AttemptError, endpoint: String)
        /// The endpoint accepted a probe, or an operator said that its rejections are right (`byOperator`).
        case guardEnded(endpoint: String, byOperator: Bool)
        /// A notice that the adapter found in a response; reported once.
        case said(UpstreamNotice)
        /// `isFirst`: since the start, or since the credentials were last found bad.
        case tokenFetched(isFirst: Bool)
        case tokenFailed(TokenFailure)
    }

    /// A fetch that returned no token.
    struct TokenFailure: Equatable {
        var error: AttemptError
        /// Whether it is the first one, the first of its class, or the first one that holds messages.
        var isNew: Bool
        var credentialsRefused: Bool
        /// Whether messages wait for the token.
        var holdsMessages: Bool
        /// The time until the next fetch.
        var delay: Duration
    }

    var settings: DeliverySettings
    var health: UpstreamHealth
    var tokens = TokenCache()
    var rejectionGuard = RejectionGuard()
    var pace = Pace()
    /// The limits of single kinds, in addition to those of the upstream; only of kinds that have some.
    var kindLimits: [Kind: Pace.Limits] = [:]
    /// How fast these kinds are sent.
    private(set) var kindPaces: [Kind: Pace] = [:]
    /// Whether messages of a held endpoint would be claimed in place of others, so that all of them wait.
    var guardHoldsAll = false
    /// The number of requests that wait for their response.
    private(set) var inFlight = 0
    /// The number of those, and of batches whose result is not on disk yet.
    private(set) var unsettled = 0
    private(set) var suspectsInFlight = 0
    var lastSuccessAt: Timestamp?
    var lastError: AttemptError?
    /// Whether the last failure was a doubtful response.
    var isInDoubt = false
    /// The latest request that the upstream accepted; distinguishes a poison message from an outage.
    var latestTaken = 0
    /// The number of requests sent in this run.
    private(set) var requests = 0
    /// The number of the latest of them.
    private(set) var latestSent = 0
    var lastSaid: UpstreamNotice?
    /// Whether a token was fetched since the start, or since the credentials were last found bad.
    var isReady = false

    // Steering, see `DeliveryMachine+Steering`.
    /// Nil unless an operator has paused the upstream.
    var pause: Pause?
    var isPaused: Bool { pause != nil }
    var isStopping = false
    /// The last message that flushes have covered so far.
    var flushedThrough = MessageID(rawValue: 0)
    /// The flushes that have not ended, in their order.
    var flushes: [Flush] = []
    /// Whether messages are sent without collecting.
    var isHurried = false

    init(settings: DeliverySettings = DeliverySettings(), health: UpstreamHealth) {
        self.settings = settings
        self.health = health
    }

    // MARK: Sending

    func maySend(now: Timestamp) -> Bool {
        health.upstream.permits(inFlight: unsettled, now: now) && guardOpensAt.map { $0 <= now } ?? true
            && pace.wait(now: now) == nil && unsettled < pace.maxInFlight(settings.maxInFlight, settings.pace)
    }

    /// When each kind may be sent that has reached its limit. Its messages are not claimed before.
    func waitingKinds(now: Timestamp) -> [Kind: Timestamp] { kindPaces.compactMapValues { $0.wait(now: now) } }

    /// What was measured before says nothing.
    mutating func resetPaces() {
        pace.reset()
        kindPaces = [:]
    }

    /// When the guard lets a probe through; nil unless it holds all messages.
    var guardOpensAt: Timestamp? { guardHoldsAll ? rejectionGuard.held.values.min() : nil }

    /// Messages that a probe of `endpoint` may carry. While every response is doubtful, or after a rejection of the
    /// credentials or the URL, a probe carries one message: if each batch contained a poison message, no batch could show
    /// that the upstream works.
    func probeLimit(of endpoint: String) -> Int? {
        let isProbe = health.upstream.state != .closed && (isInDoubt || health.hold != nil)
        return isProbe || health.endpoints[endpoint]?.hold != nil || rejectionGuard.isHolding(endpoint) ? 1 : nil
    }

    /// Whether the next request shows whether the messages, or the credentials or the URL, are the cause of a hold. It may
    /// carry any message: the first ones may be a long row of those that are refused.
    var choosesProbe: Bool {
        health.hold != nil && health.upstream.state != .closed || guardOpensAt != nil
    }

    /// A batch was claimed; its request will be recorded, then sent.
    mutating func began(_ flight: InFlightBatch, now: Timestamp) {
        unsettled += 1
        inFlight += 1
        requests += 1
        latestSent = max(latestSent, flight.number)
        if flight.isLoneSuspect { suspectsInFlight += 1 }
        health.sent(to: flight.endpoint, now: now)
        pace.sent(flight.batch.messages.count, settings.pace, now: now)
        if !kindLimits.isEmpty, let kind = flight.batch.messages.first?.kind, let limits = kindLimits[kind] {
            kindPaces[kind, default: Pace()].sent(flight.batch.messages.count, limits, now: now)
        }
        rejectionGuard.sent(to: flight.endpoint, now: now)
    }

    /// A batch is settled without a request.
    mutating func beganUnsent() { unsettled += 1 }

    /// The result of a batch is on disk, or will never be.
    mutating func ended() { unsettled -= 1 }

    /// The request has ended, with or without a response.
    mutating func landed(_ flight: InFlightBatch) {
        inFlight -= 1
        if flight.isLoneSuspect { suspectsInFlight -= 1 }
    }

    /// The store was closed before the result was read.
    mutating func abandoned(_ flight: InFlightBatch) {
        landed(flight)
        ended()
    }

    /// The request was recorded but not sent, or could not be recorded.
    mutating func unsent(_ flight: InFlightBatch, now: Timestamp) -> [Action] {
        landed(flight)
        health.abandoned(at: flight.endpoint, now: now)
        var settlement = Settlement(batch: flight.batch.id, outcome: .cancelled, endedAt: now)
        settlement.detail = "not sent"
        settlement.isGivenBack = true
        return [.record(settlement)]
    }

    // MARK: Tokens

    /// Whether a token is fetched although no message requires one: to verify the credentials, or because a flush asks
    /// whether they are accepted.
    func checksToken(verifiesAtStart: Bool, now: Timestamp) -> Bool {
        verifiesAtStart && !tokens.isVerified || !flushes.isEmpty && tokens.token(at: now) == nil
    }

    /// The number of the fetch to start; nil if none is due. `isCheck`: whether no message requires the token. Such a
    /// fetch does not wait for the circuit, which concerns other endpoints: it has a backoff of its own.
    mutating func fetchToken(isCheck: Bool = false, now: Timestamp) -> Int? {
        guard let due = tokens.nextFetch, due <= now else { return nil }
        if !isCheck, let reopensAt = health.upstream.reopensAt, reopensAt > now { return nil }
        return tokens.fetchBegan()
    }

    mutating func tokenFetched(_ token: Token, now: Timestamp) -> [Action] {
        tokens.fetched(token, now: now)
        defer { isReady = true }
        return [.notify(.tokenFetched(isFirst: !isReady))]
    }

    mutating func tokenFailed(
        _ error: AttemptError, credentialsRefused: Bool, retryAfter: Duration?, holdsMessages: Bool = true,
        random: Double
    ) -> [Action] {
        let delay =
            credentialsRefused
            ? settings.retry.slowDelay(random: random)
            : settings.retry.delay(afterAttempt: tokens.failures + 1, retryAfter: retryAfter, random: random)
        let shown = AttemptError(
            error.errorClass, status: error.status, detail: "no token: \(error.detail)", at: error.at)
        let isNew = tokens.fetchFailed(
            shown, credentialsRefused: credentialsRefused, holdsMessages: holdsMessages, retryAt: error.at + delay)
        lastError = shown
        return [
            .notify(
                .tokenFailed(
                    TokenFailure(
                        error: error, isNew: isNew, credentialsRefused: credentialsRefused,
                        holdsMessages: holdsMessages, delay: delay)))
        ]
    }
}
