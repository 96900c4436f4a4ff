public import PosternCore
import PosternThreads
import Synchronization

/// An event as a node tells it to the others.
public struct SharedEvent: Sendable, Equatable {
    public let type: String
    /// Nil if it concerns more than one.
    public let upstream: UpstreamName?
    /// A JSON object.
    public let data: String

    public init(type: String, upstream: UpstreamName?, data: String) {
        (self.type, self.upstream, self.data) = (type, upstream, data)
    }
}

/// Passes events between the nodes of a store. As long as clients listen at one of them, the others add what happens there to
/// `events`, which is not logged, and keeps it for some seconds.
final class EventExchange: Sendable {
    private let state = Mutex(State())

    private struct State {
        var isListenedTo: (@Sendable (Bool) -> Void)?
        var receive: (@Sendable ([SharedEvent]) -> Void)?
        /// Whether clients listen at this node, and at others, as `isListenedTo` was told.
        var (listens, isHeard) = (false, false)
        /// The number of the last event of each node that was read; nil before the first look.
        var places: [Int64: Int64]?
        /// The number of the last event of this node.
        var last = MonotonicInstant.sinceBoot.nanoseconds
    }

    fileprivate func begin(
        isListenedTo: @escaping @Sendable (Bool) -> Void, receive: @escaping @Sendable ([SharedEvent]) -> Void
    ) {
        state.withLock { ($0.isListenedTo, $0.receive, $0.isHeard) = (isListenedTo, receive, false) }
    }

    fileprivate func listen(_ listens: Bool) { state.withLock { ($0.listens, $0.places) = (listens, nil) } }

    /// Whether clients listen here, and it is known what has happened before, so that other nodes may begin to tell.
    fileprivate var isReady: Bool { state.withLock { $0.listens && $0.places != nil } }

    /// The next numbers of events of this node.
    func numbers(_ count: Int) -> ClosedRange<Int64> {
        state.withLock { state in
            state.last += Int64(count)
            return state.last - Int64(count) + 1...state.last
        }
    }

    /// Whether clients listen at other nodes.
    fileprivate func isHeard(_ isHeard: Bool) {
        let told = state.withLock { state in
            defer { state.isHeard = isHeard }
            return state.isHeard == isHeard ? nil : state.isListenedTo
        }
        told?(isHeard)
    }

    /// Whether clients listen here.
    fileprivate var listens: Bool { state.withLock { $0.receive != nil && $0.listens } }

    /// Reads what has happened at other nodes. Returns whether anything has. The writer's thread.
    fileprivate func poll(as node: Int64, with sql: SQL) throws -> Bool {
        guard var places = state.withLock(\.places) else {
            let found = try sql.all("SELECT node, max(n) FROM events GROUP BY node") {
                ($0[0] as Int64, $0[1] as Int64)
            }
            state.withLock { $0.places = Dictionary(uniqueKeysWithValues: found) }
            return false
        }
        let known = JSONWriter.object { json in places.forEach { json.number("\($0.key)", Int($0.value)) } }
        let events = try sql.all(
            """
            SELECT node, n, type, upstream, data FROM events
            LEFT JOIN json_each_text(CAST(? AS JSON)) AS known ON known.key = CAST(node AS TEXT)
            WHERE node <> ? AND n > coalesce(CAST(known.value AS BIGINT), 0) ORDER BY node, n LIMIT 1000
            """, known, node
        ) { row in
            places[row[0]] = row[1]
            let upstream = (row[3] as String?).flatMap { UpstreamName(stored: $0) }
            return SharedEvent(type: row[2], upstream: upstream, data: row[4])
        }
        guard !events.isEmpty else { return false }
        state.withLock { $0.places = $0.places == nil ? nil : places }
        state.withLock(\.receive)?(events)
        return true
    }
}

extension Outbox {
    /// Whether other processes may use the store, too.
    public var isShared: Bool { engine.isShared }

    /// Exchanges events with other nodes from now on. Both closures run on the writer's thread, and must be quick.
    ///
    /// - Parameters:
    ///   - isListenedTo: Told when clients of other nodes begin to listen, so that `publish` is to be called, and when none does
    ///     any more.
    ///   - receive: Gets what has happened at other nodes, as long as clients listen at this one.
    public func exchangeEvents(
        isListenedTo: @escaping @Sendable (Bool) -> Void, receive: @escaping @Sendable ([SharedEvent]) -> Void
    ) {
        exchange.begin(isListenedTo: isListenedTo, receive: receive)
    }

    /// Whether clients listen at this node from now on.
    public func listen(_ listens: Bool) {
        exchange.listen(listens)
        if !listens { engine.listen(false) }
    }

    /// Tells the nodes at which clients listen what has happened at this one. Not certain to arrive.
    public func publish(_ events: [SharedEvent]) {
        guard !events.isEmpty, let node = engine.node else { return }
        writer.change(inTime: true) { [exchange] transaction in
            for (number, event) in zip(exchange.numbers(events.count), events) {
                try transaction.sql.send(
                    "INSERT INTO events (node, n, type, upstream, data) VALUES (?, ?, ?, ?, ?)", node, number,
                    event.type,
                    event.upstream?.description, event.data)
            }
        }
    }

    /// The writer's thread. Returns whether anything has happened at other nodes.
    func exchangeEvents(isListenedTo: Bool) -> Bool {
        exchange.isHeard(isListenedTo)
        guard exchange.listens, let node = engine.node else { return false }
        let wasReady = exchange.isReady
        let found = try? read { [exchange] in try exchange.poll(as: node, with: $0) }
        if !wasReady, exchange.isReady { engine.listen(true) }
        return found ?? false
    }
}
