package import PosternCore

/// The connection to a listener. Any thread.
package protocol StreamConnection: Sendable {
    /// Has the listener read again.
    func wake()
    /// Closes the connection, also if the client does not read.
    func cut()
}

/// A client that listens to the events (`GET /v1/stream`). All but the constants is used under the lock of its
/// `EventStream`.
package final class StreamListener: @unchecked Sendable {
    // @unchecked: protected by the lock of `place.stream`.

    /// Which events a client gets. Nil means all.
    package struct Filter: Sendable {
        package var types: Set<EventType>?
        package var upstream: UpstreamName?
        /// The upstreams of its key.
        var visible: Set<UpstreamName>?

        package init(
            types: Set<EventType>? = nil, upstream: UpstreamName? = nil, visible: Set<UpstreamName>? = nil
        ) {
            self.types = types
            self.upstream = upstream
            self.visible = visible
        }

        func admits(_ entry: EventRing.Entry) -> Bool {
            types?.contains(entry.type) ?? true && upstream.map { $0 == entry.upstream } ?? true
                && visible.map { visible in entry.upstream.map(visible.contains) ?? false } ?? true
        }
    }

    let filter: Filter
    /// The header `Last-Event-ID`, if there is one.
    let lastID: String?
    /// When its permission ends; nil if that is not known in advance.
    private let expiresAt: Timestamp?
    /// Whether it may still listen at that time.
    let mayListen: @Sendable (Timestamp) -> Bool
    let connection: any StreamConnection
    private let place: StreamPlace

    /// The number of the event that comes next; nil before it listens.
    var next: Int?
    /// What is being sent, and how much of it was.
    private var text: [UInt8] = []
    private var sent = 0
    var owesHeartbeat = false
    /// Whether it has received every event so far, so that its connection is suspended.
    var isWaiting = false
    /// The number of the event at which its stream ends; nil while the stream continues.
    var end: Int?

    package init(
        _ filter: Filter, lastID: String?, expiresAt: Timestamp?, on connection: any StreamConnection,
        at place: StreamPlace, mayListen: @escaping @Sendable (Timestamp) -> Bool
    ) {
        self.filter = filter
        self.lastID = lastID
        self.expiresAt = expiresAt
        self.mayListen = mayListen
        self.connection = connection
        self.place = place
    }

    /// Call it once, before anything is read.
    package func began() { place.stream.add(self) }
    /// Fills `buffer` with what comes next, and returns the number of bytes: 0 if there is nothing until
    /// `StreamConnection.wake`, nil at the end.
    package func next(into buffer: UnsafeMutableRawBufferPointer) -> Int? { place.stream.read(self, into: buffer) }
    /// Call it once, when nothing will be read any more.
    package func ended() { place.stream.remove(self) }

    // MARK: Under the lock

    /// Fills `buffer` with what comes next in `ring`; see `next(into:)`.
    func fill(_ buffer: UnsafeMutableRawBufferPointer, from ring: EventRing) -> Int? {
        var count = 0
        while count < buffer.count, hasText || takeNext(from: ring) {
            let part = text[sent..<min(text.count, sent + buffer.count - count)]
            UnsafeMutableRawBufferPointer(rebasing: buffer[count...]).copyBytes(from: part)
            count += part.count
            sent += part.count
        }
        if count > 0 { return count }
        if end != nil { return nil }
        isWaiting = true
        return 0
    }

    /// Whether it has to be woken for the new events, those from `first` on, or for its end. If it waits and its filter
    /// admits none of them, they count as received.
    func awaits(eventsFrom first: Int, in ring: EventRing) -> Bool {
        guard isWaiting else { return false }
        if end != nil || (first..<ring.next).contains(where: { filter.admits(ring[$0]) }) {
            isWaiting = false
        } else {
            next = ring.next
        }
        return !isWaiting
    }

    func hasExpired(at now: Timestamp) -> Bool { expiresAt.map { $0 <= now } ?? false }

    private var hasText: Bool { sent < text.count }

    /// Ends the stream. It gets the events before `end`, by default only the rest of what is being sent.
    func finish(at end: Int? = nil) { self.end = end ?? next }

    /// Sends `text`, which other listeners share, after the last one was sent.
    func send(_ text: [UInt8]) { (self.text, sent) = (text, 0) }

    private func takeNext(from ring: EventRing) -> Bool {
        if owesHeartbeat {
            owesHeartbeat = false
            send(Self.heartbeat)
            return true
        }
        while let number = next, number < end ?? ring.next {
            next = number + 1
            guard filter.admits(ring[number]) else { continue }
            send(ring[number].text)
            return true
        }
        return false
    }

    /// A comment. No empty line follows: some clients take one for the end of an event.
    private static let heartbeat = Array(":\n".utf8)
}
