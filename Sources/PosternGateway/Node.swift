import Logging
import PosternAPI
import PosternCore
import PosternHTTP
import PosternProcess
import PosternStore
import PosternThreads
import PosternUpstream

/// This gateway as one of several that share a store. It listens before it has opened the store, so that probes and callers get
/// answers.
final class Node: Sendable {
    let memory: ByteBudget
    let listeners: any Listeners
    let ports: (main: UInt16, admin: UInt16?)
    private let main: NodeHandler
    private let admin: NodeHandler
    private let name: String
    private let logger: Logger

    /// Listens. Returns nil if the store is one that no other gateway can use.
    init?(_ loaded: ConfigurationLoader.LoadedConfiguration, logger: Logger) throws(AppError) {
        let configuration = loaded.configuration
        guard configuration.outbox.kind == .postgres else { return nil }
        self.logger = logger
        name = configuration.outbox.postgres.nodeName
        let server = configuration.server
        memory = server.memory
        let handler = { [name] (sdks: [SDKEndpoints]) in
            NodeHandler(
                node: name, callers: CallerPolicy(server), isOpen: configuration.auth.keys.isEmpty,
                sdks: SDKRefusals(sdks))
        }
        let sdks = loaded.upstreams.compactMap { ($0 as? any SDKServingUpstream)?.sdk }
        (main, admin) = (handler(sdks), handler([]))
        listeners = HTTPListeners(server, memory: memory, handler: main, admin: admin, logger: logger)
        ports = try listeners.start()
    }

    /// Passes requests to the gateway from now on.
    func pass(to handler: GatewayHandler, hasAdminListener: Bool) {
        main.pass(to: handler)
        if hasAdminListener { admin.pass(to: handler.admin) }
    }

    /// Joins the gateways that share the store, and opens it. Returns nil if `isCancelled` becomes true first.
    ///
    /// - Parameters:
    ///   - isCancelled: Asked several times a second.
    ///   - open: Opens the store. Called until it succeeds, unless this gateway keeps the store and the database is not the cause.
    func open(
        _ options: OutboxOptions, _ manager: ServiceManager?, isCancelled: () -> Bool,
        open: (StoreLease) throws(AppError) -> Services
    ) throws(AppError) -> Services? {
        logger.notice(
            "waiting for the store", metadata: ["node": "\(name)", "port": .stringConvertible(ports.main)])
        var (known, problem) = ("", "waiting for the store")
        var (services, failure) = (nil as Services?, nil as AppError?)
        var nextTry = MonotonicInstant.distantPast
        let lease: StoreLease
        do throws(StoreError) {
            guard let joined = try StoreLease.join(options, threads: DedicatedThreads(), logger: logger) else {
                return nil
            }
            lease = joined
            let isDone = {
                guard services == nil, failure == nil, SystemTime().instant >= nextTry else { return failure != nil }
                do throws(AppError) {
                    services = try open(lease)
                } catch {
                    if lease.isKeeper, !error.isOfDatabase { failure = error }
                    problem = "\(error)"
                    nextTry = SystemTime().instant + .seconds(1)
                }
                return services != nil || failure != nil
            }
            let isOpen = try lease.wait(until: isDone, isCancelled: isCancelled) { reason in
                let reason = reason ?? problem
                // The service manager must not take the wait for a start that hangs.
                manager?.notify(["READY=1", "WATCHDOG=1", "STATUS=\(reason.printable())"])
                _ = listeners.renewCertificates()
                guard reason != known else { return }
                known = reason
                main.wait(because: reason)
                admin.wait(because: reason)
                logger.notice("cannot open the store yet", metadata: ["reason": "\(reason)"])
            }
            guard isOpen else { return nil }
        } catch {
            throw .store(error)
        }
        guard let failure else { return services }
        lease.leave()
        throw failure
    }
}

extension AppError {
    /// Whether the database of a shared store is the cause, so that the same may succeed later.
    fileprivate var isOfDatabase: Bool { if case .store(let reason) = self { reason.isOfDatabase } else { false } }
}
