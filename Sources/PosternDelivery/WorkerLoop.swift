import Logging
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
    let inbox: Inbox<WorkerEvent>
    let shared: WorkerShared

    /// The loop turns at least this often, so that one that hangs can be told from one that is idle.
    static let heartbeat = Duration.seconds(5)
    /// What could not be read or written is tried again after this.
    static let storeRetry = Duration.milliseconds(500)

    /// Clocks are adjusted by milliseconds all the time.
    static let clockTolerance = Duration.seconds(1)

    // MARK: State
    /// Both clocks at the last turn.
    private var lastLook: (now: Timestamp, instant: MonotonicInstant)?
    var upstream: any Upstream
    var settings: DeliverySettings
    var circuit: Circuit
    /// What it waits for an operator to mend.
    var hold: HoldReason?
    var tokens = TokenKeeper()
    var lastSuccessAt: Timestamp?
    var lastError: AttemptError?
    /// The last thing it told besides its answers; said once.
    var lastNotice: String?
    /// The latest request that the upstream took; tells a poisoned message from an outage.
    var latestTaken = 0
    /// The first message of the batch that was suspected last; nil since the upstream worked.
    var lastSuspect: MessageID?
    /// Requests that wait for their answer.
    var inFlight = 0
    /// Those, and batches whose outcome is on its way to the disk.
    var unsettled = 0 { didSet { shared.show(unsettled: unsettled) } }
    /// What flushes have covered so far.
    var flushedThrough: MessageID
    /// Those that are not over yet.
    var flushes: [Flush] = []
    /// Does what is there go out without collecting?
    var isHurried = false
    /// Was there a token since the start, or since the last time it was refused?
    var isReady = false
    var saved: CircuitRecord
    /// Answers and outcomes that the store did not take in; given to it again at `storeRetryAt`.
    var unfinished: [WorkerEvent] = []
    var storeRetryAt: MonotonicInstant?
    private(set) var isPaused: Bool
    private(set) var isStopping = false
    private var isEnding = false
    /// Did the last look find nothing, although something seemed to be there?
    private(set) var lookedInVain = false

    init(
        queue: UpstreamQueue, settings: DeliverySettings, parts: UpstreamWorker.Parts, inbox: Inbox<WorkerEvent>,
        shared: WorkerShared
    ) throws(StoreError) {
        self.queue = queue
        self.settings = settings
        self.inbox = inbox
        self.shared = shared
        upstream = queue.upstream
        outbox = parts.outbox
        transport = parts.transport
        time = parts.time
        metrics = parts.metrics
        logger = parts.logger
        random = parts.random
        let standing = try outbox.circuit(of: queue.number)
        (saved, isPaused, flushedThrough) = (standing.record, standing.isPaused, standing.flushedThrough)
        hold = saved.hold.flatMap(HoldReason.init(rawValue:))
        lastSuccessAt = saved.lastSuccessAtMs.map(Timestamp.init(milliseconds:))
        lastError = saved.lastError.flatMap(AttemptError.init)
        circuit = Circuit(
            most: settings.maxInFlight, failures: saved.failures,
            reopensAt: saved.reopensAtMs.map(Timestamp.init(milliseconds:)))
        listen()
        show()
    }

    /// Has the queue wake this loop.
    private func listen() {
        shared.show(limits)
        outbox.onArrival(in: queue, limits: limits, wait: settings.batchMaxWait, expireAfter: settings.expireAfter) {
            [inbox] in inbox.nudge()
        }
    }

    var limits: BatchLimits { upstream.limits(settings.limits) }

    func run() {
        var deadline = time.instant
        while !isEnding { deadline = turn(inbox.takeAll(waitingUntil: deadline)) }
    }

    /// One turn; answers when the next one is due, events aside.
    func turn(_ events: [WorkerEvent]) -> MonotonicInstant {
        shared.turned(at: time.instant)
        watchTheClock()
        takeUnfinished()
        for event in events { take(event) }
        lookedInVain = false
        if !isPaused, !isStopping, upstream.missingSettings.isEmpty {
            fetchToken()
            sendWhatMayBeSent()
        }
        endFlushes()
        show()
        return nextTurn()
    }

    private func take(_ event: WorkerEvent) {
        switch event {
        case .answered(let flight, let result): answered(flight, result)
        case .recorded(let flight, let ruling, let result): recorded(flight, ruling, result)
        case .tokenAnswered(let result, let fetch): tokenAnswered(result, fetch: fetch)
        case .pause: setPaused(true)
        case .resume:
            setPaused(false)
            probe()
        case .flush(let completion): flush(completion)
        case .flushBegan(let through): flushBegan(through)
        case .adopt(let settings, let upstream): adopt(settings, upstream)
        case .stop: stop()
        case .end:
            stop()
            isEnding = true
        }
    }

    private func takeUnfinished() {
        guard let due = storeRetryAt, due <= time.instant else { return }
        storeRetryAt = nil
        let events = unfinished
        unfinished = []
        for event in events { finish(event) }
    }

    // MARK: What operators want

    private func setPaused(_ isPaused: Bool) {
        guard self.isPaused != isPaused else { return }
        self.isPaused = isPaused
        outbox.setPaused(isPaused, of: queue.number) { [logger, name = queue.name] result in
            guard case .failure(let error) = result, error != .closed else { return }
            logger.error(
                "cannot record a pause; it will not outlast this run",
                metadata: ["upstream": "\(name)", "error": "\(error)"])
        }
        logger.notice(isPaused ? "upstream paused" : "upstream resumed", metadata: ["upstream": "\(queue.name)"])
    }

    private func adopt(_ settings: DeliverySettings, _ upstream: (any Upstream)?) {
        self.settings = settings
        circuit.most = settings.maxInFlight
        if let upstream {
            precondition(upstream.name == queue.name, "a worker keeps its upstream's name")
            self.upstream = upstream
            tokens.reset()
            // Whatever was wrong may have been mended.
            queue.makeDue(at: time.now)
            probe()
        } else if hold != nil {
            probe()
        }
        listen()
    }

    /// Sees at once whether it works, instead of waiting.
    func probe() {
        tokens.hurry()
        circuit.probeNow(now: time.now)
    }

    /// Waits are measured on the monotonic clock, but what they wait for is stored in wall-clock time, since it has to
    /// outlive this run. Should somebody set that clock back, waits would grow by as much: then all are over at once.
    private func watchTheClock() {
        let (now, instant) = (time.now, time.instant)
        defer { lastLook = (now, instant) }
        guard let last = lastLook, (last.now + (instant - last.instant)) - now > Self.clockTolerance else { return }
        logger.warning(
            "the clock was set back; waits end now",
            metadata: ["upstream": "\(queue.name)", "now": "\(now)", "before": "\(last.now)"])
        queue.makeDue(at: now)
        probe()
    }

    private func stop() {
        isStopping = true
        shared.showStop()
    }

    // MARK: Sending

    /// Claims that a turn makes before it looks at events again.
    static let claimsPerTurn = 16

    private func sendWhatMayBeSent() {
        var claims = 0
        while claims < Self.claimsPerTurn, circuit.permits(inFlight: unsettled, now: time.now), hasToken,
            readiness() == .now
        {
            claims += 1
            guard claimAndSend() else {
                lookedInVain = true
                break
            }
        }
        if isHurried, readiness() != .now { isHurried = false }
    }

    var hasToken: Bool { upstream.tokenSource == nil || tokens.token(at: time.now) != nil }

    /// When there is something to send; `collecting` says whether to let messages collect, as the settings wish.
    func readiness(collecting: Bool = true) -> Readiness {
        let wait = isHurried || !collecting ? .zero : settings.batchMaxWait
        return queue.readiness(limits: limits, wait: wait, now: time.now, instant: time.instant)
    }

    /// Is there something that could go out under a token?
    var somethingWaits: Bool {
        outbox.ledger(of: queue.number).queued > 0 && readiness(collecting: false) == .now
    }

    // MARK: Waiting

    private func nextTurn() -> MonotonicInstant {
        var alarm = Alarm(time, atMost: Self.heartbeat)
        if let storeRetryAt { alarm.consider(storeRetryAt) }
        guard !isPaused, !isStopping, upstream.missingSettings.isEmpty else { return alarm.instant }
        guard circuit.permits(inFlight: unsettled, now: time.now) else {
            // With something under way its end is an event; a moment that has passed is nothing to wait for.
            if unsettled == 0, let reopensAt = circuit.reopensAt { alarm.consider(reopensAt) }
            return alarm.instant
        }
        guard hasToken else {
            // A turn that could have used one has begun to fetch it.
            if somethingWaits, let fetchAt = tokens.nextFetch { alarm.consider(fetchAt) }
            if case .due(let at) = readiness(collecting: false) { alarm.consider(at) }
            return alarm.instant
        }
        switch readiness() {
        // What seems to be there waits for its lane, whose turn comes with an event.
        case .now: alarm.consider(lookedInVain ? time.instant + .seconds(1) : time.instant)
        case .collecting(let until): alarm.consider(until)
        case .due(let at): alarm.consider(at)
        case .nothing: break
        }
        return alarm.instant
    }
}

/// The soonest of several moments.
private struct Alarm {
    private let start: (now: Timestamp, instant: MonotonicInstant)
    private(set) var instant: MonotonicInstant

    init(_ time: any TimeSource, atMost longest: Duration) {
        start = (time.now, time.instant)
        instant = start.instant + longest
    }

    mutating func consider(_ other: MonotonicInstant) { instant = min(instant, other) }

    mutating func consider(_ moment: Timestamp) {
        guard moment - start.now < instant - start.instant else { return }
        // A millisecond on top, since wall-clock time is cut to milliseconds.
        consider(start.instant + max(.zero, moment - start.now) + .milliseconds(1))
    }
}
