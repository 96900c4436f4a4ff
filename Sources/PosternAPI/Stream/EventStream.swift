import PosternCore
import PosternHTTP
import Synchronization

/// Sends events to the clients of `GET /v1/stream`, the listeners. Any thread.
///
/// Events are sent in rounds: what has happened since the last one is merged, written once, and read by the connections of
/// the listeners from one ring. The longer it takes to serve the listeners, the rarer are the rounds (`RoundPace`), so
/// that they cost the gateway about the same; without listeners nothing is collected. Nothing waits for a listener: one
/// that the ring has overtaken is cut off.
final class EventStream: Sendable {
    /// The time between two comments that keep a connection alive (design, section 3.2).
    static let heartbeat = Duration.seconds(15)
    /// Events are collected for at least that many heartbeats after the last listener has left, so that it can come back.
    static let heartbeatsAlone = 4
    /// How many ids all listeners together get in one round. An event has the number of its messages in any case.
    static let idsPerRound = 1_000_000
    /// How long a listener may take for the rest when the gateway stops.
    static let endingTime = Duration.seconds(1)

    fileprivate struct State {
        var ring: EventRing
        /// In the order in which they came. They are served in this order, which is mostly that of their connections in
        /// memory: libmicrohttpd looks at all that are suspended whenever one is resumed, and takes twice as long for
        /// connections in disorder.
        var listeners: [StreamListener] = []
        var pace = RoundPace()
        var isCollecting = false
        /// Heartbeats since there were listeners.
        var heartbeatsAlone = 0
        var isClosed = false
    }

    private let feed: EventFeed
    private let timer: TimerQueue
    private let time: any TimeSource
    private let keys: KeyRing
    private let busySeconds: @Sendable () -> Double
    private let state: Mutex<State>
    /// When the next round may be, in monotonic nanoseconds. An atomic, so that the writer waits for no listener.
    private let nextRound = Atomic<Int64>(0)

    /// `run` distinguishes this run of the gateway from others. `busySeconds` is what `RoundPace` takes.
    init(
        _ feed: EventFeed, run: UInt64, maxBytes: Int = EventRing.maxBytes, keys: KeyRing, timer: TimerQueue,
        time: any TimeSource, busySeconds: @escaping @Sendable () -> Double = { ProcessFigures.busySeconds }
    ) {
        self.feed = feed
        self.keys = keys
        self.timer = timer
        self.time = time
        self.busySeconds = busySeconds
        state = Mutex(State(ring: EventRing(run: run, maxBytes: maxBytes)))
    }

    /// How many listen at the moment.
    var listenerCount: Int { state.withLock { $0.listeners.count } }

    // MARK: Listeners

    /// From now on, `listener` gets what happens.
    func add(_ listener: StreamListener) {
        let isFirst = state.withLock { add(listener, to: &$0) }
        if isFirst { timer.run(after: Self.heartbeat) { [weak self] in self?.beat() } }
    }

    /// What comes next for `listener`.
    func read(_ listener: StreamListener, into buffer: UnsafeMutableRawBufferPointer) -> StreamPart {
        state.withLock { state in
            let part = listener.fill(buffer, from: state.ring)
            if let round = listener.takeServedRound() { finish(one: round, &state) }
            return part
        }
    }

    /// Returns whether events are collected from now on, and were not before.
    private func add(_ listener: StreamListener, to state: inout State) -> Bool {
        listener.next = state.ring.next
        // Clients and proxies see at once that the response has begun.
        listener.owesHeartbeat = true
        // Its key may have been removed since the request was admitted.
        guard !state.isClosed, mayListen(listener, at: time.now) else {
            listener.finish()
            return false
        }
        let isFirst = !state.isCollecting
        if isFirst {
            state.isCollecting = true
            state.ring.interrupt()
            listener.next = state.ring.next
            feed.open { [weak self] in self?.scheduleRound() }
        }
        if let id = listener.lastID {
            if let next = state.ring.number(after: id) { listener.next = next } else { listener.send(state.ring.gap) }
        }
        state.heartbeatsAlone = 0
        state.listeners.append(listener)
        setLimits(state.listeners.count)
        return isFirst
    }

    func remove(_ listener: StreamListener) {
        state.withLock { state in
            guard let index = state.listeners.firstIndex(where: { $0 === listener }) else { return }
            state.listeners.remove(at: index)
            if let round = listener.round { finish(one: round, &state) }
            setLimits(state.listeners.count)
        }
    }

    private func setLimits(_ listeners: Int) {
        var limits = EventFeed.Limits()
        limits.ids = min(limits.ids, max(10, Self.idsPerRound / max(1, listeners)))
        limits.idsPerEvent = limits.ids / 10
        feed.setLimits(limits)
    }

    // MARK: Rounds

    /// Called on the thread on which something happens.
    private func scheduleRound() {
        let due = MonotonicInstant(nanoseconds: nextRound.load(ordering: .relaxed))
        timer.run(after: max(.zero, due - time.instant)) { [weak self] in self?.beginRound() }
    }

    private func beginRound() {
        guard let delay = state.withLock({ $0.pace.delay(at: time.instant) }) else { return tell() }
        timer.run(after: delay) { [weak self] in self?.beginRound() }
    }

    /// A listener of round `round` has been served, or has left.
    private func finish(one round: Int, _ state: inout State) {
        state.pace.serveOne(of: round, at: time.instant)
        nextRound.store(state.pace.next.nanoseconds, ordering: .relaxed)
    }

    /// Tells what has happened since the last round.
    private func tell() {
        let (events, busySeconds) = (feed.take(), busySeconds())
        let (woken, slow) = state.withLock { state in
            let (start, first, now) = (time.instant, state.ring.next, time.now)
            for listener in state.listeners where listener.hasExpired(at: now) { listener.finish() }
            for event in events { state.ring.append(event) }
            let woken = state.takeListeners(forEventsFrom: first)
            let found = time.instant
            state.pace.begin(
                waking: woken.count, of: state.listeners.count, foundIn: found - start, at: found,
                busySeconds: busySeconds)
            for listener in woken { listener.beServed(in: state.pace.round) }
            nextRound.store(state.pace.next.nanoseconds, ordering: .relaxed)
            return (woken, state.ring.trim() ? state.dropSlow() : [])
        }
        for listener in woken { listener.responder.wake() }
        for listener in slow { listener.responder.cut() }
    }

    /// Once in `heartbeat`, while events are collected.
    private func beat() {
        let now = time.now
        let (woken, goesOn) = state.withLock { state in
            state.heartbeatsAlone = state.listeners.isEmpty ? state.heartbeatsAlone + 1 : 0
            guard !state.isClosed, state.heartbeatsAlone <= Self.heartbeatsAlone else {
                state.isCollecting = false
                feed.close()
                return ([StreamListener](), false)
            }
            for listener in state.listeners { listener.owesHeartbeat = true }
            endRevoked(&state, at: now)
            return (state.takeWaiting(), true)
        }
        if goesOn { timer.run(after: Self.heartbeat) { [weak self] in self?.beat() } }
        for listener in woken { listener.responder.wake() }
    }

    // MARK: Keys

    /// Ends the streams of keys that have just been removed or changed. Their clients may come back with
    /// `Last-Event-ID`, and get what their key allows.
    func endRevoked() {
        let now = time.now
        let woken = state.withLock { state in
            endRevoked(&state, at: now)
            return state.takeWaiting()
        }
        for listener in woken { listener.responder.wake() }
    }

    private func endRevoked(_ state: inout State, at now: Timestamp) {
        for listener in state.listeners where !mayListen(listener, at: now) { listener.finish() }
    }

    /// Whether its key is still configured and has not expired, or no key is required if it has none.
    private func mayListen(_ listener: StreamListener, at now: Timestamp) -> Bool {
        listener.caller.map { keys.admits($0, now: now) } ?? keys.isEmpty
    }

    // MARK: Stopping

    /// Ends all streams properly, and every later one at once. Those that do not read are cut off.
    func close() {
        if feed.isCollecting { tell() }
        let (woken, areAllGone) = state.withLock { state in
            state.isClosed = true
            feed.close()
            for listener in state.listeners where listener.end == nil { listener.finish(at: state.ring.next) }
            return (state.takeWaiting(), state.listeners.isEmpty)
        }
        for listener in woken { listener.responder.wake() }
        guard !areAllGone else { return }
        timer.run(after: Self.endingTime) { [weak self] in
            for listener in self?.state.withLock({ $0.listeners }) ?? [] { listener.responder.cut() }
        }
    }
}

extension EventStream.State {
    /// The listeners that wait for one of the events from `first` on, or for their end; they are woken now. Many have
    /// the same filter, which is compared with the events once.
    fileprivate func takeListeners(forEventsFrom first: Int) -> [StreamListener] {
        var known: [StreamListener.Filter: Bool] = [:]
        func admitsAny(_ filter: StreamListener.Filter) -> Bool {
            if let known = known[filter] { return known }
            let admits = (first..<ring.next).contains { filter.admits(ring[$0]) }
            known[filter] = admits
            return admits
        }
        return listeners.filter { $0.awaits(eventsBefore: ring.next, admitsAny) }
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
