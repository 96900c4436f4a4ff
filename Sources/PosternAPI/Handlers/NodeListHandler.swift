import PosternCore
import PosternHTTP
import PosternStore

/// Shows the gateways that share the store.
struct NodeListHandler: Sendable {
    let context: APIContext

    func list(_ responder: MeteredResponder) {
        context.read(responder, isQuick: true) { [context] () throws(StoreError) in
            let queues = context.outbox.names.values.filter { responder.caller?.mayUse($0) ?? true }.sorted()
            let texts = try context.outbox.nodes().map { $0.json(queues: queues) }
            return .json(200, JSONWriter.object { $0.raw("nodes", JSONWriter.array(texts)) })
        }
    }
}
