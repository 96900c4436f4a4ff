import PosternCore
import PosternHTTP
import PosternStore

/// Shows the gateways that share the store.
struct NodeListHandler: Sendable {
    let context: APIContext

    func list(_ responder: MeteredResponder) {
        context.read(responder, isQuick: true) { [context] () throws(StoreError) in
            let texts = try context.outbox.nodes().map { node in node.json { responder.caller?.mayUse($0) ?? true } }
            return .json(200, JSONWriter.object { $0.raw("nodes", JSONWriter.array(texts)) })
        }
    }
}
