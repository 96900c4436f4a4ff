import Logging
import PosternCore
import PosternMetrics
import PosternStore
import PosternThreads
import PosternUpstream
import Synchronization

/// The part of the worker that runs on its thread: a turn processes events, sends what may be sent, and returns when
/// the next turn is due.
final class WorkerLoop: Loop, @unchecked Sendable {
    // @unchecked: everything below `MARK: State` belongs to the thread that turns the loop.
    var name: String { "to-\(queue.name)" }
    let queue: UpstreamQueue
    let outbox: Outbox
    let client: UpstreamClient
    let time: any TimeSource
    let metrics: Metrics
    private let waits: Histogram
    let random: @Sendable () -> Double
    let inbox: Inbox<WorkerEvent>
    let status: WorkerStatus

    /// The loop turns at least this often, so that a stalled loop can be distinguished from an idle one.
    static let heartbeat = Duration.seconds(5)
    /// A smaller change of the wall clock is ignored: clocks are adjusted by milliseconds all the time.
    static let clockTolerance = Duration.seconds(1)

    /// How long a hold of an earlier run lasts after its last failure.
    private static let holdAfterStart = Duration.seconds(15)

    // MARK: State
    /// Logs at the level of the upstream, if it has one, or else of the gateway.
    private(set) var logger: Logger
    private let gatewayLogger: Logger
    var machine: DeliveryMachine
    var upstream: AnyUpstream
    /// Both clocks at the last turn, or the latest time that the previous run recorded.
    private var lastLook: (now: Timestamp, instant: MonotonicInstant)?
    /// The completions of the machine's flushes, in their order.
    var flushCompletions: [@Sendable (FlushReport?) -> Void] = []
    var saved: CircuitRecord
    /// The backoff of claims and of attempt records after a failure of the store.
    var claimRetry = StoreRetry()
    /// Responses, results, and pauses that could not be stored, and when they are stored again.
    var unfinished: [() -> Void] = []
    var recordRetry = StoreRetry()
    /// The number of messages that had left the queue other than by delivery when the causes of holds were last
    /// checked.
    private var removedBefore = 0
    private var isEnding = false
    /// When the queue was last asked for the rest of a flush.
    var flushCheckedAt: MonotonicInstant?
    /// Whether the last claim found nothing although something seemed to be ready.
    var lastClaimWasEmpty = false

    init(
        queue: UpstreamQueue, client: UpstreamClient, settings: DeliverySettings,
        dependencies: UpstreamWorker.Dependencies, inbox: Inbox<WorkerEvent>, status: WorkerStatus
    ) throws(StoreError) {
        self.queue = queue
        self.client = client
        self.inbox = inbox
        self.status = status
        upstream = queue.upstream
        outbox = dependencies.outbox
        time = dependencies.time
        metrics = dependencies.metrics
        waits = metrics.deliveryWait(queue.name.description)
        gatewayLogger = dependencies.logger
        logger = gatewayLogger.at(settings.logLevel)
        random = dependencies.random
        // What is stored before the summary is read is in it.
        queue.onStoredRequests { [inbox] pause in
            inbox.put(pause.map { WorkerEvent.pause($0) } ?? .resume)
        } flush: { [inbox] in
            inbox.put(.flush { _ in })
        }
        let summary = try outbox.summary(of: queue.number)
        saved = summary?.circuit ?? CircuitRecord()
        var reopensAt = saved.reopensAtMs.map(Timestamp.init(milliseconds:))
        // What the start changed may have ended a hold. The last failure keeps a loop of starts from probing often.
        if saved.hold != nil, let known = reopensAt, let failedAt = saved.lastError?.at {
            reopensAt = min(known, failedAt + Self.holdAfterStart)
        }
        let circuit = Circuit(most: settings.maxInFlight, failures: saved.failures, reopensAt: reopensAt)
        machine = DeliveryMachine(
            settings: settings,
            health: UpstreamHealth(upstream: circuit, hold: saved.hold.flatMap(Verdict.HoldReason.init(rawValue:))))
        machine.guardHoldsAll = upstream.traits.laneRule == .acrossLanes && !upstream.traits.sendsKindsApart
        let guarded = (saved.endpointHolds ?? [:]).filter { $0.value == WaitReason.guard.rawValue }
        machine.rejectionGuard.restore(guarded.keys.sorted(), now: time.now)
        machine.rejectionGuard.allowedThrough = saved.rejectionsAllowedThrough.map(MessageID.init(rawValue:))
        machine.pause = summary?.pause
        machine.flushedThrough = summary?.flushedThrough ?? MessageID(rawValue: 0)
        machine.lastSuccessAt = saved.lastSuccessAtMs.map(Timestamp.init(milliseconds:))
        machine.lastError = saved.lastError
        // The upstream may have been left out of the configuration since it was sent to.
        let recorded = try [outbox.latestAttempt(), machine.lastSuccessAt, machine.lastError?.at].compactMap(\.self)
        lastLook = recorded.max().map { [time] in ($0, time.instant) }
        for step in upstream.traits.steps {
            for outcome in StepResult.Outcome.allCases {
                _ = metrics.steps(queue.name.description, step, outcome.rawValue)
            }
        }
        machine.kindLimits = upstream.kindLimits
        listen()
        show()
    }

    /// Makes the queue wake this loop.
    private func listen() {
        queue.onArrival(limits: limits, wait: settings.batchMaxWait, expireAfter: settings.expireAfter) {
            [inbox] in inbox.nudge()
        }
    }

    var settings: DeliverySettings { machine.settings }
    var limits: BatchLimits { upstream.limits(settings.limits) }

    func turn(at now: MonotonicInstant) -> MonotonicInstant? {
        let next = turn(inbox.takeAll())
        return isEnding ? nil : next
    }

    func wait(until deadline: MonotonicInstant) -> Bool { inbox.wait(until: deadline) }

    /// One turn. Returns when the next one is due unless an event arrives before.
    func turn(_ events: [WorkerEvent]) -> MonotonicInstant {
        status.turned(at: time.instant)
        watchTheClock()
        takeUnfinished()
        checkCauses()
        for event in events { take(event) }
        lastClaimWasEmpty = false
        if isSending, !claimRetry.isWaiting(at: time.instant), mayStillSend("nothing is sent") {
            fetchToken()
            sendWhatMayBeSent()
        }
        if isSending, !hasMessages {
            let keepsToken = upstream.verifiesAtStart || !machine.flushes.isEmpty
            perform(machine.becameEmpty(keepsToken: keepsToken, now: time.now))
        }
        endFlushes()
        if isEnding { abandonFlushes() }
        show()
        saveHealth()
        return nextTurn()
    }

    private func take(_ event: WorkerEvent) {
        switch event {
        case .opened(let flight, let result): opened(flight, result)
        case .answered(let flight, let result): answered(flight, result)
        case .recorded(let flight, let settlement, let result): recorded(flight, settlement, result)
        case .tokenAnswered(let result, let fetch): tokenAnswered(result, fetch: fetch)
        case .pause(let order): perform(machine.pause(order))
        case .resume:
            let latest = MessageID(rawValue: Int64(outbox.ledger(of: queue.number).lastID))
            perform(machine.resume(through: latest, now: time.now))
        case .pauseStored(let result): pauseStored(result)
        case .waitNotStored(let error): waitNotStored(error)
        case .flush(let completion): flush(completion)
        case .flushBegan: machine.flushBegan()
        case .apply(let settings, let upstream): apply(settings, upstream)
        case .noticed(let notice): perform(machine.noticed(notice).map(DeliveryMachine.Action.notify))
        case .stop: stop()
        case .end:
            stop()
            isEnding = true
        }
    }

    private func takeUnfinished() {
        guard !unfinished.isEmpty, !recordRetry.isWaiting(at: time.instant) else { return }
        let work = unfinished
        unfinished = []
        for piece in work { piece() }
    }

    /// Counts how long delivered messages have waited.
    func observeWaits(of settlement: Settlement) {
        let (messages, end) = (settlement.delivered, settlement.endedAt.milliseconds)
        var (first, next) = (0, 0)
        // Neighbors in a batch were mostly accepted together.
        while first < messages.count {
            let acceptedAt = messages[first].acceptedAt
            while next < messages.count, messages[next].acceptedAt == acceptedAt { next += 1 }
            waits.observe(Double(max(0, end - acceptedAt.milliseconds)) / 1000, times: next - first)
            first = next
        }
    }

    /// Logs the first failure of a series. Returns the delay before the next try.
    func storeFailed(
        _ retry: inout StoreRetry, _ message: Logger.Message, _ error: any Error, batch: BatchID? = nil
    ) -> Duration {
        let now = time.instant
        if retry.failed(at: now) {
            var metadata: Logger.Metadata = ["upstream": "\(queue.name)", "error": "\(error)"]
            metadata["batch.id"] = batch.map { "\($0)" }
            logger.error(message, metadata: metadata)
        }
        return (retry.at ?? now) - now
    }

    /// Logs that the store works again, if it had failed.
    func storeSucceeded(_ retry: inout StoreRetry) {
        guard retry.succeeded() else { return }
        logger.notice("store recovered; deliveries continue", metadata: ["upstream": "\(queue.name)"])
    }

    // MARK: External changes

    private func apply(_ settings: DeliverySettings, _ upstream: AnyUpstream?) {
        if let upstream {
            precondition(upstream.name == queue.name, "a worker keeps its upstream's name")
            self.upstream = upstream
            machine.kindLimits = upstream.kindLimits
        }
        logger = gatewayLogger.at(settings.logLevel)
        perform(machine.apply(settings, isReplaced: upstream != nil, now: time.now))
        listen()
    }

    /// Waits are measured on the monotonic clock, but their ends are stored in wall-clock time, because they outlive
    /// this run. If that clock is set back, also between two runs, waits would grow by the difference, so all of them
    /// end at once.
    private func watchTheClock() {
        let (now, instant) = (time.now, time.instant)
        defer { lastLook = (now, instant) }
        guard let last = lastLook, (last.now + (instant - last.instant)) - now > Self.clockTolerance else { return }
        logger.warning(
            "system clock moved backwards; waits ended",
            metadata: ["upstream": "\(queue.name)", "now": "\(now)", "before": "\(last.now)"])
        perform(machine.clockSetBack(now: now))
    }

    /// A message that made its endpoint wait may have been cancelled, dropped or expired.
    private func checkCauses() {
        let ledger = outbox.ledger(of: queue.number)
        let removed = ledger.cancelled + ledger.dropped + ledger.expired
        guard removed != removedBefore else { return }
        removedBefore = removed
        for message in machine.health.causingMessages {
            let isQueued = try? outbox.withState(of: queue.number) { $0.isQueued(message) }
            if isQueued == false { perform(machine.removed(message, now: time.now)) }
        }
    }

    private func stop() {
        machine.stop()
        status.showStop()
    }

    // MARK: Readiness

    var isSending: Bool { machine.isSending && upstream.missingSettings.isEmpty }

    var hasToken: Bool { upstream.tokenSource == nil || machine.tokens.token(at: time.now) != nil }

    /// Whether messages can be sent now, or when. `collecting`: whether a batch waits for more messages, as the
    /// settings require.
    func readiness(collecting: Bool = true) -> Readiness {
        let wait = machine.isHurried || !collecting ? .zero : settings.batchMaxWait
        return queue.readiness(limits: limits, wait: wait, now: time.now, instant: time.instant)
    }

    var hasMessages: Bool { outbox.ledger(of: queue.number).queued > 0 }

    /// Whether there is a message that could be sent with a token.
    var somethingWaits: Bool { hasMessages && readiness(collecting: false) == .now }

    /// Whether a token is fetched even if there is no message.
    var checksToken: Bool {
        upstream.tokenSource != nil
            && machine.checksToken(verifiesAtStart: upstream.verifiesAtStart, now: time.now)
    }

    // MARK: Waiting

    private func nextTurn() -> MonotonicInstant {
        var earliest = EarliestDeadline(time, atMost: outbox.threads.idleTime(Self.heartbeat))
        if !unfinished.isEmpty { earliest.consider(recordRetry.at ?? time.instant) }
        guard isSending else { return earliest.instant }
        if let at = claimRetry.at, claimRetry.isWaiting(at: time.instant) {
            earliest.consider(at)
            return earliest.instant
        }
        if checksToken, let fetchAt = machine.tokens.nextFetch { earliest.consider(fetchAt) }
        if !hasMessages, machine.unsettled == 0, let opening = machine.health.firstOpening {
            earliest.consider(opening)
        }
        guard machine.maySend(now: time.now) else {
            // The end of a request in flight is an event. A time that has passed is not waited for.
            for end in [machine.health.upstream.reopensAt, machine.guardOpensAt].compactMap(\.self)
            where machine.unsettled == 0 { earliest.consider(end) }
            // An empty queue is looked at, too: only after that does the next message wake the worker.
            if let end = machine.pace.wait(now: time.now) { earliest.consider(end) }
            return earliest.instant
        }
        guard hasToken else {
            // A turn that needed a token has already started to fetch it.
            if somethingWaits, let fetchAt = machine.tokens.nextFetch { earliest.consider(fetchAt) }
            if case .due(let at) = readiness(collecting: false) { earliest.consider(at) }
            return earliest.instant
        }
        switch readiness() {
        // What seems to be ready waits for its lane, which an event releases.
        case .now: earliest.consider(lastClaimWasEmpty ? time.instant + .seconds(1) : time.instant)
        case .collecting(let until): earliest.consider(until)
        case .due(let at): earliest.consider(at)
        case .nothing: break
        }
        return earliest.instant
    }
}

extension AnyUpstream {
    fileprivate var kindLimits: [Kind: Pace.Limits] {
        traits.rates.mapValues { Pace.Limits(requests: $0.requests, messages: $0.messages) }
    }
}

/// The earliest of several times.
private struct EarliestDeadline {
    private let start: (now: Timestamp, instant: MonotonicInstant)
    private(set) var instant: MonotonicInstant

    init(_ time: any TimeSource, atMost longest: Duration) {
        start = (time.now, time.instant)
        instant = start.instant + longest
    }

    mutating func consider(_ other: MonotonicInstant) { instant = min(instant, other) }

    mutating func consider(_ moment: Timestamp) {
        guard moment - start.now < instant - start.instant else { return }
        // One millisecond is added because wall-clock time is truncated to milliseconds.
        consider(start.instant + max(.zero, moment - start.now) + .milliseconds(1))
    }
}

extension Logger {
    fileprivate func at(_ level: Logger.Level?) -> Logger {
        var logger = self
        if let level { logger.logLevel = level }
        return logger
    }
}
