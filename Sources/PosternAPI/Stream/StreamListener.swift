import PosternCore
import PosternEvents
import PosternHTTP

/// A client that listens to the events (`GET /v1/stream`). All but the constants is used under the lock of its
/// `EventStream`.
final class StreamListener: ResponseStream, @unchecked Sendable {
    // @unchecked: protected by the lock of `place.stream`.

    /// Which events a listener gets. Nil means all.
    struct Filter {
        var types: Set<EventType>?
        var upstream: UpstreamName?
        /// The upstreams of its key.
        var visible: Set<UpstreamName>?

        func admits(_ entry: EventRing.Entry) -> Bool {
            types?.contains(entry.type) ?? true && upstream.map { $0 == entry.upstream } ?? true
                && visible?.contains(entry.upstream) ?? true
        }
    }

    let filter: Filter
    /// The header `Last-Event-ID`, if there is one.
    let lastID: String?
    /// Nil if it required no key.
    let caller: Caller?
    let responder: Responder
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

    init(_ filter: Filter, lastID: String?, caller: Caller?, _ responder: Responder, at place: StreamPlace) {
        self.filter = filter
        self.lastID = lastID
        self.caller = caller
        self.responder = responder
        self.place = place
    }

    func began() { place.stream.add(self) }
    func read(into buffer: UnsafeMutableRawBufferPointer) -> StreamPart { place.stream.read(self, into: buffer) }
    func ended() { place.stream.remove(self) }

    // MARK: Under the lock

    /// Fills `buffer` with what comes next in `ring`.
    func fill(_ buffer: UnsafeMutableRawBufferPointer, from ring: EventRing) -> StreamPart {
        var count = 0
        while count < buffer.count, hasText || takeNext(from: ring) {
            let part = text[sent..<min(text.count, sent + buffer.count - count)]
            UnsafeMutableRawBufferPointer(rebasing: buffer[count...]).copyBytes(from: part)
            count += part.count
            sent += part.count
        }
        if count > 0 { return .bytes(count) }
        if end != nil { return .end }
        isWaiting = true
        return .nothing
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

    /// Whether its key has expired.
    func hasExpired(at now: Timestamp) -> Bool { caller?.key.expiresAt.map { $0 <= now } ?? false }

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
