public import Logging
public import PosternCore
public import PosternDelivery
import PosternEvents
import PosternHTTP
public import PosternMetrics
public import PosternStore
public import PosternThreads
public import PosternUpstream
import Synchronization

/// What one request may carry.
public struct RequestLimits: Sendable, Equatable {
    /// The size after decompression.
    public var maxBodyBytes = 4 << 20
    /// Messages that one request may contain; more get 413.
    public var maxMessagesPerRequest = 10_000
    /// How many requests of SDKs may wait for room at a time; a tenth of the connections.
    public var maxHeldRequests = 1000

    public init() {}
}

/// What the handlers of the API share: the store, the upstreams, and whether the gateway still takes requests. Any
/// thread.
public final class APIContext: Sendable {
    /// The durable store of messages, receipts, and upstream state.
    let outbox: Outbox
    /// The clock by which waits, ages, and expiry are decided.
    let time: any TimeSource
    /// The randomness of values that upstreams fill in, such as identifiers.
    let random: @Sendable () -> (UInt64, UInt64)
    let metrics: Metrics
    let logger: Logger
    /// The limits of each request, from `server.limits`.
    let limits: RequestLimits
    /// The shared memory budget of bodies, of parsing them, of messages that wait for their commit, and of pages of
    /// lists. A request that exceeds it gets 503. The HTTP server uses the same budget.
    let memory: ByteBudget
    /// Whether the upstreams are simulators; receipts say so.
    let isSimulated: Bool
    /// The setting `server.console`.
    let servesConsole: Bool
    /// Identifies this run of the gateway; the ids of events begin with it.
    let instance: String
    let startedAt: Timestamp
    let history: GatewayHistory
    let alerts = Mutex(AlertState())
    private let directory: Mutex<UpstreamDirectory>
    /// Names of the workers that have made no progress for too long.
    let stalledWorkers: @Sendable () -> [String]
    let isDraining = Atomic<Bool>(false)
    let pendingReplies: PendingReplies
    let idempotentRequests = IdempotentRequests()
    let operations: Operations
    /// The replays that this process carries out, with the number of messages that were accepted before their next step.
    let replays = Mutex<[String: Int]>([:])
    /// Sends events to the clients of `GET /v1/stream`.
    let stream: EventStream
    /// The setting `cloudevents.types`: `<upstream>.<kind>` by the type of a CloudEvent.
    private let mappedEventTypes = Mutex<[String: String]>([:])
    /// Runs store reads, which block, away from the connection threads.
    let readers: BlockingExecutor
    /// Sends the replies whose time has come.
    let timer: TimerQueue
    /// The configured API keys. If there are none, no caller needs one.
    public let keys = KeyRing()
    /// When the server's certificate expires; nil without TLS.
    let certificateExpiry = Mutex<Timestamp?>(nil)
    /// Runs the asynchronous routes of upstreams.
    let taskExecutor: SerialTaskExecutor
    /// Runs computations that keep a core busy, such as the hash of a password, one at a time.
    let computations: BlockingExecutor
    /// Verifies callers of open routes, whose key the route itself checks.
    let unproven: UnprovenWork
    /// The memory budget of the bodies of such callers, from the headers on: a part of `memory`, so that callers
    /// without a key cannot use all of it.
    let unprovenBodies: ByteBudget

    public init(
        outbox: Outbox, upstreams: [ServedUpstream], limits: RequestLimits, memory: ByteBudget,
        isSimulated: Bool = false, servesConsole: Bool = true, time: any TimeSource,
        random: @escaping @Sendable () -> (UInt64, UInt64) = ValidationContext.systemRandom, metrics: Metrics,
        logger: Logger,
        stalledWorkers: @escaping @Sendable () -> [String]
    ) throws(SystemLimitError) {
        self.outbox = outbox
        self.limits = limits
        self.memory = memory
        self.isSimulated = isSimulated
        self.servesConsole = servesConsole
        self.time = time
        self.random = random
        self.metrics = metrics
        self.logger = logger
        self.stalledWorkers = stalledWorkers
        startedAt = time.now
        let run = UInt64(clamping: startedAt.milliseconds)
        instance = String(run, radix: 16)
        history = GatewayHistory(at: startedAt)
        readers = try BlockingExecutor(name: "postern-reads", atATime: 3, on: outbox.threads) { error in
            logger.warning("cannot start another thread; fewer reads run at a time", metadata: ["error": "\(error)"])
        }
        timer = try TimerQueue(name: "postern-timer", on: outbox.threads)
        taskExecutor = try SerialTaskExecutor(name: "postern-calls", on: outbox.threads)
        computations = try BlockingExecutor(name: "postern-logins", atATime: 1, on: outbox.threads)
        unprovenBodies = ByteBudget(memory.limit / 4)
        unproven = try UnprovenWork(
            .init(maxBodyBytes: limits.maxBodyBytes, memory: memory.limit), on: outbox.threads)
        directory = Mutex(UpstreamDirectory(upstreams.map { ConfiguredUpstream($0, metrics: metrics) }))
        pendingReplies = PendingReplies(outbox, timer)
        stream = EventStream(outbox.events, run: run, timer: timer, time: time)
        operations = Operations(run: run)
        if outbox.isShared { exchangeEvents() }
        beginHistory()
    }

    /// Sets the gauge of the certificate's expiry.
    public func showCertificateExpiry(_ expiresAt: Timestamp?) { certificateExpiry.withLock { $0 = expiresAt } }

    /// Replaces the setting `cloudevents.types`.
    public func setEventTypes(_ types: [String: String]) { mappedEventTypes.withLock { $0 = types } }
    var eventTypes: [String: String] { mappedEventTypes.withLock { $0 } }

    /// Why `/readyz` is 503; empty if it is 200.
    public var reasonsNotReady: [String] { ReadinessReport(self).reasons }

    /// Rebuilds the directory after a reload; upstreams may be new, gone, or have other kinds.
    func refreshUpstreams(_ upstreams: [ServedUpstream]?) {
        let upstreams = (upstreams ?? self.upstreams.map(\.served)).map { ConfiguredUpstream($0, metrics: metrics) }
        directory.withLock { $0 = UpstreamDirectory(upstreams) }
    }

    /// Tells listeners that a new configuration is in force.
    public func wasReloaded() { outbox.events.record(Event(.configurationReloaded, nil), isOrdered: true) }

    /// Makes the gateway unready. Requests that are running are still answered; those that wait for their messages are
    /// answered at once, and operations and streams end.
    public func beginDraining() {
        isDraining.store(true, ordering: .releasing)
        pendingReplies.close()
        operations.close()
        stream.close()
    }

    /// Whether no operation is running. After `beginDraining`, each ends with its current step.
    public var areOperationsIdle: Bool { operations.areIdle }

    /// Ends the threads that work for requests. Call it when every request has been answered or aborted.
    public func stop() {
        timer.stop()
        readers.stop()
        computations.stop()
        unproven.stop()
        taskExecutor.stop()
    }

    /// All configured upstreams, in the order of their names.
    var upstreams: [ConfiguredUpstream] { directory.withLock { $0 }.upstreams }
    /// The configured upstreams that the caller may use.
    func upstreams(for caller: Caller?) -> [ConfiguredUpstream] {
        caller.map { caller in upstreams.filter { caller.mayUse($0.name) } } ?? upstreams
    }
    /// The description of the API, for a caller.
    func document(for caller: Caller?) -> APIDocument.Version {
        directory.withLock { $0 }.document.version(for: caller)
    }
    func upstream(named name: some StringProtocol) -> ConfiguredUpstream? {
        directory.withLock { $0 }.byName[String(name)]
    }
    /// The upstream called `name` if it is configured, or if the store holds messages of it.
    func knownUpstream(_ name: String) -> UpstreamName? {
        upstream(named: name)?.name ?? outbox.names.values.first { $0.description == name }
    }
    /// The upstream called `name` in a query, if it is known and the caller may use it.
    func knownUpstream(_ name: String, for caller: Caller?) throws(Problem) -> UpstreamName {
        guard let known = knownUpstream(name) else {
            throw RoutingProblem.unknownUpstream(name).problem(in: self, for: caller)
        }
        if let caller, !caller.mayUse(known) { throw Gatekeeper.foreign(known, to: caller) }
        return known
    }
    /// The upstream called `name` if it is not configured and has messages queued.
    func disabledUpstream(named name: String) -> UpstreamName? {
        upstream(named: name) == nil ? outbox.disabledUpstream(named: name, besides: []) : nil
    }
    /// The upstreams that have messages queued and are not among `upstreams`.
    func disabledUpstreams(besides upstreams: [ConfiguredUpstream]) throws(StoreError) -> [UpstreamSummary] {
        try outbox.disabledUpstreams(besides: Set(upstreams.map(\.queue.number)))
    }
    func upstream(_ number: UpstreamNumber) -> ConfiguredUpstream? { upstreams.first { $0.queue.number == number } }
}

/// The configured upstreams between two reloads.
private final class UpstreamDirectory: Sendable {
    let upstreams: [ConfiguredUpstream]
    let byName: [String: ConfiguredUpstream]
    let document: APIDocument

    init(_ upstreams: [ConfiguredUpstream]) {
        self.upstreams = upstreams.sorted { $0.name < $1.name }
        document = APIDocument(self.upstreams)
        byName = Dictionary(uniqueKeysWithValues: upstreams.map { ($0.name.description, $0) })
    }
}

/// A configured upstream, as the API sees it between two reloads.
final class ConfiguredUpstream: Sendable {
    let served: ServedUpstream
    let kinds: [KindEndpoint]
    var type: String { served.type }
    var queue: QueueTarget { served.queue }
    /// For requests that are not stored.
    var client: UpstreamClient { served.client }
    var name: UpstreamName { served.name }
    let adapter: AnyUpstream
    /// How its messages take turns; nil if they do not.
    let fairness: Fairness?

    /// A kind and its counter, because looking the counter up by its labels would cost more than counting.
    final class KindEndpoint: Sendable {
        let kind: Kind
        let text: String
        let accepted: Counter
        /// Whether `notBefore` is refused.
        let isTimed: Bool
        /// The kinds whose messages its payloads become; empty unless it is a fan-out.
        let legs: [Traits.Leg]
        /// The part after the id in the response to one message, which ends with `}` and a newline.
        let receipt: [UInt8]

        init(_ kind: Kind, of upstream: UpstreamName, _ traits: Traits, accepted: Counter) {
            isTimed = traits.timedKinds.contains(kind)
            legs = traits.fanOuts[kind] ?? []
            self.kind = kind
            text = kind.description
            self.accepted = accepted
            let names = "\"upstream\":\"\(upstream)\",\"kind\":\(JSONEscapes.quoted(text))"
            receipt = Array("\",\(names),\"state\":\"queued\"}\n".utf8)
        }
    }

    init(_ served: ServedUpstream, metrics: Metrics) {
        self.served = served
        adapter = served.queue.upstream
        fairness = served.queue.fairness
        kinds = adapter.kinds.map { [adapter] kind in
            KindEndpoint(
                kind, of: served.name, adapter.traits,
                accepted: metrics.accepted("\(served.name)", "\(kind)"))
        }
        createSeries(in: metrics)
    }

    /// Creates the series of the upstream, so that all of them exist from the start, with 0: a rate over a series that
    /// begins with its first event leaves that one out.
    private func createSeries(in metrics: Metrics) {
        let name = name.description
        for slug in ProblemSlug.refusingMessages where slug != .unknownUpstream {
            _ = metrics.refused(name, slug.rawValue)
        }
        for state in MessageState.allCases where state != .queued { _ = metrics.settled(name, state.name) }
        for outcome in Metrics.replayOutcomes { _ = metrics.replayed(name, outcome) }
        _ = metrics.erased(name)
        for outcome in Settlement.Outcome.allCases { _ = metrics.attempts(name, outcome.rawValue) }
        _ = (metrics.attemptDuration(name), metrics.batchMessages(name), metrics.ambiguousSends(name))
        guard adapter.tokenSource != nil else { return }
        for outcome in Metrics.tokenOutcomes { _ = metrics.tokenRefreshes(name, outcome) }
    }

    /// May read the store.
    func snapshot(in context: APIContext) -> UpstreamSnapshot {
        served.snapshot(in: context.outbox, now: context.time.now)
    }

    func endpoint(_ text: some StringProtocol) -> KindEndpoint? { kinds.first { $0.text == text } }
}
