import Glibc
import Logging
import PosternAPI
import PosternCore
import PosternDelivery
import PosternHTTP
import PosternMetrics
import PosternProcess
import PosternStore
import PosternTransport
import Synchronization

/// What the gateway is made of, in the order in which it starts.
final class Parts: Sendable {
    let outbox: Outbox
    private let fleet: DeliveryFleet
    private let transport: CurlLoop
    private let server: HTTPServer
    /// For operators.
    private let adminServer: HTTPServer?
    private var servers: [HTTPServer] { [server] + (adminServer.map { [$0] } ?? []) }
    private let context: APIContext
    private let handler: GatewayHandler
    private let logger: Logger
    private let time = SystemTime()
    private let current: Mutex<GatewayConfiguration>
    private let certificateWarning = Mutex(CertificateWarning())

    var configuration: GatewayConfiguration { current.withLock { $0 } }

    init(_ loaded: ConfigurationLoader.Loaded, _ options: App.Options, logger: Logger) throws(AppError) {
        let configuration = loaded.configuration
        let metrics = Metrics()
        let memory = configuration.server.memory
        self.logger = logger
        current = Mutex(configuration)
        do throws(StoreError) {
            outbox = try Outbox(
                configuration.outbox.located, startFresh: options.startFresh, recover: options.recover,
                time: time, metrics: metrics, logger: logger)
        } catch {
            throw .store(error)
        }
        do throws(CurlLoop.StartFailure) {
            transport = try CurlLoop(.init(version: PosternVersion.current))
        } catch {
            outbox.close()
            throw .cannotListen("\(error)")
        }
        do throws(StoreError) {
            var workers: [UpstreamWorker] = []
            var described: [(type: String, worker: UpstreamWorker)] = []
            let parts = UpstreamWorker.Parts(
                outbox: outbox, transport: transport, time: time, metrics: metrics, logger: logger)
            for upstream in loaded.upstreams {
                guard let settings = configuration.upstreams.first(where: { $0.name == upstream.name }) else {
                    continue
                }
                let queue = try outbox.register(upstream, type: settings.type, cap: settings.queue)
                let worker = try UpstreamWorker(
                    queue: queue, settings: settings.deliverySettings, parts: parts)
                workers.append(worker)
                described.append((settings.type, worker))
            }
            try outbox.registerStored()
            try outbox.markDisabled()
            let fleet = DeliveryFleet(workers, outbox: outbox, time: time)
            self.fleet = fleet
            context = APIContext(
                outbox: outbox, upstreams: described, limits: configuration.server.limits, memory: memory,
                isSimulated: options.simulate, time: time, metrics: metrics, logger: logger,
                stalledWorkers: { fleet.stalledWorkers(at: SystemTime().instant) })
        } catch {
            transport.stop()
            outbox.close()
            throw .store(error)
        }
        let adminSettings = configuration.server.adminHTTP
        handler = GatewayHandler(
            context, callers: CallerPolicy(configuration.server), hasAdminListener: adminSettings != nil)
        handler.adopt(configuration.auth.keys, opensMetrics: configuration.auth.openMetrics)
        server = HTTPServer(configuration.server.http, memory: memory, handler: handler, logger: logger)
        adminServer = adminSettings.map { [handler] in
            HTTPServer($0, memory: memory, handler: handler.admin, logger: logger)
        }
    }

    /// Starts to deliver, then to listen. Returns the ports.
    func start() throws(AppError) -> (main: UInt16, admin: UInt16?) {
        raiseDescriptorLimit()
        fleet.start()
        let admin = try adminServer.map { server throws(AppError) in try start(server) }
        do throws(AppError) {
            let main = try start(server)
            lookAtCertificate()
            return (main, admin)
        } catch {
            adminServer?.stopAndWait(grace: .zero)
            throw error
        }
    }

    private func start(_ server: HTTPServer) throws(AppError) -> UInt16 {
        do throws(HTTPServerError) { return try server.start() } catch { throw .cannotListen("\(error)") }
    }

    /// Each connection takes a descriptor; the system's soft limit is often 1024.
    private func raiseDescriptorLimit() {
        var limit = rlimit()
        guard getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { return }
        limit.rlim_cur = limit.rlim_max
        setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
    }

    /// Closes what was opened when the start failed.
    func abandon() {
        fleet.stop(deadline: time.instant) { transport.stop() }
        outbox.close()
    }

    var upstreamNames: [UpstreamName] { fleet.workers.map(\.name) }
    var upstreams: [RegisteredUpstream] { fleet.workers.map(\.queue.upstream) }

    /// Unready → no new connections → running requests answered → nothing claimed any more → transfers end or are
    /// cancelled → claims given back → store closed. All within the grace period; hurried, without waiting.
    func stop(isHurried: () -> Bool) {
        let deadline = time.instant + configuration.server.shutdownGrace
        logger.notice("stopping", metadata: ["graceSeconds": "\(configuration.server.shutdownGrace.inSeconds)"])
        context.beginDraining()
        for server in servers { server.stopAccepting() }
        fleet.beginStopping()
        wait(until: deadline, or: isHurried) { servers.allSatisfy { $0.runningRequests == 0 } }
        for server in servers { server.stopAndWait(grace: .zero) }
        wait(until: deadline, or: isHurried) { fleet.workers.allSatisfy { $0.snapshot.inFlight == 0 } }
        fleet.stop(deadline: time.instant) { transport.stop() }
        context.stop()
        outbox.close()
    }

    private func wait(until deadline: MonotonicInstant, or isHurried: () -> Bool, _ isDone: () -> Bool) {
        let pause = Inbox<Void>()
        while !isDone(), time.instant < deadline, !isHurried() {
            _ = outbox.threads.take(from: pause, until: outbox.threads.instant + .milliseconds(10))
        }
    }

    var hasCertificate: Bool { server.certificateExpiry != nil }

    /// Takes up TLS files that have changed, and warns of a certificate that is about to end.
    func lookAtCertificate() {
        defer { context.showCertificateExpiry(server.certificateExpiry) }
        var isRenewed = false
        var failure: HTTPServerError?
        for server in servers {
            do throws(HTTPServerError) { isRenewed = try server.renewCertificate() || isRenewed } catch {
                failure = error
            }
        }
        if let failure {
            logger.error(
                "new TLS files cannot be used; the former ones stay", metadata: ["error": "\(failure.detail)"])
        } else if isRenewed, let expiresAt = server.certificateExpiry {
            logger.notice("certificate renewed", metadata: ["expiresAt": "\(expiresAt)"])
        }
        guard let expiresAt = server.certificateExpiry,
            let days = certificateWarning.withLock({ $0.daysLeft(until: expiresAt, now: time.now) })
        else { return }
        logger.warning("certificate ends soon", metadata: ["expiresAt": "\(expiresAt)", "daysLeft": "\(days)"])
    }

    /// Puts a new configuration in force as far as it can change while running.
    func adopt(_ loaded: ConfigurationLoader.Loaded) -> ReloadPlan {
        let plan = configuration.changes(to: loaded.configuration)
        current.withLock { $0 = plan.configuration }
        if plan.changesKeys {
            handler.adopt(plan.configuration.auth.keys, opensMetrics: plan.configuration.auth.openMetrics)
        }
        if plan.changesLogLevel { StandardErrorLog.setLevel(plan.configuration.log.level) }
        for name in plan.upstreams {
            guard let worker = fleet.worker(named: name),
                let settings = plan.configuration.upstreams.first(where: { $0.name == name }),
                let upstream = loaded.upstreams.first(where: { $0.name == name })
            else { continue }
            do {
                try worker.queue.replace(upstream)
            } catch {
                logger.error(
                    "cannot store the kinds of a reloaded upstream; it keeps its former settings",
                    metadata: ["upstream": "\(name)", "error": "\(error)"])
                continue
            }
            worker.adopt(settings.deliverySettings, upstream: upstream)
        }
        if !plan.upstreams.isEmpty { handler.refreshUpstreams() }
        return plan
    }
}

// MARK: From the operator's units to the parts'

extension GatewayConfiguration.UpstreamConfiguration {
    /// `delivery` with what else concerns transfers.
    var deliverySettings: DeliverySettings {
        var settings = delivery
        settings.transfer.trust = caFile.isEmpty ? .system : .authorities(file: caFile)
        return settings
    }
}

extension CallerPolicy {
    // Keys do not change this as long as no request is asked for one.
    init(_ settings: GatewayConfiguration.Server) {
        // The names that the gateway listens under are its own.
        self.init(
            hosts: settings.hosts + [settings.http.host, settings.admin.host].filter { !$0.isEmpty },
            origins: settings.corsOrigins, servesTLS: settings.http.tls.isOn)
    }
}

extension GatewayConfiguration.Server {
    /// For bodies and large responses of all listeners.
    var memory: ByteBudget { ByteBudget(maxBodyMemoryBytes > 0 ? maxBodyMemoryBytes : MemoryLimit.bytes() / 2) }

    /// The listener for operators; nil if there is none.
    var adminHTTP: HTTPServerSettings? {
        guard admin.isOn else { return nil }
        var settings = http
        (settings.host, settings.port) = (admin.host, admin.port)
        // One is enough for what operators ask, and it is not shared with the callers.
        settings.workerThreads = 1
        return settings
    }
}
