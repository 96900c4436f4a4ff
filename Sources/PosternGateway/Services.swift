import Logging
import PosternAPI
import PosternCore
import PosternDelivery
import PosternHTTP
import PosternMetrics
import PosternProcess
import PosternStore
import PosternThreads
import PosternUpstream
import Synchronization

/// The services of the gateway, in the order in which they start.
final class Services: Sendable {
    let outbox: Outbox
    let workerGroup: WorkerGroup
    private let transport: any OwnedTransport
    private let listeners: any Listeners
    private let node: Node?
    private let lease: StoreLease?
    private let context: APIContext
    private let handler: GatewayHandler
    private let metrics: Metrics
    private let logger: Logger
    private let time: any TimeSource
    private let current: Mutex<GatewayConfiguration>
    /// The upstreams that are configured and enabled, without their workers.
    private let upstreamsInForce: Mutex<[ServedUpstream]>
    private let dependencies: UpstreamWorker.Dependencies
    private let certificateWarning = Mutex(CertificateWarning())
    private let seen = Mutex(SeenAssignment())

    var configuration: GatewayConfiguration { current.withLock { $0 } }

    /// What this gateway knew when it last looked which queues are its own.
    private struct SeenAssignment {
        var number = 0
        var keeps = false
        /// Why a queue cannot be adopted, or the store be kept (nil), as it was logged.
        var failures: [UpstreamName?: StoreError] = [:]
    }

    /// - Parameters:
    ///   - lease: That of the store, if it is shared. This gateway sends from the queues that it has adopted (`balance`), and
    ///     relays what needs the owner of another one (`Outbox.mustRelay`).
    ///   - node: What listens already, if the store is shared.
    init(
        _ loaded: ConfigurationLoader.LoadedConfiguration, _ options: App.Options,
        in environment: Environment = Environment(), sharing lease: StoreLease? = nil, as node: Node? = nil,
        logger: Logger
    ) throws(AppError) {
        let (time, random) = (environment.time, environment.random)
        let configuration = loaded.configuration
        let metrics = Metrics()
        let memory = node?.memory ?? configuration.server.memory
        self.node = node
        self.lease = lease
        self.metrics = metrics
        self.logger = logger
        self.time = time
        current = Mutex(configuration)
        do throws(StoreError) {
            outbox = try Outbox(
                configuration.outbox.located, startFresh: options.startFresh, recover: options.recover, lease: lease,
                time: time, threads: environment.threads, metrics: metrics, logger: logger)
        } catch {
            throw .store(error)
        }
        var mayStillSend: (@Sendable () -> Bool)?
        if let lease {
            mayStillSend = { lease.mayStillSend }
            metrics.database.begin(
                .init(
                    isUp: { [outbox] in outbox.failure?.isOfDatabase != true }, leaseSeconds: { lease.left.inSeconds },
                    clockOffsetSeconds: { lease.clockOffset.inSeconds }, queues: { [outbox] in outbox.ownedQueues },
                    fenced: { lease.replacedNodes }))
        }
        do throws(AppError) {
            transport = try environment.makeTransport(mayStillSend)
        } catch {
            outbox.close()
            throw error
        }
        do throws(StoreError) {
            var workers: [UpstreamWorker] = []
            var served: [ServedUpstream] = []
            let dependencies = UpstreamWorker.Dependencies(
                outbox: outbox, transport: transport, time: time, metrics: metrics, logger: logger,
                random: { Double(random() >> 11) * 0x1p-53 })
            self.dependencies = dependencies
            for upstream in loaded.upstreams {
                guard let settings = configuration.upstreams.first(where: { $0.name == upstream.name }) else {
                    continue
                }
                var next = try ServedUpstream(upstream, settings, dependencies)
                outbox.share(next.queue, as: configuration, logger)
                if lease == nil {
                    let worker = try next.makeWorker(settings, dependencies)
                    workers.append(worker)
                    next.worker = worker
                }
                served.append(next)
            }
            upstreamsInForce = Mutex(served)
            if lease == nil {
                try outbox.registerStored()
                try outbox.markDisabled()
            }
            let workerGroup = WorkerGroup(workers, outbox: outbox, time: time)
            self.workerGroup = workerGroup
            var limits = configuration.server.limits
            limits.maxHeldRequests = max(1, configuration.server.http.maxConnections / 10)
            do throws(SystemLimitError) {
                context = try APIContext(
                    outbox: outbox, upstreams: served, limits: limits, memory: memory,
                    isSimulated: options.simulate, servesConsole: configuration.server.console, time: time,
                    random: { (random(), random()) }, metrics: metrics,
                    logger: logger, stalledWorkers: { workerGroup.stalledWorkers(at: time.instant) })
            } catch {
                throw .systemLimit(error)
            }
        } catch {
            transport.stop()
            outbox.close()
            throw .store(error)
        }
        handler = GatewayHandler(
            context, callers: CallerPolicy(configuration.server),
            hasAdminListener: configuration.server.adminHTTP != nil)
        handler.replaceKeys(configuration.auth.keys, opensMetrics: configuration.auth.openMetrics)
        context.setEventTypes(configuration.cloudEvents.types)
        listeners = node?.listeners ?? environment.makeListeners(configuration.server, memory, handler, logger)
        outbox.setCallbacks(callbacks ?? [])
    }

    /// Starts delivering, then listening. Returns the ports.
    func start() throws(AppError) -> (main: UInt16, admin: UInt16?) {
        do throws(SystemLimitError) { try workerGroup.start() } catch { throw .system("\(error).") }
        if isShared {
            handler.answerRelayed()
            serve()
        } else {
            beginKeeping()
        }
        let ports: (main: UInt16, admin: UInt16?)
        if let node {
            node.pass(to: handler, hasAdminListener: configuration.server.admin.isOn)
            ports = node.ports
        } else {
            ports = try listeners.start()
        }
        checkCertificate()
        return ports
    }

    /// What is done by one of the gateways on a store.
    private func beginKeeping() {
        watchForAlerts()
        context.resumeReplays()
    }

    /// Closes what was opened, after a failed start.
    func abandon() {
        workerGroup.stop(deadline: time.instant) { transport.stop() }
        context.stop()
        outbox.close()
        lease?.leave()
    }

    /// Whether other gateways may use the store, too.
    var isShared: Bool { lease != nil }
    /// Why this gateway has nothing left to do, for example because another one has taken over its queues; nil: it has.
    var loss: StoreError? { isShared ? outbox.loss : nil }

    /// The upstreams that are configured and enabled.
    var upstreams: [ServedUpstream] {
        let workers = workerGroup.workers
        return upstreamsInForce.withLock { $0 }.map { upstream in
            var upstream = upstream
            upstream.worker = workers.first { $0.name == upstream.name }
            return upstream
        }
    }

    private func upstream(named name: UpstreamName) -> ServedUpstream? { upstreams.first { $0.name == name } }

    /// The condition that is reported to the service manager.
    var condition: ServiceReport.Condition {
        let now = time.now
        let snapshots = upstreams.map { (name: $0.name.description, snapshot: $0.snapshot(in: outbox, now: now)) }
        return ServiceReport.Condition(
            reasons: context.reasonsNotReady, isStalled: !workerGroup.stalledWorkers(at: time.instant).isEmpty,
            queued: outbox.ledgers.values.reduce(0) { $0 + $1.queued },
            inFlight: snapshots.reduce(0) { $0 + $1.snapshot.inFlight },
            upstreams: snapshots.filter { $0.snapshot.health != .up }.map { ($0.name, $0.snapshot.health.rawValue) })
    }

    /// Unready → no new connections → running requests answered → claiming stops → transfers finish or are cancelled →
    /// claims returned → store closed. All of it within the grace period; if `isHurried`, without waiting.
    func stop(isHurried: () -> Bool) {
        let deadline = time.instant + configuration.server.shutdownGrace
        logger.notice(
            "stopping", metadata: ["graceSeconds": .stringConvertible(configuration.server.shutdownGrace.inSeconds)])
        context.beginDraining()
        outbox.answerRelayed(nil)
        listeners.stopAccepting()
        lease?.beginStopping()
        if isShared { workerGroup.workers.map(\.name).forEach(workerGroup.retire) }
        workerGroup.beginStopping()
        wait(until: deadline, or: isHurried) {
            releaseIdle()
            return listeners.runningRequests == 0 && context.areOperationsIdle && outbox.relayedRequests == 0
        }
        listeners.stop()
        wait(until: deadline, or: isHurried) {
            releaseIdle()
            return workerGroup.inFlight == 0
        }
        workerGroup.stop(deadline: time.instant) { transport.stop() }
        context.stop()
        outbox.close()
        lease?.leave()
    }

    /// Other gateways take over the queues from which nothing is sent any more.
    private func releaseIdle() { if isShared { endRetired() } }

    private func wait(until deadline: MonotonicInstant, or isHurried: () -> Bool, _ isDone: () -> Bool) {
        let pause = Inbox<Void>()
        while !isDone(), time.instant < deadline, !isHurried() {
            _ = outbox.threads.take(from: pause, until: outbox.threads.instant + .milliseconds(10))
        }
    }

    var hasCertificate: Bool { listeners.certificateExpiry != nil }

    /// Loads TLS files that have changed, and warns about a certificate that is about to expire.
    func checkCertificate() {
        defer { context.showCertificateExpiry(listeners.certificateExpiry) }
        let (isRenewed, failure) = listeners.renewCertificates()
        if let failure {
            logger.error(
                "new TLS files cannot be used; keeping the previous ones", metadata: ["error": "\(failure.detail)"])
        } else if isRenewed, let expiresAt = listeners.certificateExpiry {
            logger.notice("certificate renewed", metadata: ["expiresAt": "\(expiresAt)"])
        }
        guard let expiresAt = listeners.certificateExpiry,
            let days = certificateWarning.withLock({ $0.daysLeft(until: expiresAt, now: time.now) })
        else { return }
        logger.warning(
            "certificate expires soon", metadata: ["expiresAt": "\(expiresAt)", "daysLeft": .stringConvertible(days)])
    }

    /// Puts a new configuration in force as far as it can change while running.
    func reload(_ loaded: ConfigurationLoader.LoadedConfiguration) -> ReloadPlan {
        let former = configuration
        let plan = former.changes(to: loaded.configuration)
        current.withLock { $0 = plan.configuration }
        if plan.changesKeys {
            handler.replaceKeys(plan.configuration.auth.keys, opensMetrics: plan.configuration.auth.openMetrics)
        }
        context.setEventTypes(plan.configuration.cloudEvents.types)
        outbox.setMaxBytes(plan.configuration.outbox.maxBytes)
        for upstream in plan.configuration.upstreams {
            if let queue = self.upstream(named: upstream.name)?.queue { outbox.setCap(upstream.queue, of: queue) }
        }
        var changesTurns = false
        for upstream in upstreams {
            let former = upstream.queue.fairness
            outbox.share(upstream.queue, as: plan.configuration, logger)
            changesTurns = changesTurns || upstream.queue.fairness != former
        }
        if plan.changesLogLevel { StandardErrorLog.setLevel(plan.configuration.log.level) }
        addUpstreams(of: plan, from: loaded)
        for name in plan.upstreams { replace(name, of: plan, from: loaded, former) }
        if let callbacks { outbox.setCallbacks(callbacks) }
        watchForAlerts()
        plan.removed.forEach(remove)
        // Also of upstreams whose settings are the same: an address may have changed.
        for upstream in upstreams { upstream.client.renewConnections() }
        if changesTurns || !(plan.upstreams + plan.added + plan.removed).isEmpty { refreshUpstreams() }
        endRetired()
        serve()
        lease?.show(configDigest: loaded.digest)
        context.wasReloaded()
        return plan
    }

    /// Gives an upstream its new settings. It keeps those of `former` if the store fails.
    private func replace(
        _ name: UpstreamName, of plan: ReloadPlan, from loaded: ConfigurationLoader.LoadedConfiguration,
        _ former: GatewayConfiguration
    ) {
        guard let served = upstream(named: name),
            let settings = plan.configuration.upstreams.first(where: { $0.name == name }),
            let upstream = loaded.upstreams.first(where: { $0.name == name })
        else { return }
        let isReplaced = plan.replaced.contains(name)
        do throws(StoreError) {
            if isReplaced { try outbox.replace(upstream, of: served.queue) }
            served.apply(settings.deliverySettings, upstream: isReplaced ? upstream : nil)
        } catch {
            // So that the next reload tries again.
            set(former.upstreams.first { $0.name == name }, as: name)
            logger.error(
                "cannot store the kinds of the reloaded upstream; reload the configuration again",
                metadata: ["upstream": "\(name)", "error": "\(error)"])
        }
    }

    /// Replaces the settings in force of one upstream.
    private func set(_ settings: GatewayConfiguration.UpstreamConfiguration?, as name: UpstreamName) {
        guard let settings else { return }
        current.withLock { current in
            for index in current.upstreams.indices where current.upstreams[index].name == name {
                current.upstreams[index] = settings
            }
        }
    }

    /// Callbacks to configured upstreams; nil if one of them lacks the kind, because a reload could not store its new
    /// kinds.
    private var callbacks: [Callback]? {
        var callbacks: [Callback] = []
        for callback in configuration.callbacks {
            guard let queue = upstream(named: callback.upstream)?.queue, queue.upstream.kinds.contains(callback.kind)
            else { return nil }
            callbacks.append(
                Callback(
                    to: queue, as: callback.kind, of: callback.states, in: callback.upstreams,
                    includesPayload: callback.includesPayload, alerts: callback.events))
        }
        return callbacks
    }

    private func watchForAlerts() {
        context.watchForAlerts(
            oldAfter: Dictionary(
                uniqueKeysWithValues: configuration.upstreams.map { ($0.name, $0.delivery.queueOld) }))
    }

    private func refreshUpstreams() { handler.refreshUpstreams(upstreams) }

    private func addUpstreams(of plan: ReloadPlan, from loaded: ConfigurationLoader.LoadedConfiguration) {
        endRetired()
        for name in plan.added {
            guard let upstream = loaded.upstreams.first(where: { $0.name == name }),
                let settings = plan.configuration.upstreams.first(where: { $0.name == name })
            else { continue }
            do throws(StoreError) {
                guard !workerGroup.isRetiring(name) else {
                    throw .failed(detail: "the former upstream of this name has not ended yet")
                }
                let served = try ServedUpstream(upstream, settings, dependencies)
                outbox.share(served.queue, as: plan.configuration, logger)
                if !isShared {
                    do throws(StoreError) {
                        try begin(served, settings)
                    } catch {
                        try outbox.disable(served.queue)
                        throw error
                    }
                }
                upstreamsInForce.withLock { $0.append(served) }
            } catch {
                // As if it were disabled, so that the next reload tries again.
                var disabled = settings
                disabled.isEnabled = false
                set(disabled, as: name)
                logger.error(
                    "cannot add the upstream; reload the configuration again",
                    metadata: ["upstream": "\(name)", "error": "\(error)"])
            }
        }
    }

    /// Ends the workers of removed upstreams whose requests have ended. Call it now and then, on the thread that reloads.
    func endRetired() {
        do throws(StoreError) {
            try workerGroup.endRetired(configured: upstreams.map(\.name))
        } catch {
            logger.error("cannot store that an upstream was removed", metadata: ["error": "\(error)"])
        }
    }

    private func remove(_ name: UpstreamName) {
        guard let removed = upstream(named: name) else { return }
        upstreamsInForce.withLock { upstreams in upstreams.removeAll { $0.name == name } }
        workerGroup.retire(name)
        // The worker ends later, and its queue follows then.
        guard !workerGroup.isRetiring(name), !isShared else { return }
        do throws(StoreError) {
            try outbox.disable(removed.queue)
        } catch {
            logger.error("cannot store that an upstream was removed", metadata: ["error": "\(error)"])
        }
    }

    // MARK: Queues of configured upstreams

    /// Shows the other gateways on which queues this one can work.
    private func serve() { if isShared { outbox.serve(upstreams.map(\.queue)) } }

    /// Adopts the queues of a shared store that are to be this gateway's, and releases those that are not. Call it several times a
    /// second, on the thread that reloads.
    func balance() {
        guard let assignment = outbox.assignment else { return }
        endRetired()
        let hasLooked = seen.withLock { seen in
            defer { seen.number = assignment.number }
            return seen.number != assignment.number
        }
        guard hasLooked, outbox.failure == nil else { return }
        keep()
        for upstream in upstreams {
            let (name, number) = (upstream.name, upstream.queue.number)
            if upstream.worker != nil {
                if !assignment.includes(number) { release(name) }
            } else if workerGroup.isRetiring(name) {
                continue
            } else if let reason = assignment.reasonToAdopt(number) {
                adopt(name, because: reason)
            } else if assignment.isHeld(number) {
                outbox.disown(upstream.queue)
            }
        }
    }

    /// Begins to keep the store, or ends that.
    private func keep() {
        let (keeps, did) = (outbox.isKeeper, seen.withLock(\.keeps))
        guard keeps != did else { return }
        do throws(StoreError) {
            if keeps {
                try outbox.beginKeeping()
                beginKeeping()
            }
            seen.withLock { ($0.keeps, $0.failures[nil]) = (keeps, nil) }
        } catch {
            guard isNew(error, of: nil) else { return }
            logger.error("cannot keep the store yet", metadata: ["error": "\(error)"])
        }
    }

    private func adopt(_ name: UpstreamName, because reason: String) {
        do throws(StoreError) {
            try adopt(name)
            seen.withLock { $0.failures[name] = nil }
            metrics.database.queueMoves(reason).add()
            logger.notice("queue adopted", metadata: ["upstream": "\(name)", "reason": "\(reason)"])
        } catch {
            // Another gateway was faster.
            guard error != .notOwner, isNew(error, of: name) else { return }
            logger.warning("cannot adopt a queue yet", metadata: ["upstream": "\(name)", "error": "\(error)"])
        }
    }

    /// Whether it is to be logged: it is tried again several times a second.
    private func isNew(_ error: StoreError, of name: UpstreamName?) -> Bool {
        seen.withLock { $0.failures.updateValue(error, forKey: name) != error }
    }

    /// Adopts a queue, and starts a worker that sends from it.
    private func begin(
        _ upstream: ServedUpstream, _ settings: GatewayConfiguration.UpstreamConfiguration
    ) throws(StoreError) {
        let worker = try upstream.makeWorker(settings, dependencies)
        do throws(SystemLimitError) {
            try workerGroup.add(worker)
        } catch {
            outbox.drop(worker.queue)
            throw .systemLimit(error)
        }
    }

    /// Sends from the queue of an upstream again that was released.
    func adopt(_ name: UpstreamName) throws(StoreError) {
        guard let upstream = upstream(named: name), upstream.worker == nil, !workerGroup.isRetiring(name),
            let settings = configuration.upstreams.first(where: { $0.name == name })
        else { return }
        try begin(upstream, settings)
        if isShared { outbox.share(upstream.queue, as: configuration, logger) }
        refreshUpstreams()
    }

    /// Stops sending from the queue of an upstream that stays configured. Requests in flight may finish; the worker ends
    /// with the next `endRetired` after that. `isHurried`: they are given up instead, and the caller aborts them.
    func release(_ name: UpstreamName, isHurried: Bool = false) {
        workerGroup.retire(name)
        refreshUpstreams()
        if isHurried { workerGroup.abandon(name) }
    }
}

extension ServedUpstream {
    fileprivate init(
        _ upstream: any Upstream, _ settings: GatewayConfiguration.UpstreamConfiguration,
        _ dependencies: UpstreamWorker.Dependencies
    ) throws(StoreError) {
        let queue = try dependencies.outbox.register(upstream, type: settings.type, cap: settings.queue)
        self.init(
            type: settings.type, queue: queue,
            client: UpstreamClient(upstream.name, settings.deliverySettings, dependencies))
        queue.collect(as: settings.deliverySettings)
    }

    /// Adopts the queue for a worker, which is not started yet.
    fileprivate func makeWorker(
        _ settings: GatewayConfiguration.UpstreamConfiguration, _ dependencies: UpstreamWorker.Dependencies
    ) throws(StoreError) -> UpstreamWorker {
        let queue = try dependencies.outbox.adopt(self.queue)
        do throws(StoreError) {
            return try UpstreamWorker(
                queue: queue, client: client, settings: settings.deliverySettings, dependencies: dependencies)
        } catch {
            dependencies.outbox.drop(queue)
            throw error
        }
    }
}

// MARK: From the operator's units to those of the services

extension Outbox {
    /// Has the messages of a configured upstream take turns as the configuration says. Without room for what that needs,
    /// messages are sent in the order of their acceptance.
    fileprivate func share(_ queue: QueueTarget, as configuration: GatewayConfiguration, _ logger: Logger) {
        do throws(StoreError) {
            try share(queue, by: configuration.fairness(of: queue.name))
        } catch {
            logger.error(
                "cannot store that messages take turns; reload the configuration again",
                metadata: ["upstream": "\(queue.name)", "error": "\(error)"])
        }
    }
}

extension GatewayConfiguration {
    /// How the messages of an upstream take turns; nil if they do not. Those of a single caller do not.
    func fairness(of name: UpstreamName) -> Fairness? {
        let callers = auth.keys.filter { $0.mayPost(to: name) }
        guard let by = upstreams.first(where: { $0.name == name })?.delivery.fairBy, by != .none,
            by != .caller || callers.count > 1
        else { return nil }
        return Fairness(by: by, callers: Dictionary(callers.map { ($0.name, $0.weight) }) { first, _ in first })
    }
}

extension GatewayConfiguration.UpstreamConfiguration {
    /// `delivery` with the other settings that concern a worker.
    var deliverySettings: DeliverySettings {
        var settings = delivery
        settings.logLevel = logLevel
        settings.logsAnswers = logsAnswers
        connection.apply(to: &settings.transfer)
        return settings
    }
}

extension GatewayConfiguration.UpstreamConfiguration.Connection {
    func apply(to options: inout TransferOptions) {
        options.trust = caFile.isEmpty ? .system : .authorities(file: caFile)
        options.clientCertificate =
            clientCertificateFile.isEmpty
            ? nil : .init(certificateFile: clientCertificateFile, keyFile: clientKeyFile)
        options.proxy =
            proxyURL.isEmpty ? nil : .init(url: proxyURL, username: proxyUsername, password: proxyPassword)
        options.resolve = resolve
    }
}

extension CallerPolicy {
    // Keys do not change this as long as no request requires one.
    init(_ settings: GatewayConfiguration.Server) {
        // The names on which the gateway listens are its own.
        self.init(
            hosts: settings.hosts + [settings.http.host, settings.admin.host].filter { !$0.isEmpty },
            origins: settings.corsOrigins, servesTLS: settings.http.tls.isOn)
    }
}

extension GatewayConfiguration.Server {
    /// The memory for bodies and large responses of all listeners.
    var memory: ByteBudget { ByteBudget(maxBodyMemoryBytes > 0 ? maxBodyMemoryBytes : MemoryLimit.bytes() / 2) }

    /// The listener for operators; nil if there is none.
    var adminHTTP: HTTPServerSettings? {
        guard admin.isOn else { return nil }
        var settings = http
        (settings.host, settings.port) = (admin.host, admin.port)
        // One thread is enough for operators, and it is not shared with the callers.
        settings.workerThreads = 1
        return settings
    }
}
