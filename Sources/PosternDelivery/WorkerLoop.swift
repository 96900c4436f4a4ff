import Logging
import PosternCompression
import PosternCore
import PosternMetrics
import PosternStore
import Synchronization

/// The worker's thread from the inside: a turn takes what has happened, then sends what may be sent, then says when
/// it wants to turn again.
final class WorkerLoop: @unchecked Sendable {
    // @unchecked: everything below `MARK: State` belongs to the thread that turns the loop.
    let queue: UpstreamQueue
    let outbox: Outbox
    let transport: any Transport
    let time: any TimeSource
    let metrics: Metrics
    let logger: Logger
    let random: @Sendable () -> Double
    private let inbox: Inbox<WorkerEvent>
    private let shared: WorkerShared

    /// The loop turns at least this often, so that one that hangs can be told from one that is idle.
    static let heartbeat = Duration.seconds(5)

    // MARK: State
    var settings: DeliverySettings
    var circuit: Circuit
    var hold: HoldReason?
    var tokens = TokenKeeper()
    var lastSuccessAt: Timestamp?
    var lastError: AttemptError?
    /// The last thing it told besides its answers; said once.
    var lastNotice: String?
    /// Requests the upstream has taken since the start; tells a poisoned message from an outage.
    var taken = 0
    private var isPaused: Bool
    private var isStopping = false
    private var isEnding = false
    private var isFlushing = false
    private var underWay = 0
    private var savedSuccessAt: Timestamp?
    private var circuitAsSaved = CircuitRecord()

    var upstream: any Upstream { queue.upstream }

    init(
        queue: UpstreamQueue, settings: DeliverySettings, parts: UpstreamWorker.Parts, inbox: Inbox<WorkerEvent>,
        shared: WorkerShared
    ) throws(StoreError) {
        self.queue = queue
        self.settings = settings
        self.inbox = inbox
        self.shared = shared
        outbox = parts.outbox
        transport = parts.transport
        time = parts.time
        metrics = parts.metrics
        logger = parts.logger
        random = parts.random
        let (record, paused) = try outbox.circuit(of: queue.number)
        isPaused = paused
        hold = record.hold.flatMap(HoldReason.init(rawValue:))
        lastSuccessAt = record.lastSuccessAtMs.map(Timestamp.init(milliseconds:))
        lastError = record.lastError.flatMap(AttemptError.init)
        circuit = Circuit(
            most: settings.maxInFlight, failures: record.failures,
            reopensAt: record.reopensAtMs.map(Timestamp.init(milliseconds:)))
        circuitAsSaved = record
        show()
    }

    /// Has the queue wake this loop.
    func listen() {
        shared.limits.withLock { $0 = limits }
        outbox.onArrival(in: queue, limits: limits, wait: settings.batchMaxWait) { [inbox] in inbox.nudge() }
    }

    var limits: BatchLimits { upstream.limits(settings.limits) }

    func run() {
        var deadline = time.instant
        while !isEnding { deadline = turn(inbox.takeAll(waitingUntil: deadline)) }
    }

    func takeEvents() -> [WorkerEvent] { inbox.takeAll() }
    func takeEvents(waitingUntil deadline: MonotonicInstant) -> [WorkerEvent] {
        inbox.takeAll(waitingUntil: deadline)
    }

    /// One turn; answers when the next one is due, events aside.
    func turn(_ events: [WorkerEvent]) -> MonotonicInstant {
        for event in events { take(event) }
        shared.turned(at: time.instant)
        if !isPaused, !isStopping {
            renewToken()
            sendWhatMayBeSent()
        }
        show()
        return nextTurn()
    }

    private func take(_ event: WorkerEvent) {
        switch event {
        case .answered(let flight, let result): answered(flight, result)
        case .settled(let flight, let result): settled(flight, result)
        case .expired: break
        case .tokenAnswered(let result, let startedAt): tokenAnswered(result, startedAt: startedAt)
        case .pause: setPaused(true)
        case .resume:
            setPaused(false)
            circuit.probeNow(now: time.now)
        case .flush:
            isFlushing = true
            queue.hurry(to: time.now)
            circuit.probeNow(now: time.now)
        case .adopt(let settings): adopt(settings)
        case .stop: isStopping = true
        case .end: isEnding = true
        }
    }

    private func setPaused(_ isPaused: Bool) {
        guard self.isPaused != isPaused else { return }
        self.isPaused = isPaused
        outbox.setPaused(isPaused, of: queue.number) { _ in }
        logger.notice(isPaused ? "upstream paused" : "upstream resumed", metadata: ["upstream": "\(queue.name)"])
    }

    private func adopt(_ settings: DeliverySettings) {
        self.settings = settings
        circuit.most = settings.maxInFlight
        if hold != nil {
            // Whoever changed the configuration may have mended it.
            tokens.reset()
            circuit.probeNow(now: time.now)
        }
        listen()
    }

    // MARK: Sending

    private func sendWhatMayBeSent() {
        var looks = 0
        while circuit.permits(inFlight: underWay, now: time.now), hasToken {
            let now = time.now
            let wait = isFlushing ? .zero : settings.batchMaxWait
            guard queue.ripeness(limits: limits, wait: wait, now: now, instant: time.instant) == .now else { break }
            looks += 1
            // A look that finds nothing changes what is known; two in a row mean that it does not.
            guard looks <= 2 * settings.maxInFlight + 2, claimAndSend(now: now) else { break }
        }
        if isFlushing, case .nothing = queue.ripeness(limits: limits, wait: .zero, now: time.now, instant: time.instant) {
            isFlushing = false
        }
    }

    private var hasToken: Bool { upstream.tokenSource == nil || tokens.token != nil }

    /// False when there was nothing to claim.
    private func claimAndSend(now: Timestamp) -> Bool {
        let claim: Claim
        do {
            let oldest = settings.expireAfter > .zero ? now - settings.expireAfter : nil
            claim = try queue.claim(limits, now: now, oldest: oldest)
        } catch {
            logger.error("cannot read the queue", metadata: ["upstream": "\(queue.name)", "error": "\(error)"])
            return false
        }
        if !claim.expired.isEmpty { expire(claim.expired) }
        guard !claim.messages.isEmpty else { return !claim.expired.isEmpty }
        plan(claim, now: now)
        return true
    }

    private func expire(_ messages: [Message]) {
        outbox.expire(messages, of: queue) { [inbox] in inbox.put(.expired) }
    }

    private func plan(_ claim: Claim, now: Timestamp) {
        let plan: Plan
        do {
            plan = try outbox.withState(of: queue.number) { state in
                upstream.plan(
                    for: claim.messages, in: PlanContext(now: now, token: tokens.token, state: state))
            }
        } catch {
            logger.error("cannot read the state", metadata: ["upstream": "\(queue.name)", "error": "\(error)"])
            return queue.giveBack(claim, now: now)
        }
        switch plan {
        case .send(let request, let count): send(request, carrying: count, of: claim, now: now)
        case .settle(let count, let state, let reason, let changes):
            settleUnsent(count, of: claim, as: state, reason: reason, changes: changes, now: now)
        case .wait(_, let until):
            queue.postpone(claim, until: until)
        }
    }

    private func send(_ request: UpstreamRequest, carrying count: Int, of claim: Claim, now: Timestamp) {
        let carried = Array(claim.messages.prefix(count))
        let rest = Array(claim.messages.dropFirst(count))
        if !rest.isEmpty { queue.sendAgain(rest, from: now, history: claim.history) }
        let batch = Batch(id: outbox.nextBatch(), messages: carried)
        let flight = Flight(
            batch: batch, claim: claim.narrowed(to: carried),
            startedAt: time.instant, sentAt: now, generation: tokens.generation)
        depart(flight)
        circuit.sent(now: now)
        metrics.batchMessages("\(queue.name)").observe(Double(carried.count))
        transport.submit(compressed(request), options: settings.transfer) { [inbox] result in
            inbox.put(.answered(flight, result))
        }
    }

    private func depart(_ flight: Flight) {
        count(+1)
        let departure = Departure(
            batch: flight.batch.id, startedAt: flight.sentAt, ids: flight.batch.messages.map(\.id).sorted())
        // Nobody waits for this: should the run end before the next commit, only a count is lost.
        outbox.writer.change { [queue] transaction in try transaction.depart(departure, of: queue) }
    }

    private func compressed(_ request: UpstreamRequest) -> UpstreamRequest {
        guard request.gzip else { return request }
        var request = request
        request.body = Gzip.compress(request.body)
        request.headers.append(("Content-Encoding", "gzip"))
        return request
    }

    private func settleUnsent(
        _ count: Int, of claim: Claim, as state: MessageState, reason: String, changes: [StateChange], now: Timestamp
    ) {
        let batch = Batch(id: outbox.nextBatch(), messages: Array(claim.messages.prefix(count)))
        var flight = Flight(
            batch: batch, claim: claim, startedAt: time.instant, sentAt: now, generation: tokens.generation)
        var settlement = Settlement(batch: batch.id, outcome: "unsent", detail: reason, endedAt: now)
        settlement.changes = changes
        if state == .delivered {
            settlement.delivered = batch.messages
        } else {
            let error = AttemptError(.refused, detail: reason, at: now)
            settlement.ended = batch.messages.map { .init($0, as: state, error: error) }
        }
        flight.after.release = batch.messages
        let rest = Array(claim.messages.dropFirst(count))
        if !rest.isEmpty { flight.after.again = [(rest, now, claim.history)] }
        depart(flight)
        settle(flight, settlement)
    }

    private func count(_ change: Int) {
        underWay += change
        shared.unsettled.store(underWay, ordering: .releasing)
        if underWay == 0 { shared.idle.nudge() }
    }

    // MARK: Answers

    private func answered(_ flight: Flight, _ result: TransferResult) {
        let duration = time.instant - flight.startedAt
        metrics.attemptDuration("\(queue.name)").observe(duration.inSeconds)
        let outcome = Judgement.Outcome(of: result, to: flight, on: upstream, state: currentState, now: time.now)
        let settlement = act(on: outcome, for: flight)
        metrics.attempts("\(queue.name)", settlement.outcome).add()
        if settlement.isAmbiguous { metrics.ambiguousSends("\(queue.name)").add() }
        log(settlement, of: flight, took: duration)
    }

    private var currentState: any UpstreamState { LiveState(outbox: outbox, number: queue.number) }

    /// Brings a settlement to disk; what it means for the queue follows after that.
    func settle(_ flight: Flight, _ settlement: Settlement) {
        var flight = flight
        var settlement = settlement
        let record = circuitRecord
        if record != circuitAsSaved {
            settlement.circuit = record
            circuitAsSaved = record
        }
        flight.settlement = settlement
        submit(flight, settlement)
    }

    private func submit(_ flight: Flight, _ settlement: Settlement) {
        outbox.writer.change { [queue] transaction in
            try transaction.settle(settlement, of: queue)
        } completion: { [inbox, flight] result in
            inbox.put(.settled(flight, result))
        }
    }

    private func settled(_ flight: Flight, _ result: Result<Void, StoreError>) {
        switch result {
        case .failure(.closed), .success: break
        case .failure(let error):
            // What the upstream took must not be forgotten: keep trying as long as there is a store.
            logger.error(
                "cannot record an outcome; trying again",
                metadata: ["upstream": "\(queue.name)", "batch.id": "\(flight.batch.id)", "error": "\(error)"])
            if let settlement = flight.settlement { unrecorded.append((flight, settlement)) }
            return
        }
        count(-1)
        queue.release(flight.after.release)
        for group in flight.after.again {
            queue.sendAgain(group.messages, from: group.dueAt, history: group.history)
        }
        if flight.after.giveBack { queue.giveBack(flight.claim, now: time.now) }
    }

    private var unrecorded: [(Flight, Settlement)] = [] {
        didSet { if unrecorded.count > oldValue.count { retryRecordingAt = time.instant + .milliseconds(500) } }
    }
    private var retryRecordingAt: MonotonicInstant?

    private func recordAgain() {
        guard let due = retryRecordingAt, due <= time.instant else { return }
        retryRecordingAt = nil
        let waiting = unrecorded
        unrecorded = []
        for (flight, settlement) in waiting { submit(flight, settlement) }
    }

    // MARK: Tokens

    private func renewToken() {
        guard let source = upstream.tokenSource, tokens.wantsFetch(now: time.now) else { return }
        tokens.fetchBegan()
        let startedAt = time.instant
        transport.submit(source.tokenRequest, options: settings.transfer) { [inbox] result in
            inbox.put(.tokenAnswered(result, startedAt: startedAt))
        }
    }

    private func tokenAnswered(_ result: TransferResult, startedAt: MonotonicInstant) {
        guard let source = upstream.tokenSource else { return }
        do throws(TokenRefusal) {
            switch result {
            case .success(let response):
                tokens.fetched(try source.token(from: response, now: time.now))
                metrics.tokenRefreshes("\(queue.name)", "fetched").add()
                logger.info("token fetched", metadata: ["upstream": "\(queue.name)"])
            case .failure(let failure):
                throw TokenRefusal(credentialsRefused: false, detail: failure.detail)
            }
        } catch {
            tokens.fetchFailed(
                credentialsRefused: error.credentialsRefused, retry: settings.retry, now: time.now, random: random())
            metrics.tokenRefreshes("\(queue.name)", error.credentialsRefused ? "refused" : "failed").add()
            lastError = AttemptError(
                error.credentialsRefused ? .unauthorized : .unreachable, detail: "no token: \(error.detail)",
                at: time.now)
            logger.warning(
                "no token; messages wait", metadata: ["upstream": "\(queue.name)", "detail": "\(error.detail)"])
        }
    }

    // MARK: Waiting

    private func nextTurn() -> MonotonicInstant {
        recordAgain()
        let instant = time.instant
        let now = time.now
        var next = instant + Self.heartbeat
        func consider(_ moment: Timestamp?) {
            // A millisecond on top, since wall-clock time is cut to milliseconds.
            if let moment { next = min(next, instant + max(.zero, moment - now) + .milliseconds(1)) }
        }
        if let retryRecordingAt { next = min(next, retryRecordingAt) }
        guard !isPaused, !isStopping else { return next }
        if upstream.tokenSource != nil { consider(tokens.nextFetch()) }
        if let reopensAt = circuit.reopensAt, underWay == 0 { consider(reopensAt) }
        guard hasToken, circuit.permits(inFlight: underWay, now: now) else { return next }
        let wait = isFlushing ? .zero : settings.batchMaxWait
        switch queue.ripeness(limits: limits, wait: wait, now: now, instant: instant) {
        // It was ripe a moment ago too and gave nothing, so ask again soon, but do not spin.
        case .now: next = min(next, instant + .milliseconds(5))
        case .collecting(let until): next = min(next, until)
        case .due(let at): consider(at)
        case .nothing: break
        }
        return next
    }

    // MARK: Showing

    private var circuitRecord: CircuitRecord {
        var record = CircuitRecord()
        record.failures = circuit.failures
        record.reopensAtMs = circuit.reopensAt?.milliseconds
        // A probe that a crash cuts short leaves the circuit open.
        if circuit.state == .halfOpen { record.reopensAtMs = circuitAsSaved.reopensAtMs }
        record.hold = hold?.rawValue
        record.lastError = lastError.map(ErrorRecord.init)
        // The time of the last success alone is not worth a write each time.
        if let lastSuccessAt, savedSuccessAt.map({ lastSuccessAt - $0 > .seconds(10) }) ?? true {
            savedSuccessAt = lastSuccessAt
        }
        record.lastSuccessAtMs = savedSuccessAt?.milliseconds
        return record
    }

    private func show() {
        var snapshot = UpstreamSnapshot()
        snapshot.isPaused = isPaused
        snapshot.inFlight = underWay
        snapshot.circuit = circuit.state
        snapshot.failures = circuit.failures
        snapshot.hold = hold
        snapshot.lastSuccessAt = lastSuccessAt
        snapshot.lastError = lastError
        var credentialsRefused = false
        if upstream.tokenSource != nil {
            snapshot.token = .init(isValid: tokens.token != nil, expiresAt: tokens.token?.expiresAt)
            if case .failed(_, true) = tokens.state { credentialsRefused = true }
        }
        snapshot.health =
            if isPaused { .paused } else if hold == .credentials || credentialsRefused { .unauthorized }
            else if circuit.state != .closed { .down } else if circuit.failures > 0 { .degraded } else { .up }
        shared.snapshot.withLock { $0 = snapshot }
    }

    private func log(_ settlement: Settlement, of flight: Flight, took duration: Duration) {
        logger.info(
            "batch attempted",
            metadata: [
                "upstream": "\(queue.name)", "batch.id": "\(flight.batch.id)",
                "batch.messages": "\(flight.batch.messages.count)", "verdict": "\(settlement.outcome)",
                "http.status": "\(settlement.status.map(String.init) ?? "none")",
                "durationMs": "\(duration.wholeMilliseconds)",
            ])
    }
}

/// The state of an upstream as it is on disk at the moment of asking.
private struct LiveState: UpstreamState {
    let outbox: Outbox
    let number: UpstreamNumber
    func value(of key: String) -> [UInt8]? {
        (try? outbox.withState(of: number) { $0.value(of: key) }) ?? nil
    }
}

extension AttemptError {
    init?(_ record: ErrorRecord) {
        guard let errorClass = Class(rawValue: record.errorClass) else { return nil }
        self.init(
            errorClass, status: record.status, detail: record.detail, at: Timestamp(milliseconds: record.atMs))
    }
}
