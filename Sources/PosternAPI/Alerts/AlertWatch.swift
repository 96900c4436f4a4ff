import Foundation
import PosternCore
import PosternStore

/// Decides what alerts are due: each condition when it begins and when it has ended, and no event of an upstream more
/// than once a minute. A value: what is seen and the times are passed in.
///
/// Conditions that come and go within a minute are told as they are when the minute is over. So what was told last and
/// what is the case differ for a minute at most, and each outage that was told gets its end.
struct AlertWatch: Sendable {
    /// The least time between two equal events of one upstream.
    static let interval = Duration.seconds(60)

    /// What the store keeps, so that a restart neither repeats an alert nor forgets that a condition was told.
    struct Record: Codable, Equatable, Sendable {
        struct Condition: Codable, Equatable, Sendable {
            /// When the event was told last.
            var atMs: Int64
            /// Whether its condition was told as having begun, and not as having ended.
            var isFiring = false
            /// When the condition began that was told last.
            var sinceMs: Int64
        }
        /// By the texts of their keys.
        var conditions: [String: Condition] = [:]
        /// By upstream, how many of its dropped messages need not be told any more.
        var dropped: [String: Int] = [:]
    }

    /// What is seen of an upstream.
    struct Sight: Sendable {
        var name: UpstreamName
        /// Nil while it is not known, because an operator has stopped the sending.
        var isDown: Bool? = false
        var isUnauthorized: Bool? = false
        var isGuarded: Bool? = false
        /// Since when its oldest message has been due; nil unless that is too long.
        var oldSince: Timestamp?
        /// The messages in the state `dropped`, including those that are no longer stored.
        var dropped = 0
    }

    /// An alert that is due.
    struct Due: Equatable, Sendable {
        let key: AlertKey
        /// Whether the condition has ended.
        let isResolved: Bool
        let since: Timestamp
        /// How many messages were dropped; nil for other events.
        var dropped: Int?

        var status: String { isResolved ? "resolved" : "firing" }
    }

    private(set) var record: Record
    /// Since when conditions have been seen that have not ended.
    private var since: [String: Timestamp] = [:]
    /// When events may be told again.
    private var mayBeToldAt: [String: MonotonicInstant] = [:]
    /// Of each upstream, the dropped messages that were seen last, and those that have to be told.
    private var dropped: [UpstreamName: (seen: Int, untold: Int, since: Timestamp)] = [:]

    /// Continues from the record that the store has; nil if it has none. What was told in the last minute is not told
    /// again before that is over. If the clock was set back since, it waits a minute from now on.
    init(_ record: Record? = nil, now: Timestamp, instant: MonotonicInstant) {
        self.record = record ?? Record()
        for (key, condition) in self.record.conditions {
            let age = now - Timestamp(milliseconds: condition.atMs)
            if age < Self.interval { mayBeToldAt[key] = instant + (Self.interval - max(.zero, age)) }
            if condition.isFiring { since[key] = Timestamp(milliseconds: condition.sinceMs) }
        }
    }

    // MARK: Looking

    /// The alerts that are due. They count as told after `told`.
    ///
    /// - Parameter wants: Whether a callback asks for an event.
    mutating func look(
        at upstreams: [Sight], isDiskFull: Bool, now: Timestamp, instant: MonotonicInstant,
        wants: (AlertKey) -> Bool
    ) -> [Due] {
        var due: [Due] = []
        func look(_ begin: AlertEvent, _ end: AlertEvent, _ name: UpstreamName?, _ isActive: Bool?, from: Timestamp?) {
            let (begin, end) = (AlertKey(begin, name), AlertKey(end, name))
            guard let isActive, wants(begin) || wants(end) else { return }
            let began = "\(begin)"
            let wasTold = record.conditions[began]?.isFiring ?? false
            if isActive, since[began] == nil { since[began] = from ?? now }
            let since = since[began] ?? now
            if !isActive, !wasTold { self.since[began] = nil }
            let key = isActive ? begin : end
            guard isActive != wasTold, mayBeTold(key, at: instant) else { return }
            due.append(Due(key: key, isResolved: !isActive, since: since))
        }
        look(.diskFull, .diskFull, nil, isDiskFull, from: nil)
        for upstream in upstreams {
            let name = upstream.name
            look(.upstreamDown, .upstreamUp, name, upstream.isDown, from: nil)
            look(.upstreamUnauthorized, .upstreamUnauthorized, name, upstream.isUnauthorized, from: nil)
            look(.guardHeld, .guardHeld, name, upstream.isGuarded, from: nil)
            look(.queueOld, .queueOld, name, upstream.oldSince != nil, from: upstream.oldSince)
            let key = AlertKey(.messagesDropped, name)
            guard wants(key) else {
                dropped[name] = nil
                continue
            }
            let known = count(upstream, now: now)
            guard known.untold > 0, mayBeTold(key, at: instant) else { continue }
            due.append(Due(key: key, isResolved: false, since: known.since, dropped: known.untold))
        }
        return due
    }

    private func mayBeTold(_ key: AlertKey, at instant: MonotonicInstant) -> Bool {
        mayBeToldAt["\(key)"].map { $0 <= instant } ?? true
    }

    /// Dropped messages that are queued again leave the state.
    private mutating func count(_ upstream: Sight, now: Timestamp) -> (seen: Int, untold: Int, since: Timestamp) {
        let first = record.dropped["\(upstream.name)"] ?? upstream.dropped
        var known = dropped[upstream.name] ?? (first, 0, now)
        if known.untold == 0 { known.since = now }
        known.untold += max(0, upstream.dropped - known.seen)
        known.seen = upstream.dropped
        dropped[upstream.name] = known
        return known
    }

    /// Whether the record lacks from where the dropped messages of an upstream are counted.
    var lacksCounts: Bool { dropped.keys.contains { record.dropped["\($0)"] == nil } }

    // MARK: Telling

    /// The record once `due` is told at `now`.
    ///
    /// - Parameter own: How many of these very events were dropped, by upstream. To tell those would never end.
    func record(telling due: [Due], own: [UpstreamName: Int], now: Timestamp) -> Record {
        var next = record
        for (name, known) in dropped where next.dropped["\(name)"] == nil || due.contains(where: { $0.tells(name) }) {
            next.dropped["\(name)"] = known.seen
        }
        for (name, count) in own { next.dropped["\(name)"]? += count }
        for alert in due {
            let condition = Record.Condition(
                atMs: now.milliseconds, isFiring: !alert.isResolved && alert.dropped == nil,
                sinceMs: alert.since.milliseconds)
            next.conditions["\(alert.key)"] = condition
            if alert.isResolved { next.conditions["\(alert.began)"]?.isFiring = false }
        }
        return next
    }

    /// `due` is stored, with `record`.
    mutating func told(_ due: [Due], own: [UpstreamName: Int], _ record: Record, instant: MonotonicInstant) {
        self.record = record
        for alert in due {
            mayBeToldAt["\(alert.key)"] = instant + Self.interval
            if let name = alert.key.upstream, alert.dropped != nil { dropped[name]?.untold = 0 }
            if alert.isResolved { since["\(alert.began)"] = nil }
        }
        for (name, count) in own { dropped[name]?.seen += count }
    }
}

extension AlertWatch.Due {
    /// The event that told that the condition began, if this one tells its end.
    fileprivate var began: AlertKey {
        key.event == .upstreamUp ? AlertKey(.upstreamDown, key.upstream) : key
    }

    fileprivate func tells(_ name: UpstreamName) -> Bool { dropped != nil && key.upstream == name }
}

extension AlertWatch.Record {
    /// Nil if the bytes are not a record.
    init?(_ bytes: [UInt8]) {
        guard let record = try? JSONDecoder().decode(Self.self, from: Data(bytes)) else { return nil }
        self = record
    }

    var bytes: [UInt8] {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        return (try? encoder.encode(self)).map(Array.init) ?? []
    }
}
