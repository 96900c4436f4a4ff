package import PosternCore
package import PosternThreads
import Synchronization

/// Sends events to the clients of `GET /v1/stream`, the listeners. Any thread.
///
/// Events are sent in rounds: what has happened since the last one is merged, written once, and read by the connections of
/// the listeners from one ring. Without listeners nothing is collected. Nothing waits for a listener: one that the ring
/// has overtaken is cut off.
package final class EventStream: Sendable {
    /// How many clients may listen at the same time. That bounds what they cost those who write: libmicrohttpd looks at
    /// all suspended connections of a worker whenever it resumes one, and each round sends to each listener.
    package static let maxListeners = 64
    /// How many of them may have the same key, so that one caller leaves room for others.
    package static let maxListenersOfKey = 32
    /// The time between two rounds.
    static let roundTime = Duration.milliseconds(100)
    /// The time between two comments that keep a connection alive (design, section 3.2).
    static let heartbeat = Duration.seconds(15)
    /// Events are collected for at least that many heartbeats after the last listener has left, so that it can come back.
    static let heartbeatsAlone = 4
    /// How long a listener may take for the rest when the gateway stops.
    static let endingTime = Duration.seconds(1)

    fileprivate struct State {
        var ring: EventRing
        var listeners: [StreamListener] = []
        var isCollecting = false
        /// Gets what happens, as long as clients listen at other gateways.
        var publish: (@Sendable ([PublishedEvent]) -> Void)?
        /// Told whether clients listen at this gateway.
        var onListening: (@Sendable (Bool) -> Void)?
        /// Heartbeats since there were listeners.
        var heartbeatsAlone = 0
        var isClosed = false
    }

    private let feed: EventFeed
    private let timer: TimerQueue
    private let time: any TimeSource
    private let state: Mutex<State>
    /// When the next round may be, in monotonic nanoseconds. An atomic, so that the writer waits for no listener.
    private let nextRound = Atomic<Int64>(0)
    /// How many places are taken, by the names of keys; nil for callers without one. See `StreamPlace`.
    let places = Mutex<[String?: Int]>([:])

    /// `run` distinguishes this run of the gateway from others.
    package convenience init(_ feed: EventFeed, run: UInt64, timer: TimerQueue, time: any TimeSource) {
        self.init(feed, run: run, maxBytes: EventRing.maxBytes, timer: timer, time: time)
    }

    init(_ feed: EventFeed, run: UInt64, maxBytes: Int, timer: TimerQueue, time: any TimeSource) {
        self.feed = feed
        self.timer = timer
        self.time = time
        state = Mutex(State(ring: EventRing(run: run, maxBytes: maxBytes)))
    }

    /// How many listen at the moment.
    package var listenerCount: Int { state.withLock { $0.listeners.count } }

    // MARK: Polls

    /// What has happened, as `EventRing.events` returns it, for a client that asks again. Events are collected from the
    /// first call on, and as long after each as after a listener has left.
    package func poll(
        after id: String?, _ filter: StreamListener.Filter, limit: Int, maxBytes: Int
    ) -> (events: [String], last: String, hasGap: Bool) {
        let (isFirst, found) = state.withLock { state in
            let isFirst = !state.isClosed && collect(&state)
            state.heartbeatsAlone = 0
            return (isFirst, state.ring.events(after: id, filter, limit: limit, maxBytes: maxBytes))
        }
        if isFirst { timer.run(after: Self.heartbeat) { [weak self] in self?.sendHeartbeat() } }
        return found
    }

    /// Returns whether events are collected from now on, and were not before.
    private func collect(_ state: inout State) -> Bool {
        guard !state.isCollecting else { return false }
        state.isCollecting = true
        state.ring.interrupt()
        if state.publish == nil { feed.open { [weak self] in self?.scheduleRound() } }
        state.onListening?(true)
        return true
    }

    // MARK: Other gateways

    /// Calls `body`, under a lock, when clients begin to listen at this gateway, and when events are collected for them no longer.
    package func onListening(_ body: @escaping @Sendable (Bool) -> Void) { state.withLock { $0.onListening = body } }

    /// Has `body` get what happens at this gateway from now on, because clients listen at others; nil ends that.
    package func publish(_ body: (@Sendable ([PublishedEvent]) -> Void)?) {
        state.withLock { state in
            guard !state.isClosed else { return }
            let wasOpen = state.isCollecting || state.publish != nil
            state.publish = body
            let isOpen = state.isCollecting || body != nil
            if isOpen, !wasOpen { feed.open { [weak self] in self?.scheduleRound() } }
            if wasOpen, !isOpen { feed.close() }
        }
    }

    /// Tells the listeners what has happened at other gateways.
    package func receive(_ events: [PublishedEvent]) { tell(events) }

    // MARK: Listeners

    /// From now on, `listener` gets what happens.
    func add(_ listener: StreamListener) {
        let isFirst = state.withLock { add(listener, to: &$0) }
        if isFirst { timer.run(after: Self.heartbeat) { [weak self] in self?.sendHeartbeat() } }
    }

    /// What comes next for `listener`.
    func read(_ listener: StreamListener, into buffer: UnsafeMutableRawBufferPointer) -> Int? {
        state.withLock { listener.fill(buffer, from: $0.ring) }
    }

    /// Returns whether events are collected from now on, and were not before.
    private func add(_ listener: StreamListener, to state: inout State) -> Bool {
        listener.next = state.ring.next
        // Clients and proxies see at once that the response has begun.
        listener.owesHeartbeat = true
        // Its key may have been removed since the request was admitted.
        guard !state.isClosed, listener.mayListen(time.now) else {
            listener.finish()
            return false
        }
        let isFirst = collect(&state)
        listener.next = state.ring.next
        if let id = listener.lastID {
            if let next = state.ring.number(after: id) { listener.next = next } else { listener.send(state.ring.gap) }
        }
        state.heartbeatsAlone = 0
        state.listeners.append(listener)
        return isFirst
    }

    func remove(_ listener: StreamListener) {
        state.withLock { state in state.listeners.removeAll { $0 === listener } }
    }

    // MARK: Rounds

    /// Called on the thread on which something happens.
    private func scheduleRound() {
        let due = MonotonicInstant(nanoseconds: nextRound.load(ordering: .relaxed))
        timer.run(after: max(.zero, due - time.instant)) { [weak self] in self?.sendDue() }
    }

    /// A round: tells what has happened since the last one.
    private func sendDue() {
        // Before the events are taken: the next one to be recorded schedules the next round by it.
        nextRound.store((time.instant + Self.roundTime).nanoseconds, ordering: .relaxed)
        let events = feed.take().map { PublishedEvent($0) }
        state.withLock(\.publish)?(events)
        tell(events)
    }

    private func tell(_ events: [PublishedEvent]) {
        let (woken, slow) = state.withLock { state in
            guard state.isCollecting else { return ([StreamListener](), [StreamListener]()) }
            let (first, now) = (state.ring.next, time.now)
            for listener in state.listeners where listener.hasExpired(at: now) { listener.finish() }
            for event in events { state.ring.append(event, at: now) }
            return (state.takeListeners(forEventsFrom: first), state.ring.trim() ? state.dropSlow() : [])
        }
        for listener in woken { listener.connection.wake() }
        for listener in slow { listener.connection.cut() }
    }

    /// Once in `heartbeat`, while events are collected.
    private func sendHeartbeat() {
        let now = time.now
        let (woken, goesOn) = state.withLock { state in
            state.heartbeatsAlone = state.listeners.isEmpty ? state.heartbeatsAlone + 1 : 0
            guard !state.isClosed, state.heartbeatsAlone <= Self.heartbeatsAlone else {
                state.isCollecting = false
                state.onListening?(false)
                if state.publish == nil { feed.close() }
                return ([StreamListener](), false)
            }
            for listener in state.listeners { listener.owesHeartbeat = true }
            endRevoked(&state, at: now)
            return (state.takeWaiting(), true)
        }
        if goesOn { timer.run(after: Self.heartbeat) { [weak self] in self?.sendHeartbeat() } }
        for listener in woken { listener.connection.wake() }
    }

    // MARK: Revoked

    /// Ends the streams of listeners that may no longer listen. Call it when keys were removed or changed. Their clients
    /// may come back with `Last-Event-ID`, and get what their key allows.
    package func endRevoked() {
        let now = time.now
        let woken = state.withLock { state in
            endRevoked(&state, at: now)
            return state.takeWaiting()
        }
        for listener in woken { listener.connection.wake() }
    }

    private func endRevoked(_ state: inout State, at now: Timestamp) {
        for listener in state.listeners where !listener.mayListen(now) { listener.finish() }
    }

    // MARK: Stopping

    /// Ends all streams properly, and every later one at once. Those that do not read are cut off.
    package func close() {
        if feed.isCollecting { sendDue() }
        let (woken, areAllGone) = state.withLock { state in
            state.isClosed = true
            state.publish = nil
            feed.close()
            for listener in state.listeners where listener.end == nil { listener.finish(at: state.ring.next) }
            return (state.takeWaiting(), state.listeners.isEmpty)
        }
        for listener in woken { listener.connection.wake() }
        guard !areAllGone else { return }
        timer.run(after: Self.endingTime) { [weak self] in
            for listener in self?.state.withLock({ $0.listeners }) ?? [] { listener.connection.cut() }
        }
    }
}

extension EventStream.State {
    /// The listeners that wait for one of the events from `first` on, or for their end; they are woken now.
    fileprivate func takeListeners(forEventsFrom first: Int) -> [StreamListener] {
        listeners.filter { $0.awaits(eventsFrom: first, in: ring) }
    }

    /// The listeners that have got everything; they are woken now.
    fileprivate func takeWaiting() -> [StreamListener] {
        let waiting = listeners.filter(\.isWaiting)
        for listener in waiting { listener.isWaiting = false }
        return waiting
    }

    /// Removes the listeners that would have to read what the ring has lost.
    fileprivate mutating func dropSlow() -> [StreamListener] {
        let first = ring.first
        let isSlow = { (listener: StreamListener) in
            !listener.isWaiting && listener.next.map { $0 < first } ?? false
        }
        let slow = listeners.filter(isSlow)
        listeners.removeAll(where: isSlow)
        for listener in slow { listener.finish() }
        return slow
    }
}
