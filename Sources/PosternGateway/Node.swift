import Logging
import PosternAPI
import PosternCore
import PosternHTTP
import PosternProcess
import PosternStore
import PosternThreads
import PosternUpstream

/// This gateway as one of several that share a store. It listens before it has opened the store, so that probes and callers get
/// answers, and keeps its ports when it takes over.
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

    /// Answers by itself again.
    func takeBack() {
        main.pass(to: nil)
        admin.pass(to: nil)
    }

    /// Waits until this gateway owns the store. Returns nil if `isCancelled` becomes true first.
    ///
    /// - Parameters:
    ///   - isCancelled: Asked several times a second, with what answers meanwhile, which it stops before it returns true.
    ///   - open: Makes that. Called until it succeeds.
    func takeStore(
        _ options: OutboxOptions, _ manager: ServiceManager?, isCancelled: (Services?) -> Bool,
        open: (StoreLease) throws(AppError) -> Services
    ) throws(AppError) -> StoreLease? {
        logger.notice(
            "waiting for the store", metadata: ["node": "\(name)", "port": .stringConvertible(ports.main)])
        var (known, problem) = ("", "")
        var (services, nextTry) = (nil as Services?, MonotonicInstant.distantPast)
        defer { services?.endWithoutStore() }
        do throws(StoreError) {
            guard let lease = try StoreLease.join(options, threads: DedicatedThreads(), logger: logger) else {
                return nil
            }
            let isStopped = {
                guard isCancelled(services) else { return false }
                services = nil
                return true
            }
            let isOwner = try lease.wait(isCancelled: isStopped) { reason in
                if services == nil, lease.hasJoined, SystemTime().instant >= nextTry {
                    // The owner may still have to make the queues, and the database may be away.
                    do throws(AppError) {
                        services = try open(lease)
                        services?.startWithoutStore()
                    } catch {
                        if "\(error)" != problem {
                            logger.notice(
                                "cannot accept messages yet; the owner needs the same upstreams",
                                metadata: ["error": "\(error)"])
                        }
                        problem = "\(error)"
                    }
                    nextTry = SystemTime().instant + .seconds(1)
                }
                // The service manager must not take the wait for a start that hangs.
                let status = (services == nil ? "" : "Accepting messages; ") + reason
                manager?.notify(["READY=1", "WATCHDOG=1", "STATUS=\(status.printable())"])
                _ = listeners.renewCertificates()
                guard reason != known else { return }
                known = reason
                main.wait(because: reason)
                admin.wait(because: reason)
                logger.notice("not the owner of the store", metadata: ["reason": "\(reason)"])
            }
            return isOwner ? lease : nil
        } catch {
            throw .store(error)
        }
    }
}
