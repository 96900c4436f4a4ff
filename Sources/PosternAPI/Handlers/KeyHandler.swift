import PosternCore
import PosternHTTP

/// The keys that are configured, by name: never their digests.
struct KeyHandler: Sendable {
    let context: APIContext

    func list(_ reply: Reply) {
        let texts = context.keys.all.map { describe($0) }
        reply.send(.json(200, JSONText.object { $0.raw("keys", JSONText.array(texts)) }))
    }

    private func describe(_ caller: Caller) -> String {
        let key = caller.key
        let scopes = APIKey.Scope.allCases.filter(key.scopes.contains).map(\.rawValue)
        let upstreams = key.upstreams?.map(\.description).sorted() ?? ["*"]
        return JSONText.object { json in
            json.string("name", key.name)
            json.raw("scopes", JSONText.array(scopes.map(JSONEscapes.quoted)))
            json.raw("upstreams", JSONText.array(upstreams.map(JSONEscapes.quoted)))
            json.time("expiresAt", key.expiresAt)
            json.time("lastUsedAt", caller.lastUsedAt)
        }
    }
}
