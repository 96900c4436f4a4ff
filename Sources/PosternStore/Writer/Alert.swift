public import PosternCore

/// The conditions that callbacks tell, by their names in the configuration.
public enum AlertEvent: String, CaseIterable, Sendable {
    /// The health of the upstream is `down`.
    case upstreamDown = "upstream.down"
    /// The upstream works again after an outage that was told.
    case upstreamUp = "upstream.up"
    /// The health of the upstream is `unauthorized`.
    case upstreamUnauthorized = "upstream.unauthorized"
    /// Messages of the upstream are held because too many others were rejected.
    case guardHeld = "guard.held"
    /// The oldest queued message of the upstream has been due for longer than `delivery.queueOldSeconds`.
    case queueOld = "queue.old"
    /// Messages were dropped, because a queue or the disk is full.
    case messagesDropped = "messages.dropped"
    /// The disk is full, so that messages are rejected.
    case diskFull = "disk.full"
}

extension AlertEvent {
    /// The event that says why messages wait; nil for a reason that is no alert.
    ///
    /// - Parameter reason: As in `waitingFor` of the API.
    public init?(waitingFor reason: String) {
        guard reason == "guard" else { return nil }
        self = .guardHeld
    }
}

/// An event of one upstream, or of the gateway itself. There is one at most in a minute.
public struct AlertKey: Hashable, Sendable, CustomStringConvertible {
    public let event: AlertEvent
    /// Nil if the event concerns the gateway itself.
    public let upstream: UpstreamName?

    public init(_ event: AlertEvent, _ upstream: UpstreamName?) { (self.event, self.upstream) = (event, upstream) }

    /// The `key` of the messages that tell it.
    public var description: String { upstream.map { "\(event.rawValue)/\($0)" } ?? event.rawValue }
}

/// What happened, for the callbacks that ask for it.
public struct Alert: Sendable, Equatable {
    let key: AlertKey
    /// The payload of the event.
    let bytes: [UInt8]

    public init(_ key: AlertKey, _ bytes: [UInt8]) { (self.key, self.bytes) = (key, bytes) }
}

/// What became of alerts.
public enum AlertOutcome: Sendable, Equatable {
    /// The events are stored, together with this record. `own`: how many of them did not fit into the queues of
    /// upstreams, and were dropped.
    case told(record: [UInt8], own: [UpstreamName: Int])
    /// The store has another record than expected: a commit succeeded that seemed to have failed. Nothing was stored.
    case outdated(record: [UInt8]?)
    /// The disk has no room. Nothing was stored.
    case noRoom
}

extension Outbox {
    /// Whether a callback asks for alerts. The keeper of a store tells them.
    public var tellsAlerts: Bool { isKeeper && callbacks?.contains { !$0.alerts.isEmpty } == true }

    /// Whether a callback asks for that event.
    public func tells(_ alert: AlertKey) -> Bool { callbacks?.contains { $0.tells(alert) } ?? false }

    /// What was stored with the last alerts; nil if there were none.
    public func alertRecord() throws(StoreError) -> [UInt8]? { try read { try AlertRecordRow.read(with: $0) } }

    /// Stores `alerts` as events for the callbacks that ask for them, and a record of what was told, in one
    /// transaction. `completion` runs on the writer's thread after the commit.
    ///
    /// - Parameters:
    ///   - former: The record that the store has.
    ///   - record: The next one. Its argument is `own` of the outcome.
    public func tell(
        _ alerts: [Alert], after former: [UInt8]?,
        recording record: @escaping @Sendable ([UpstreamName: Int]) -> [UInt8],
        completion: @escaping @Sendable (Result<AlertOutcome, StoreError>) -> Void
    ) {
        writer.change(
            { transaction in
                let found = try AlertRecordRow.read(with: transaction.sql)
                guard found == former else { return .outdated(record: found) }
                guard let own = try transaction.store(alerts) else { return .noRoom }
                let next = record(own)
                try AlertRecordRow.write(next, with: transaction.sql)
                return .told(record: next, own: own)
            }, completion: completion)
    }
}

/// The record of alerts is state as upstreams have it, of the gateway itself: no upstream has the number 0.
private enum AlertRecordRow {
    private static let key = "alerts"

    static func read(with sql: SQL) throws -> [UInt8]? {
        try sql.value("SELECT value FROM state WHERE upstream = 0 AND key = ?", key, as: [UInt8].self)
    }

    static func write(_ record: [UInt8], with sql: SQL) throws {
        try sql.run(
            """
            INSERT INTO state (upstream, key, value) VALUES (0, ?, ?)
            ON CONFLICT (upstream, key) DO UPDATE SET value = excluded.value
            """, key, record)
    }
}
