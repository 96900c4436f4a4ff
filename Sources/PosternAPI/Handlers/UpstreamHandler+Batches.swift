import PosternCore
import PosternHTTP
import PosternStore

/// The latest requests to an upstream.
extension UpstreamHandler {
    func batches(of number: UpstreamNumber, _ responder: MeteredResponder) {
        var query = responder.request.query
        let limit = query.limit(upTo: 1000)
        let cursor = query.value("cursor", "must be the `next` of an earlier page") { text in
            Int64(text).flatMap { $0 > 0 ? BatchID(rawValue: $0) : nil }
        }
        do throws(Problem) { try query.check() } catch { return responder.send(error) }
        context.read(responder) { [context] () throws(StoreError) in
            let page = try context.outbox.batches(of: number, before: cursor, limit: limit)
            let name = context.outbox.names[number]?.description
            return .json(
                200,
                JSONWriter.object { json in
                    json.raw("batches", JSONWriter.array(page.batches.map { MessageJSON.batch($0, of: name) }))
                    json.string("next", page.next?.description)
                })
        }
    }
}
