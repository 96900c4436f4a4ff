public import PosternCore
public import PosternUpstream
import Synchronization

/// How requests reach one upstream: a transport, and the settings of its transfers. Any thread may use it, whether a worker
/// sends from the upstream's queue or not.
public final class UpstreamClient: Sendable {
    let transport: any Transport
    private let time: any TimeSource
    private let current: Mutex<TransferOptions>

    public init(_ name: UpstreamName, _ settings: DeliverySettings, _ dependencies: UpstreamWorker.Dependencies) {
        transport = dependencies.transport
        time = dependencies.time
        var options = settings.transfer
        options.connections = TransferOptions.ConnectionGroup(name.description)
        current = Mutex(options)
    }

    /// Timeouts, TLS and connections.
    var options: TransferOptions { current.withLock { $0 } }

    /// Sends a request that carries no message, outside the queue and independently of its waits. `isAbortable`:
    /// whether cancelling the task aborts it.
    public func send(_ request: UpstreamRequest, timeout: Duration, isAbortable: Bool) async -> TransferResult {
        var options = options
        options.requestTimeout = timeout
        return await transport.send(request, options: options, isAbortable: isAbortable)
    }

    /// Continues with new settings, on new connections.
    func apply(_ settings: DeliverySettings) {
        let renewedAt = time.instant
        current.withLock { current in
            var options = settings.transfer
            options.connections = current.connections
            options.connections.renewedAt = renewedAt
            current = options
        }
    }

    /// Sends no further request on a connection that is open now, and resolves names again.
    public func renewConnections() {
        let renewedAt = time.instant
        current.withLock { $0.connections.renewedAt = renewedAt }
    }
}
