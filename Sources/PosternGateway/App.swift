import Foundation
public import Logging
import PosternAPI
import PosternCore
import PosternDelivery
import PosternHTTP
import PosternMetrics
public import PosternProcess
import PosternStore
import PosternThreads
import PosternTransport
import PosternUpstream

/// The running gateway: builds the parts, starts them, and stops them in the reverse order.
public final class App: Sendable {
    /// The options of `postern serve`.
    public struct Options: Sendable {
        var configFile: ConfigurationFile
        /// Whether to run the simulators and point the upstreams at them.
        var simulate: Bool
        /// The port of the first simulator; the others follow. 0 lets the system choose. Nil: the default, or if that is in
        /// use, others.
        var simulatorPort: UInt16?
        /// Whether to set a damaged store aside and start with an empty one.
        var startFresh: Bool
        /// Whether to repair a damaged write-ahead log. A copy of the store is kept.
        var recover: Bool

        public init(
            configFile: ConfigurationFile, simulate: Bool = false, simulatorPort: UInt16? = nil,
            startFresh: Bool = false, recover: Bool = false
        ) {
            self.configFile = configFile
            self.simulate = simulate
            self.simulatorPort = simulatorPort
            self.startFresh = startFresh
            self.recover = recover
        }
    }

    /// Appended to the path of the store in a run with simulators.
    static let simulatedStoreSuffix = ".simulated"
    /// Appended to the schema of a PostgreSQL store likewise.
    static let simulatedSchemaSuffix = "_simulated"

    private let options: Options
    private let logger: Logger
    private let signals: Signals

    public init(_ options: Options, signals: Signals, logger: Logger) {
        self.options = options
        self.signals = signals
        self.logger = logger
    }

    /// Runs until a stop signal arrives; after a second one it stops without waiting. Blocks.
    public func run() throws(AppError) {
        try SystemLimits.raiseDescriptors()
        let simulators = try startSimulators()
        defer { simulators?.stop() }
        let loaded = try load(simulators)
        StandardErrorLog.setLevel(loaded.configuration.log.level)
        warn(of: loaded)
        try SystemLimits.checkThreads(for: loaded.configuration)
        let manager = ServiceManager(environment: ProcessInfo.processInfo.environment)
        let node = try Node(loaded, logger: logger)
        defer { node?.listeners.stop() }
        guard let (services, hasReloaded) = try open(loaded, as: node, manager) else {
            return logger.notice("stopped")
        }
        do {
            let ports = try services.start()
            announce(services, ports, simulators: simulators)
        } catch {
            services.abandon()
            throw error
        }
        // A signal that came before the store was open.
        if hasReloaded { reload(services, simulators) }
        DedicatedThreads().drive(
            Supervisor(
                signals,
                reload: { [self] in
                    manager?.notifyOfReload()
                    reload(services, simulators)
                    manager?.notify(["READY=1"])
                }, tasks: tasks(services, manager), isOver: { services.loss != nil }))
        let loss = services.loss
        manager?.notify(["STOPPING=1", "STATUS=Stopping"])
        var isHurried = false
        services.stop {
            isHurried = isHurried || signals.take() == .stop
            return isHurried
        }
        logger.notice("stopped")
        if let loss { throw .store(loss) }
    }

    /// Opens the store. Returns nil if a signal has stopped it before that.
    private func open(
        _ loaded: ConfigurationLoader.LoadedConfiguration, as node: Node?, _ manager: ServiceManager?
    ) throws(AppError) -> (services: Services, hasReloaded: Bool)? {
        guard let node else { return (try Services(loaded, options, logger: logger), false) }
        var hasReloaded = false
        var store = loaded.configuration.outbox.located
        store.postgres.configDigest = loaded.digest
        let services = try node.open(store, manager) { [signals] in
            while let signal = signals.take() {
                if signal == .stop { return true }
                hasReloaded = true
            }
            return false
        } open: { [options, logger] (lease) throws(AppError) in
            try Services(loaded, options, sharing: lease, as: node, logger: logger)
        }
        return services.map { ($0, hasReloaded) }
    }

    private func tasks(_ services: Services, _ manager: ServiceManager?) -> [Supervisor.Task] {
        var memory = FreeMemory()
        var tasks = [
            Supervisor.Task(period: .seconds(5)) { services.endRetired() },
            .init(period: FreeMemory.period) { [logger] in memory.release(at: SystemTime(), logger) },
        ]
        if services.isShared { tasks.append(.init(period: .milliseconds(100)) { services.balance() }) }
        if services.hasCertificate {
            tasks.append(.init(period: Supervisor.certificatePeriod) { services.checkCertificate() })
        }
        if let manager {
            var report = ServiceReport()
            tasks.append(
                .init(period: ServiceReport.period(manager.watchdogPeriod)) {
                    // The start is announced again if that was lost.
                    var next = report
                    if manager.notify(next.message(on: services.condition)) { report = next }
                })
        }
        return tasks
    }

    private func warn(of loaded: ConfigurationLoader.LoadedConfiguration) {
        for warning in loaded.warnings {
            logger.warning(
                "configuration may contain a mistake",
                metadata: ["path": "\(warning.path)", "detail": "\(warning.detail)"])
        }
    }

    private func announce(_ services: Services, _ ports: (main: UInt16, admin: UInt16?), simulators: Simulators?) {
        for (type, url) in (simulators?.urls ?? [:]).sorted(by: { $0.key < $1.key }) {
            logger.notice("simulator started", metadata: ["type": "\(type)", "url": "\(url)"])
        }
        services.outbox.keyRotation.log(to: logger)
        warnOfMissingSettings(services.upstreams.map(\.queue.upstream))
        warnOfDisabledUpstreams(services)
        let server = services.configuration.server
        var metadata: Logger.Metadata = [
            "version": "\(PosternVersion.current)", "host": "\(server.http.host)",
            "port": .stringConvertible(ports.main),
            "store": "\(services.outbox.path)",
            "upstreams": "\(services.upstreams.map(\.name.description).joined(separator: ","))",
        ]
        if let port = ports.admin { metadata["admin"] = "\(server.admin.host):\(port)" }
        logger.notice("started", metadata: metadata)
    }

    private func warnOfMissingSettings(_ upstreams: [AnyUpstream]) {
        for upstream in upstreams where !upstream.missingSettings.isEmpty {
            logger.warning(
                "upstream lacks required settings; messages wait",
                metadata: [
                    "upstream": "\(upstream.name)", "settings": "\(upstream.missingSettings.joined(separator: ","))",
                ])
        }
    }

    private func warnOfDisabledUpstreams(_ services: Services) {
        let outbox = services.outbox
        do throws(StoreError) {
            let served = Set(services.upstreams.map(\.queue.number))
            for upstream in try outbox.disabledUpstreams(besides: served) {
                logger.warning(
                    "upstream is disabled or not configured; messages wait",
                    metadata: [
                        "upstream": "\(upstream.name)", "type": "\(upstream.type)",
                        "queued": .stringConvertible(outbox.ledger(of: upstream.number).queued),
                    ])
            }
        } catch {
            logger.error("cannot read the store", metadata: ["error": "\(error)"])
        }
    }

    // MARK: Configuration

    private func startSimulators() throws(AppError) -> Simulators? {
        guard options.simulate else { return nil }
        do throws(Simulators.Failure) {
            return try Simulators(port: options.simulatorPort)
        } catch .ports(let detail) where options.simulatorPort == nil {
            logger.warning(
                "the default ports of the simulators are in use; using others", metadata: ["error": "\(detail)"])
        } catch {
            throw AppError(error)
        }
        do throws(Simulators.Failure) { return try Simulators(port: 0) } catch { throw AppError(error) }
    }

    private func load(_ simulators: Simulators?) throws(AppError) -> ConfigurationLoader.LoadedConfiguration {
        var loader = ConfigurationLoader(file: options.configFile)
        loader.simulators = simulators?.urls ?? [:]
        loader.simulatedKey = simulators?.encryptionKey
        do throws(ConfigurationProblems) {
            var loaded = try loader.load()
            // What simulators accept counts as delivered, so a real backlog must not reach them.
            if simulators != nil {
                loaded.configuration.outbox.path += Self.simulatedStoreSuffix
                loaded.configuration.outbox.postgres.schema += Self.simulatedSchemaSuffix
            }
            return loaded
        } catch {
            throw .configuration(error)
        }
    }

    /// Applies what can change while running. An invalid file changes nothing.
    private func reload(_ services: Services, _ simulators: Simulators?) {
        let loaded: ConfigurationLoader.LoadedConfiguration
        do throws(AppError) {
            if let problem = options.configFile.problemOfReload {
                throw .configuration(ConfigurationProblems([problem]))
            }
            loaded = try load(simulators)
        } catch {
            logger.error("configuration not reloaded; keeping the previous one", metadata: ["error": "\(error)"])
            return
        }
        warn(of: loaded)
        let plan = services.reload(loaded)
        warnOfMissingSettings(services.upstreams.map(\.queue.upstream).filter { plan.added.contains($0.name) })
        if !plan.removed.isEmpty { warnOfDisabledUpstreams(services) }
        logger.notice(
            "configuration reloaded",
            metadata: [
                "changed": "\(plan.live.joined(separator: ","))",
                "needsRestart": "\(plan.needsRestart.joined(separator: ","))",
            ])
    }
}
