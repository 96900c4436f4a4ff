import PosternCore
package import PosternEvents
package import PosternHTTP
import Synchronization

/// Tells clients what happens, as it happens.
struct StreamHandler: Sendable {
    let context: APIContext

    static let mediaType = "text/event-stream"

    func listen(_ responder: MeteredResponder) {
        do throws(Problem) {
            guard !context.isDraining.load(ordering: .acquiring) else { throw Self.shuttingDown }
            let isStream = accepts(Self.mediaType, responder.head.header("Accept"))
            var query = responder.request.query
            if isStream {
                for name in ["after", "limit"] where query.text(name) != nil {
                    query.refuse(name, "is for responses in JSON; accept application/json alone")
                }
            }
            let limit = query.limit(upTo: Self.maxEvents)
            let filter = try filter(responder, &query)
            guard isStream else { return responder.send(poll(filter, after: query.text("after"), limit: limit)) }
            guard let place = StreamPlace.take(in: context.stream, for: responder.caller?.key.name) else {
                throw Self.noPlace
            }
            // Some clients send it empty if they have no id.
            let lastID = responder.head.header("Last-Event-ID").flatMap { $0.isEmpty ? nil : $0 }
            let response = HTTPResponse(
                status: 200,
                headers: [
                    ("Content-Type", Self.mediaType),
                    // Has a proxy (nginx) pass on each event at once.
                    ("X-Accel-Buffering", "no"),
                ])
            let (keys, caller) = (context.keys, responder.caller)
            responder.stream(response) { connection in
                StreamListener(
                    filter, lastID: lastID, expiresAt: caller?.key.expiresAt, on: connection, at: place
                ) { keys.stillAdmits(caller, now: $0) }
            }
        } catch {
            responder.send(error)
        }
    }

    /// What has happened, at once.
    private func poll(_ filter: StreamListener.Filter, after id: String?, limit: Int) -> HTTPResponse {
        let found = context.stream.poll(after: id, filter, limit: limit, maxBytes: Self.pollBytes)
        return .json(
            200,
            JSONWriter.object { json in
                json.raw("events", JSONWriter.array(found.events))
                json.string("last", found.last)
                json.flag("gap", found.hasGap)
            })
    }

    private static let maxEvents = 1000
    /// With the one event more that `EventStream.poll` may return, a response has at most 1 MiB.
    private static let pollBytes = MessageHandler.pageBytes - (128 << 10)

    private func filter(
        _ responder: MeteredResponder, _ query: inout QueryReader
    ) throws(Problem) -> StreamListener.Filter {
        var filter = StreamListener.Filter(visible: responder.caller?.key.upstreams)
        for name in query.texts("type") {
            if let type = EventType(rawValue: name) {
                filter.types = (filter.types ?? []).union([type])
            } else {
                query.refuse("type", QueryReader.oneOf(EventType.allCases.map(\.rawValue)))
            }
        }
        try query.check()
        if let name = query.text("upstream") {
            filter.upstream = try context.knownUpstream(name, for: responder.caller)
        }
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

extension Responder: StreamConnection {}

extension StreamListener: ResponseStream {
    package func read(into buffer: UnsafeMutableRawBufferPointer) -> StreamPart {
        guard let count = next(into: buffer) else { return .end }
        return count > 0 ? .bytes(count) : .nothing
    }
}
