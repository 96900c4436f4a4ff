public import PosternCore
public import PosternStore
public import PosternUpstream

/// A request of an operator that concerns a whole upstream.
public enum UpstreamAction: String, Sendable { case flush, pause, resume }

/// A configured upstream of a running gateway: messages are accepted for it, and it can be called, whether this process
/// sends from its queue or not.
public struct ServedUpstream: Sendable {
    public let type: String
    public let queue: QueueTarget
    public let client: UpstreamClient
    /// Sends from the queue; nil while this process does not.
    public var worker: UpstreamWorker?
    public var name: UpstreamName { queue.name }

    public init(type: String, queue: QueueTarget, client: UpstreamClient, worker: UpstreamWorker? = nil) {
        self.type = type
        self.queue = queue
        self.client = client
        self.worker = worker
    }

    public init(type: String, worker: UpstreamWorker) {
        self.init(type: type, queue: worker.queue.target, client: worker.client, worker: worker)
    }

    /// The status, as the worker has published it. Without a worker, as the store has it, which blocks.
    public func snapshot(in outbox: Outbox, now: Timestamp) -> UpstreamSnapshot {
        if let worker { return worker.snapshot }
        // A store that cannot be read is reported where messages are.
        let summary = (try? outbox.summary(of: queue.number)) ?? nil
        return summary.flatMap { UpstreamSnapshot(stored: $0, now: now) } ?? UpstreamSnapshot()
    }

    /// Carries out the request of an operator, soon. If no worker takes it, its effect on the queue is stored. The next
    /// worker begins with that, also one that has begun meanwhile.
    ///
    /// - Parameters:
    ///   - key: The name of the operator's key.
    ///   - completion: Called when a flush has ended, as that of `UpstreamWorker.flush`. With nil if no worker takes it,
    ///     since this process does not know how it ends.
    public func steer(
        _ action: UpstreamAction, in outbox: Outbox, by key: String? = nil, at now: Timestamp,
        completion: @escaping @Sendable (FlushReport?) -> Void = { _ in }
    ) {
        let order = Pause(by: key, at: now)
        if let worker, worker.take(action, order, completion: completion) { return }
        switch action {
        case .flush:
            client.renewConnections()
            outbox.flush(queue) { completion(nil) }
        case .pause: outbox.setPause(order, of: queue)
        case .resume:
            client.renewConnections()
            outbox.setPause(nil, of: queue)
        }
    }

    /// Continues with new settings. `upstream`: see `UpstreamWorker.apply`.
    public func apply(_ settings: DeliverySettings, upstream: (any Upstream)? = nil) {
        queue.collect(as: settings)
        if let worker { worker.apply(settings, upstream: upstream) } else { client.apply(settings) }
    }
}

extension QueueTarget {
    /// Collects messages as the settings say, within what the upstream's type allows.
    public func collect(as settings: DeliverySettings) {
        collect(
            upTo: upstream.limits(settings.limits), for: settings.batchMaxWait, expireAfter: settings.expireAfter)
    }
}
