import PosternCore
import PosternStore

/// All decisions about delivering to one upstream: what may be sent, what a response means for its batch, for the
/// circuits and for the token, and who fails.
///
/// A plain value. It has no clock, no store and no transport: times and random numbers (0 ... 1) are arguments, and it
/// returns what the worker has to do. The states of a lane, and what ends each:
///
/// ```
///            claimed, request recorded                  delivered, rejected, expired
///   ready ─────────────────────────────▶ in flight ───────────────────────────────▶ next message, or closed
///     ▲                                      │
///     │  time, flush, resume, reload         ├─▶ backing off  an outage, doubt, or "not yet": until its own time
///     ├──────────────────────────────────────┤
///     │  time, endpoint or upstream works,   ├─▶ held         its endpoint waits: until it is probed
///     │  flush, resume, cancel of the cause  │
///     ├──────────────────────────────────────┤
///     │  a credential for its group          ├─▶ parked       its token was rejected
///     ├──────────────────────────────────────┤
///     │  time, a change that wakes the lane  └─▶ waiting      its plan said so
/// ```
///
/// A message is blamed only for itself. A clear rejection fails it at once. A doubtful answer (`Verdict.suspect`)
/// counts against a message only while it is sent alone, and only once something else was delivered after it; see
/// `DeliveryMachine+Suspect`. The count starts again with any other outcome.
struct DeliveryMachine: Equatable {
    struct Rules: Equatable {
        var retry = RetryPolicy()
        /// Doubtful answers in a row after which a message that was sent alone fails.
        var suspectTries = 5
        /// How long these last at least if nothing else could be sent in between.
        var suspectPeriod = Duration.seconds(1800)
    }

    /// What is queued besides the batch in question.
    enum Others: Equatable {
        case none
        /// Something, which has to wait for this batch.
        case blocked
        /// Something that can be sent later, whatever happens to this batch.
        case later
        /// Something that can be sent now.
        case ready
    }

    /// What the worker does next, in this order.
    enum Action {
        case record(Settlement)
        /// Lanes that wait for their endpoint are due now.
        case wakeHeldLanes
        case notify(Notice)
        case tell(UpstreamEvent, outcome: String)
    }

    /// What an operator reads in the log.
    enum Notice: Equatable {
        case isDown(AttemptError, until: Timestamp)
        case isBack
        case endpointIsDown(String, AttemptError, until: Timestamp)
        case endpointIsBack(String)
        case isHeld(HoldReason, AttemptError, endpoint: String)
        /// Something that the adapter read in a response; notified once.
        case said(String)
        case tokenFetched
        case tokenFailed(AttemptError, isNew: Bool, credentialsRefused: Bool, delay: Duration)
    }

    var rules: Rules
    var health: UpstreamHealth
    var tokens = TokenCache()
    /// Requests that wait for their response.
    private(set) var inFlight = 0
    /// Those, and batches whose result is not on disk yet.
    private(set) var unsettled = 0
    private(set) var suspectsInFlight = 0
    var lastSuccessAt: Timestamp?
    var lastError: AttemptError?
    /// The latest request that the upstream took; tells a poison message from an outage.
    var latestTaken = 0
    /// Requests sent in this run.
    private(set) var requests = 0
    private var lastSaid: String?
    /// Whether a token was fetched since the start, or since the credentials were last found bad.
    private var isReady = false

    init(rules: Rules = Rules(), health: UpstreamHealth) {
        self.rules = rules
        self.health = health
    }

    // MARK: Sending

    func maySend(now: Timestamp) -> Bool { health.upstream.permits(inFlight: unsettled, now: now) }

    /// A batch was claimed; its request will be recorded, then sent.
    mutating func began(_ flight: InFlightBatch, now: Timestamp) {
        unsettled += 1
        inFlight += 1
        requests += 1
        if flight.isLoneSuspect { suspectsInFlight += 1 }
        health.sent(to: flight.endpoint, now: now)
    }

    /// A batch is settled without a request.
    mutating func beganUnsent() { unsettled += 1 }

    /// The result of a batch is on disk, or will never be.
    mutating func ended() { unsettled -= 1 }

    /// The request is over, with or without a response.
    private mutating func landed(_ flight: InFlightBatch) {
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

    // MARK: Operators and clocks

    /// What waits for a time may go now: resume, flush, reload, or a clock that was set back.
    mutating func probeNow(now: Timestamp) -> [Action] {
        tokens.fetchNow()
        health.probeNow(now: now)
        return [.wakeHeldLanes]
    }

    /// A queued message was removed.
    mutating func removed(_ message: MessageID, now: Timestamp) -> [Action] {
        guard health.causingMessages.contains(message) else { return [] }
        health.causeIsGone(message, now: now)
        return [.wakeHeldLanes]
    }

    // MARK: Tokens

    /// The number of the fetch to start; nil if none is due.
    mutating func fetchToken(now: Timestamp) -> Int? {
        guard let due = tokens.nextFetch, due <= now else { return nil }
        if let reopensAt = health.upstream.reopensAt, reopensAt > now { return nil }
        return tokens.fetchBegan()
    }

    mutating func tokenFetched(_ token: Token, now: Timestamp) -> [Action] {
        tokens.fetched(token, now: now)
        defer { isReady = true }
        let fetched: [Action] = [.notify(.tokenFetched), .tell(.tokenFetched, outcome: "fetched")]
        return isReady ? fetched : fetched + [.tell(.ready, outcome: "")]
    }

    mutating func tokenFailed(
        _ error: AttemptError, credentialsRefused: Bool, retryAfter: Duration?, random: Double
    ) -> [Action] {
        let delay =
            credentialsRefused
            ? rules.retry.slowDelay(random: random)
            : rules.retry.delay(afterAttempt: tokens.failures + 1, retryAfter: retryAfter, random: random)
        let isNew = tokens.failures == 0 || credentialsRefused != tokens.credentialsRefused
        tokens.fetchFailed(credentialsRefused: credentialsRefused, retryAt: error.at + delay)
        lastError = AttemptError(
            error.errorClass, status: error.status, detail: "no token: \(error.detail)", at: error.at)
        return [
            .notify(
                .tokenFailed(error, isNew: isNew, credentialsRefused: credentialsRefused, delay: delay)),
            .tell(.tokenFetched, outcome: credentialsRefused ? "refused" : "failed"),
        ]
    }
}

// MARK: - Results

extension DeliveryMachine {
    /// What one result leads to, while it is being worked out.
    struct Ruling {
        let flight: InFlightBatch
        let result: AttemptResult
        let random: Double
        var settlement: Settlement
        var notices: [Notice] = []
        var wakesHeldLanes = false

        var batch: Batch { flight.batch }
        var now: Timestamp { result.at }
        var history: BatchHistory { flight.claim.history }
    }

    /// The response of a request, or its failure.
    mutating func answered(
        _ flight: InFlightBatch, _ result: AttemptResult, others: Others, random: Double
    ) -> [Action] {
        landed(flight)
        var ruling = Ruling(
            flight: flight, result: result, random: random,
            settlement: Settlement(
                batch: flight.batch.id, outcome: .delivered, status: result.error.status, endedAt: result.at))
        ruling.settlement.isAmbiguous = result.isAmbiguous
        if let said = result.judgement.notice, said != lastSaid {
            lastSaid = said
            ruling.notices.append(.said(said))
        }
        apply(&ruling, others: others)
        return [.record(ruling.settlement)] + (ruling.wakesHeldLanes ? [.wakeHeldLanes] : [])
            + ruling.notices.map(Action.notify)
    }

    private mutating func apply(_ ruling: inout Ruling, others: Others) {
        let (batch, result) = (ruling.batch, ruling.result)
        guard !result.wasCancelled else { return cancel(&ruling) }
        switch result.judgement.verdict {
        case .delivered(let result):
            worked(&ruling, hasTaken: true)
            ruling.settlement.delivered = batch.messages
            ruling.settlement.result = result
            return
        case .proceed(let progress):
            worked(&ruling, hasTaken: true)
            ruling.settlement.outcome = .proceed
            ruling.settlement.progressed = batch.messages.prefix(1).map { ($0.id, progress) }
            ruling.settlement.again = [.init(batch.messages, dueAt: ruling.now)]
            return
        case .each(let items): sort(items, &ruling)
        case .retry(let after): retry(&ruling, after: after)
        case .backOff: backOff(&ruling)
        case .suspect(let after, let rule): suspect(&ruling, after: after, rule, others)
        case .refreshToken: refuseToken(&ruling)
        case .holdUpstream(let reason, _): hold(&ruling, for: reason)
        case .park: park(&ruling)
        case .split:
            worked(&ruling, hasTaken: false)
            if batch.messages.count > 1 { halve(&ruling, ruling.history) } else { ruling.reject(batch.messages) }
        case .reject:
            worked(&ruling, hasTaken: false)
            ruling.reject(batch.messages)
        }
        ruling.settlement.detail = result.error.detail
    }

    /// A stop of the gateway is not a failure of the upstream.
    private mutating func cancel(_ ruling: inout Ruling) {
        ruling.settlement.outcome = .cancelled
        ruling.settlement.detail = ruling.result.error.detail
        ruling.settlement.isGivenBack = true
        if ruling.result.isAmbiguous { ruling.settlement.wereTried = ruling.batch.messages.map(\.id) }
        health.abandoned(at: ruling.flight.endpoint, now: ruling.now)
    }

    // MARK: Health

    /// The endpoint answered as one that works, including by rejecting a message.
    mutating func worked(_ ruling: inout Ruling, hasTaken: Bool) {
        let flight = ruling.flight
        switch health.succeeded(at: flight.endpoint, now: ruling.now) {
        case .recovered:
            ruling.notices.append(.isBack)
            ruling.wakesHeldLanes = true
        case .endpointRecovered:
            ruling.notices.append(.endpointIsBack(flight.endpoint))
            ruling.wakesHeldLanes = true
        case .none, .wentDown, .endpointWentDown: break
        }
        tokens.accepted(under: flight.generation, at: flight.endpoint)
        guard hasTaken else { return }
        latestTaken = max(latestTaken, flight.number)
        lastSuccessAt = ruling.now
    }

    /// `atOnce` does not wait for more failures before the endpoint is left alone.
    mutating func failed(_ ruling: inout Ruling, retryAt: Timestamp, atOnce: Bool, hold: HoldReason? = nil) {
        let (endpoint, error) = (ruling.flight.endpoint, ruling.result.error)
        lastError = error
        let change =
            ruling.result.isConnectionFailure
            ? health.hostFailed(at: endpoint, retryAt: retryAt, now: ruling.now)
            : health.failed(
                at: endpoint, by: ruling.batch.messages[0].id, retryAt: retryAt, atOnce: atOnce, hold: hold,
                now: ruling.now)
        switch change {
        case .wentDown: ruling.notices.append(.isDown(error, until: retryAt))
        case .endpointWentDown: ruling.notices.append(.endpointIsDown(endpoint, error, until: retryAt))
        case .none, .recovered, .endpointRecovered: break
        }
    }

    /// Grows with the batch's own failures, and with those of an outage beyond the ones that made it one.
    func delay(_ ruling: Ruling, after: Duration? = nil) -> Duration {
        let attempt = max(ruling.history.failures, health.upstream.failures - Circuit.defaultThreshold) + 1
        return rules.retry.delay(afterAttempt: attempt, retryAfter: after, random: ruling.random)
    }

    // MARK: Verdicts

    /// All of them again, later. A `Retry-After` concerns the endpoint and holds it at once.
    private mutating func retry(_ ruling: inout Ruling, after: Duration?) {
        let retryAt = ruling.now + delay(ruling, after: after)
        failed(&ruling, retryAt: retryAt, atOnce: after != nil)
        ruling.wait(as: .retry, until: retryAt, ruling.history.cleared)
    }

    /// The upstream works: only this lane waits.
    private mutating func backOff(_ ruling: inout Ruling) {
        worked(&ruling, hasTaken: false)
        let attempt = ruling.history.failures + 1
        let retryAt =
            ruling.now + rules.retry.delay(afterAttempt: attempt, retryAfter: nil, random: ruling.random)
        ruling.wait(as: .backedOff, until: retryAt, ruling.history.cleared, wasTried: false)
    }

    private mutating func hold(_ ruling: inout Ruling, for reason: HoldReason) {
        let retryAt = ruling.now + rules.retry.slowDelay(random: ruling.random)
        let isNew = health.endpoints[ruling.flight.endpoint]?.hold != reason && health.hold != reason
        failed(&ruling, retryAt: retryAt, atOnce: true, hold: reason)
        if isNew {
            ruling.notices.append(.isHeld(reason, ruling.result.error, endpoint: ruling.flight.endpoint))
        }
        ruling.settlement.outcome = .held
        ruling.settlement.postponed = .init(until: retryAt, for: reason == .credentials ? .credentials : .circuit)
    }

    private mutating func refuseToken(_ ruling: inout Ruling) {
        let endpoint = ruling.flight.endpoint
        let meaning = tokens.refused(under: ruling.flight.generation, at: endpoint)
        if meaning == .sendAgain {
            lastError = ruling.result.error
            health.abandoned(at: endpoint, now: ruling.now)
            ruling.settlement.isGivenBack = true
        } else {
            if meaning == .credentialsAreBad { isReady = false }
            hold(&ruling, for: .credentials)
        }
        ruling.settlement.outcome = .unauthorized
    }

    /// The lane's group waits for a new credential. Lanes without a name cannot be parked: they are tried again, rarely.
    private mutating func park(_ ruling: inout Ruling) {
        worked(&ruling, hasTaken: false)
        if case .named = ruling.batch.messages[0].lane {
            ruling.settlement.parked = ruling.batch.messages
            ruling.settlement.isGivenBack = true
        } else {
            let retryAt = ruling.now + rules.retry.slowDelay(random: ruling.random)
            ruling.wait(as: .parked, until: retryAt, ruling.history.cleared, isFailure: false)
        }
        ruling.settlement.outcome = .parked
    }

    private mutating func sort(_ items: [ItemVerdict], _ ruling: inout Ruling) {
        var again: [Message] = []
        for (index, message) in ruling.batch.messages.enumerated() {
            // A response that leaves some out says nothing about them.
            switch index < items.count ? items[index] : .again {
            case .delivered: ruling.settlement.delivered.append(message)
            case .again: again.append(message)
            case .reject(let reason): ruling.reject([message], because: reason)
            }
        }
        guard again.count < ruling.batch.messages.count else { return retry(&ruling, after: nil) }
        worked(&ruling, hasTaken: !ruling.settlement.delivered.isEmpty)
        ruling.settlement.outcome = .sorted
        if !again.isEmpty { ruling.settlement.again = [.init(again, dueAt: ruling.now)] }
    }

    /// Both halves at once, the older one first.
    func halve(_ ruling: inout Ruling, _ history: BatchHistory) {
        ruling.settlement.outcome = .split
        let messages = ruling.batch.messages
        let middle = (messages.count + 1) / 2
        ruling.settlement.again = [messages[..<middle], messages[middle...]].map {
            .init(Array($0), dueAt: ruling.now, history: history)
        }
    }
}

extension DeliveryMachine.Ruling {
    /// The messages fail. `wasTried`: the last attempt may have taken effect all the same.
    mutating func reject(
        _ messages: [Message], because reason: String? = nil, wasTried: Bool = false, attempts: Int = 1
    ) {
        settlement.outcome = .rejected
        let error = AttemptError(.refused, status: result.error.status, detail: reason ?? result.error.detail, at: now)
        settlement.ended += messages.map {
            .init(
                $0, as: .failed, error: error, result: result.judgement.refusal, wasTried: wasTried,
                attempts: attempts)
        }
    }

    /// All messages wait until `retryAt`, then go out together.
    mutating func wait(
        as outcome: Settlement.Outcome, until retryAt: Timestamp, _ history: BatchHistory, counts: Bool = false,
        wasTried: Bool = true, isFailure: Bool = true
    ) {
        var history = history
        if isFailure { history.failures += 1 }
        settlement.outcome = outcome
        settlement.waiting = .init(
            batch.messages, nextAttemptAt: retryAt, counts: counts, error: result.error,
            wasTried: wasTried && !result.judgement.tookNothing)
        settlement.again = [.init(batch.messages, dueAt: retryAt, history: history)]
    }
}
