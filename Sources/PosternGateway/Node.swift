import Logging
import PosternAPI
import PosternCore
import PosternHTTP
import PosternProcess
import PosternStore
import PosternThreads

/// This gateway as one of several that share a store. It listens before it owns the store, so that probes and callers get
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
    init?(_ configuration: GatewayConfiguration, logger: Logger) throws(AppError) {
        guard configuration.outbox.kind == .postgres else { return nil }
        self.logger = logger
        name = configuration.outbox.postgres.nodeName
        let server = configuration.server
        memory = server.memory
        let handler = { [name] in
            NodeHandler(
                node: name, callers: CallerPolicy(server), isOpen: configuration.auth.keys.isEmpty)
        }
        (main, admin) = (handler(), handler())
        listeners = HTTPListeners(server, memory: memory, handler: main, admin: admin, logger: logger)
        ports = try listeners.start()
    }

    /// Passes requests to the gateway from now on.
    func pass(to handler: GatewayHandler, hasAdminListener: Bool) {
        main.pass(to: handler)
        if hasAdminListener { admin.pass(to: handler.admin) }
    }

    /// Waits until this gateway owns the store. Returns nil if `isCancelled` becomes true first.
    func takeStore(
        _ options: OutboxOptions, _ manager: ServiceManager?, isCancelled: () -> Bool
    ) throws(AppError) -> StoreLease? {
        logger.notice(
            "waiting for the store", metadata: ["node": "\(name)", "port": .stringConvertible(ports.main)])
        var known = ""
        do throws(StoreError) {
            return try StoreLease.wait(
                options, threads: DedicatedThreads(), logger: logger, isCancelled: isCancelled
            ) { reason in
                // The service manager must not take the wait for a start that hangs.
                manager?.notify(["READY=1", "WATCHDOG=1", "STATUS=\(reason.printable())"])
                _ = listeners.renewCertificates()
                guard reason != known else { return }
                known = reason
                main.wait(because: reason)
                admin.wait(because: reason)
                logger.notice("store is not available yet", metadata: ["reason": "\(reason)"])
            }
        } catch {
            throw .store(error)
        }
    }
}
