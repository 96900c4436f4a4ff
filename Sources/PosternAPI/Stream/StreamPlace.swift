import Synchronization

/// One of the places of listeners (`EventStream.maxListeners`). It is free again once it is released, so it belongs to the
/// listener: from before the head of its response is sent until its connection has nothing more to send.
final class StreamPlace: Sendable {
    let stream: EventStream
    private let number: Int

    private init(in stream: EventStream) {
        self.stream = stream
        number = stream.places.wrappingAdd(1, ordering: .relaxed).newValue
    }

    deinit { stream.places.wrappingSubtract(1, ordering: .relaxed) }

    /// Nil if all places are taken.
    static func take(in stream: EventStream) -> StreamPlace? {
        let place = StreamPlace(in: stream)
        return place.number <= EventStream.maxListeners ? place : nil
    }
}
