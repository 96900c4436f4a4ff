public import PosternCore

extension TransferOptions {
    /// Transfers that may use each other's connections: those to one upstream.
    public struct ConnectionGroup: Sendable, Equatable {
        /// The upstream, or empty.
        public var name: String
        /// Connections that were opened until then take no further request. Nil: they may.
        public var renewedAt: MonotonicInstant?

        public init(_ name: String = "") { self.name = name }
    }
}

/// Decides which connections a transfer may use: a pool for each group, which is replaced as a whole.
///
/// That happens when the pool's first request is as long ago as a connection may be used, after a request that timed
/// out, and when the group was renewed. Names are resolved once for each pool, or more often. What is in flight on
/// the connections of a former pool ends there; a pool closes its connections when nothing refers to it any longer.
package struct ConnectionPools<Pool: AnyObject> {
    private struct Entry {
        let pool: Pool
        let openedAt: MonotonicInstant
        let expiresAt: MonotonicInstant
    }
    private var entries: [String: Entry] = [:]

    package init() {}

    /// The pool for a transfer that starts `now`; `open` returns a new one, or nil if there is not enough memory.
    package mutating func pool(
        for options: TransferOptions, at now: MonotonicInstant, open: () -> Pool?
    ) -> Pool? {
        let group = options.connections
        if let entry = entries[group.name], now < entry.expiresAt,
            group.renewedAt.map({ $0 < entry.openedAt }) ?? true
        {
            return entry.pool
        }
        guard let pool = open() else { return nil }
        // The caller's clock may be a moment ahead of `now`.
        let openedAt = max(now, group.renewedAt.map { $0 + .nanoseconds(1) } ?? now)
        entries[group.name] = Entry(pool: pool, openedAt: openedAt, expiresAt: now + options.connectionMaxAge)
        return pool
    }

    /// Gives no further transfer that pool.
    package mutating func retire(_ pool: Pool) { entries = entries.filter { $0.value.pool !== pool } }

    /// Retires the pools that are too old. Returns when the next one will be; nil if there is none.
    package mutating func retireExpired(at now: MonotonicInstant) -> MonotonicInstant? {
        if entries.values.contains(where: { $0.expiresAt <= now }) {
            entries = entries.filter { now < $0.value.expiresAt }
        }
        return entries.values.map(\.expiresAt).min()
    }

    package mutating func removeAll() { entries = [:] }
}
