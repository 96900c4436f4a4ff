import PosternCore
import PosternHTTP
import PosternStore

/// Why messages of an upstream failed.
extension UpstreamHandler {
    func failures(of number: UpstreamNumber, _ responder: MeteredResponder) {
        var query = responder.request.query
        var filter = MessageFilter()
        filter.read(["kind", "key", "createdAfter", "createdBefore"], from: &query)
        let cursor = query.value("cursor", "must be the `next` of an earlier page") { MessageID($0) }
        do throws(Problem) { try query.check() } catch { return responder.send(error) }
        let memory = context.memory
        guard memory.take(Self.failureBytes) else { return responder.send(.overloaded) }
        context.read(responder) { [context, filter] () throws(StoreError) in
            defer { memory.give(Self.failureBytes) }
            let page = try context.outbox.failures(of: number, filter, before: cursor)
            return .json(
                200,
                JSONWriter.object { json in
                    json.raw("failures", JSONWriter.array(page.groups.map(Self.describe)))
                    json.number("examined", page.examined)
                    json.string("next", page.next?.description)
                })
        }
    }

    /// What a page takes, as rows and as text, if it has as many groups as possible.
    private static let failureBytes = 1 << 20

    private static func describe(_ group: FailureGroup) -> String {
        JSONWriter.object { json in
            json.string("id", group.id.description)
            json.string("class", group.errorClass?.rawValue)
            json.number("status", group.status)
            json.string("detail", group.detail)
            json.number("count", group.count)
            json.string("sample", group.sample.description)
            json.time("firstAt", group.firstAt)
            json.time("lastAt", group.lastAt)
            json.raw("perMinute", JSONWriter.array(group.perMinute.map { String($0) }))
        }
    }
}
