import Synchronization

/// One of the places of listeners (`EventStream.maxListeners`). It is free again once it is released, so it belongs to the
/// listener: from before the head of its response is sent until its connection has nothing more to send.
package final class StreamPlace: Sendable {
    let stream: EventStream
    private let key: String?

    private init(in stream: EventStream, for key: String?) { (self.stream, self.key) = (stream, key) }

    deinit { stream.places.withLock { $0[key, default: 0] -= 1 } }

    /// Nil if all places are taken.
    package static func take(in stream: EventStream) -> StreamPlace? {
        let place = StreamPlace(in: stream)
        return place.number <= EventStream.maxListeners ? place : nil
    }
}
