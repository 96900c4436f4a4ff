import Synchronization

/// One of the places of listeners (`EventStream.maxListeners`). It is free again once it is released, so it belongs to the
/// listener: from before the head of its response is sent until its connection has nothing more to send.
package final class StreamPlace: Sendable {
    let stream: EventStream
    private let key: String?

    private init(in stream: EventStream, for key: String?) { (self.stream, self.key) = (stream, key) }

    deinit { stream.places.withLock { $0[key, default: 0] -= 1 } }

    /// Nil if all places are taken, or all that callers with this key may have.
    package static func take(in stream: EventStream, for key: String?) -> StreamPlace? {
        let isFree = stream.places.withLock { places in
            let ofKey = key == nil ? 0 : places[key, default: 0]
            guard places.values.reduce(0, +) < EventStream.maxListeners, ofKey < EventStream.maxListenersOfKey else {
                return false
            }
            places[key, default: 0] += 1
            return true
        }
        return isFree ? StreamPlace(in: stream, for: key) : nil
    }
}
