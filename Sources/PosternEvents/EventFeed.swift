import Synchronization

/// Collects events from the threads on which they happen, for the thread that sends them to clients. Any thread.
///
/// While nothing is collected, `record` costs one atomic load. What happens at about the same time is merged into one
/// event for each type and upstream (and kind, if an SDK names the event), so that the number of events does not grow with the number of messages. The events
/// of each message keep their order.
public final class EventFeed: Sendable {
    /// How much is kept until it is taken.
    public struct Limits: Sendable {
        /// The most ids of one event; further messages are only counted.
        public var idsPerEvent = 1000
        /// The same for all events together.
        public var ids = 10_000
        /// With that many events, nothing keeps its order any more: what can be merged is merged.
        public var orderedEvents = 1000

        public init() {}
    }

    fileprivate struct Collected {
        var events: [(event: Event, segment: Int)] = []
        /// Counts the ordered events: only events of the same segment are merged.
        var segment = 0
        var ids = 0
        var limits = Limits()
        var onArrival: (@Sendable () -> Void)?
    }
    private let isOpen = Atomic<Bool>(false)
    private let collected: Mutex<Collected>

    public init(limits: Limits = Limits()) { collected = Mutex(Collected(limits: limits)) }

    /// Whether events are collected.
    public var isCollecting: Bool { isOpen.load(ordering: .relaxed) }

    /// Begins to collect.
    ///
    /// - Parameter onArrival: Called with the first event after each `take`, on the thread on which it happens.
    public func open(onArrival: @escaping @Sendable () -> Void) {
        collected.withLock { $0 = Collected(limits: $0.limits, onArrival: onArrival) }
        isOpen.store(true, ordering: .relaxed)
    }

    /// Ends it, and drops what was not taken.
    public func close() {
        isOpen.store(false, ordering: .relaxed)
        collected.withLock { $0 = Collected(limits: $0.limits) }
    }

    /// Records what has happened. Call it once it cannot be undone.
    ///
    /// - Parameter isOrdered: Whether the event keeps its position among all others. If not, it may be merged with
    ///   earlier events.
    public func record(_ event: @autoclosure () -> Event, isOrdered: Bool = false) {
        guard isCollecting else { return }
        let event = event()
        let arrival: (@Sendable () -> Void)? = collected.withLock { collected in
            guard let onArrival = collected.onArrival else { return nil }
            let isFirst = collected.events.isEmpty
            collected.add(event, isOrdered: isOrdered)
            return isFirst ? onArrival : nil
        }
        arrival?()
    }

    /// What was recorded since the last call, in its order.
    public func take() -> [Event] {
        let taken = collected.withLock { collected in
            defer { (collected.events, collected.segment, collected.ids) = ([], 0, 0) }
            return collected.events
        }
        let ranks = taken.map { EventType.allCases.firstIndex(of: $0.event.type) ?? 0 }
        let order = taken.indices.sorted { (taken[$0].segment, ranks[$0], $0) < (taken[$1].segment, ranks[$1], $1) }
        return order.map { taken[$0].event }
    }
}

extension EventFeed.Collected {
    fileprivate mutating func add(_ event: Event, isOrdered: Bool) {
        let isCrowded = events.count >= limits.orderedEvents
        if isOrdered, !isCrowded { segment += 1 }
        // Segments ascend. An ordered event has one of its own, and is compared with no other.
        let first = isCrowded ? 0 : (events.lastIndex { $0.segment != segment } ?? -1) + 1
        let index = events[first...].lastIndex { earlier in
            earlier.event.type == event.type && earlier.event.upstream == event.upstream
                && earlier.event.named == event.named && earlier.event.by == event.by
                && earlier.event.operation == event.operation
        }
        let room = min(limits.ids - ids, limits.idsPerEvent - (index.map { events[$0].event.ids.count } ?? 0))
        let kept = event.ids.prefix(max(0, room))
        ids += kept.count
        if let index {
            events[index].event.ids += kept
            events[index].event.count += event.count
            events[index].event.requests += event.requests
        } else {
            var event = event
            event.ids = Array(kept)
            events.append((event, segment))
        }
        if isOrdered, !isCrowded { segment += 1 }
    }
}
