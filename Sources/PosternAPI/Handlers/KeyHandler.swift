import PosternCore
import PosternHTTP

/// The keys that are configured, by name: never their digests.
struct KeyHandler: Sendable {
    let context: APIContext

    func list(_ reply: MeteredResponder) {
        let texts = context.keys.all.map { describe($0) }
        reply.send(.json(200, JSONWriter.object { $0.raw("keys", JSONWriter.array(texts)) }))
    }

    private func describe(_ caller: Caller) -> String {
        let key = caller.key
        let scopes = APIKey.Scope.allCases.filter(key.scopes.contains).map(\.rawValue)
        let upstreams = key.upstreams?.map(\.description).sorted() ?? ["*"]
        return JSONWriter.object { json in
            json.string("name", key.name)
            json.raw("scopes", JSONWriter.array(scopes.map(JSONEscapes.quoted)))
            json.raw("upstreams", JSONWriter.array(upstreams.map(JSONEscapes.quoted)))
            json.time("expiresAt", key.expiresAt)
            json.time("lastUsedAt", caller.lastUsedAt)
        }
    }
}
