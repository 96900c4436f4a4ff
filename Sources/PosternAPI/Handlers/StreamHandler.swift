import PosternCore
import PosternEvents
import PosternHTTP
import Synchronization

/// Tells clients what happens, as it happens.
struct StreamHandler: Sendable {
    let context: APIContext

    static let mediaType = "text/event-stream"

    func listen(_ reply: MeteredResponder) {
        do throws(Problem) {
            guard !context.isDraining.load(ordering: .acquiring) else { throw Self.shuttingDown }
            let filter = try filter(reply)
            guard let place = StreamPlace.take(in: context.stream, for: reply.caller?.key.name) else {
                throw Self.noPlace
            }
            // Some clients send it empty if they have no id.
            let lastID = reply.head.header("Last-Event-ID").flatMap { $0.isEmpty ? nil : $0 }
            let response = HTTPResponse(
                status: 200,
                headers: [
                    ("Content-Type", Self.mediaType),
                    // Has a proxy (nginx) pass on each event at once.
                    ("X-Accel-Buffering", "no"),
                ])
            reply.stream(response) { StreamListener(filter, lastID: lastID, caller: reply.caller, $0, at: place) }
        } catch {
            reply.send(error)
        }
    }

    private func filter(_ reply: MeteredResponder) throws(Problem) -> StreamListener.Filter {
        var filter = StreamListener.Filter(visible: reply.caller?.key.upstreams)
        var query = reply.request.query
        for name in query.texts("type") {
            if let type = EventType(rawValue: name) {
                filter.types = (filter.types ?? []).union([type])
            } else {
                query.refuse("type", QueryReader.oneOf(EventType.allCases.map(\.rawValue)))
            }
        }
        try query.check()
        if let name = query.text("upstream") { filter.upstream = try context.knownUpstream(name, for: reply.caller) }
        return filter
    }

    private static let shuttingDown = Problem(
        slug: .shuttingDown, status: 503, detail: "The gateway is stopping; listen again later.",
        headers: [("Retry-After", "1")])

    private static let noPlace = Problem(
        slug: .overloaded, status: 503,
        detail: "Too many clients listen already: at most \(EventStream.maxListeners), of which "
            + "\(EventStream.maxListenersOfKey) may have the same key. Listen again later.",
        headers: [("Retry-After", "5")])
}
