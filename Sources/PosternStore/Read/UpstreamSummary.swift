import Logging
public import PosternCore

/// The stored summary of one upstream, configured or not.
public struct UpstreamSummary: Sendable, Equatable {
    public var name: UpstreamName
    public var number: UpstreamNumber
    /// The type with which it was registered last.
    public var type: String
    public var ledger: Ledger
    /// The health as the worker last stored it; nil if the stored record is not valid.
    public var circuit: CircuitRecord?
    /// Stored, so it outlives a restart. Nil unless the upstream is paused.
    public var pause: Pause?
    /// The last message that flushes have covered so far.
    public var flushedThrough = MessageID(rawValue: 0)
    /// When the oldest queued message was accepted, if that was requested.
    public var oldestQueuedAt: Timestamp?

    /// The messages that are sent, or can be queued again.
    private var unsent: Int {
        ledger.queued + ledger.failed - ledger.purged.failed + ledger.dropped - ledger.purged.dropped
    }

    /// Why this name cannot be configured as `type`; nil if it can.
    public func problem(as type: String) -> StoreError? {
        guard self.type != type, unsent > 0 else { return nil }
        return .otherType(upstream: "\(name)", former: self.type, type: type, messages: unsent)
    }

    /// All upstreams, by name, without counting rows: quick however many messages are queued. `withTails`: with what their
    /// rows do not count.
    static func all(with sql: SQL, withTails: Bool = true) throws -> [UpstreamSummary] {
        let stored = try sql.all(
            """
            SELECT number, name, type, circuit, isPaused, flushedThrough,
              lastId, accepted, queuedBytes, ambiguousSends, queued, delivered, failed, cancelled, dropped, expired,
              purgedDelivered, purgedFailed, purgedCancelled, purgedDropped, purgedExpired, pausedBy, pausedAtMs
            FROM upstreams ORDER BY name
            """
        ) { row -> UpstreamSummary? in
            guard let name = UpstreamName(stored: row[1]) else { return nil }
            let ledger = Ledger(
                lastID: row[6], accepted: row[7], queuedBytes: row[8],
                counts: Ledger.Counts(
                    queued: row[10], delivered: row[11], failed: row[12], cancelled: row[13], dropped: row[14],
                    expired: row[15]),
                purged: Ledger.Counts(
                    delivered: row[16], failed: row[17], cancelled: row[18], dropped: row[19], expired: row[20]),
                ambiguousSends: row[9])
            return UpstreamSummary(
                name: name, number: row[0], type: row[2], ledger: ledger,
                circuit: JSONRecord.decode(row[3], as: CircuitRecord.self),
                pause: (row[4] as Bool) ? Pause(by: row[21], at: row[22]) : nil, flushedThrough: row[5])
        }
        return try stored.compactMap { $0 }.map { summary in
            guard withTails else { return summary }
            var summary = summary
            summary.ledger = try summary.ledger + .tail(of: summary.number, after: summary.ledger.lastID, with: sql)
            return summary
        }
    }
}

/// An operator's order not to send to an upstream.
public struct Pause: Sendable, Equatable {
    /// The name of the key with which it was ordered; nil if no key was required.
    public var key: String?
    /// Nil if that is not known: an earlier version stored the pause.
    public var at: Timestamp?

    public init(by key: String? = nil, at: Timestamp? = nil) { (self.key, self.at) = (key, at) }
}

extension StoreView {
    /// The ledgers, by name.
    public func summaries() throws(StoreError) -> [UpstreamSummary] {
        try read { reader in
            try UpstreamSummary.all(with: reader.sql).map { summary in
                var summary = summary
                summary.oldestQueuedAt = try reader.oldestQueued(of: summary.number, at: now)
                return summary
            }
        }
    }
}

extension Outbox {
    /// The stored health of an upstream that is being registered.
    public func summary(of number: UpstreamNumber) throws(StoreError) -> UpstreamSummary? {
        let summary = try read { sql in try UpstreamSummary.all(with: sql).first { $0.number == number } }
        if let summary, summary.circuit == nil {
            logger.error(
                "stored health record is not valid; starting without it", metadata: ["upstream": "\(summary.name)"])
        }
        return summary
    }

    /// When the latest request to any upstream was recorded as sent or ended; nil if there was none.
    public func latestAttempt() throws(StoreError) -> Timestamp? {
        try read { sql in
            try sql.value(
                """
                SELECT CASE WHEN endedAtMs > startedAtMs THEN endedAtMs ELSE startedAtMs END FROM attempts
                ORDER BY batch DESC LIMIT 1
                """, as: Timestamp.self)
        }
    }

    // MARK: Upstreams without a worker

    /// The name of an upstream in `disabledUpstreams`, without reading the store.
    public func disabledUpstream(named name: String, besides served: Set<UpstreamNumber>) -> UpstreamName? {
        names.first { $0.value.description == name && isDisabledWithMessages($0.key, besides: served) }?.value
    }

    /// The upstreams that have messages queued and are not `served`, by name: they are disabled, or no longer configured.
    /// One whose last requests are still in flight is among them. Reads the store only if there are any.
    public func disabledUpstreams(besides served: Set<UpstreamNumber>) throws(StoreError) -> [UpstreamSummary] {
        guard names.keys.contains(where: { isDisabledWithMessages($0, besides: served) }) else { return [] }
        return try read { try UpstreamSummary.all(with: $0) }
            .filter { isDisabledWithMessages($0.number, besides: served) }
    }

    private func isDisabledWithMessages(_ number: UpstreamNumber, besides served: Set<UpstreamNumber>) -> Bool {
        !served.contains(number) && ledger(of: number).queued > 0
    }
}
