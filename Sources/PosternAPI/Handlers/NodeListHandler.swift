import PosternCore
import PosternHTTP
import PosternStore

/// Shows the gateways that share the store.
struct NodeListHandler: Sendable {
    let context: APIContext

    func list(_ responder: MeteredResponder) {
        context.read(responder, isQuick: true) { [context] () throws(StoreError) in
            let queues = context.outbox.names.values.filter { responder.caller?.mayUse($0) ?? true }.sorted()
            let texts = try context.outbox.nodes().map { node in
                JSONWriter.object { json in
                    json.string("name", node.name)
                    json.string("version", node.version)
                    json.string("state", "up")
                    let owned = node.isOwner ? queues.map { JSONEscapes.quoted($0.description) } : []
                    json.raw("queues", JSONWriter.array(owned))
                    json.decimal("clockOffsetSeconds", node.clockOffset?.inSeconds)
                    json.string("configDigest", node.configDigest)
                }
            }
            return .json(200, JSONWriter.object { $0.raw("nodes", JSONWriter.array(texts)) })
        }
    }
}
