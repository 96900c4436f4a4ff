import PosternEvents
import PosternStore

extension APIContext {
    /// Has clients learn what happens, whichever of the gateways on the store they listen to.
    func exchangeEvents() {
        let (outbox, stream) = (outbox, stream)
        stream.onListening { outbox.listen($0) }
        let publish: @Sendable ([PublishedEvent]) -> Void = { events in
            outbox.publish(events.map { SharedEvent(type: $0.type.rawValue, upstream: $0.upstream, data: $0.data) })
        }
        outbox.exchangeEvents { isListenedTo in
            stream.publish(isListenedTo ? publish : nil)
        } receive: { events in
            // A later version may have types that this one does not know.
            let known = events.compactMap { event in
                EventType(rawValue: event.type).map {
                    PublishedEvent(type: $0, upstream: event.upstream, data: event.data)
                }
            }
            stream.receive(known)
        }
    }
}
