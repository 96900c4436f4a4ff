import PosternCore
import PosternHTTP
import PosternUpstream

/// The keys that are configured, by name: never their digests. A caller that is restricted to some upstreams sees the keys
/// for these, and learns of no other upstream.
struct KeyHandler: Sendable {
    let context: APIContext

    func list(_ responder: MeteredResponder) {
        let texts = context.keys.all.compactMap { describe($0, to: responder.caller) }
        responder.send(.json(200, JSONWriter.object { $0.raw("keys", JSONWriter.array(texts)) }))
    }

    private func describe(_ listed: Caller, to caller: Caller?) -> String? {
        let key = listed.key
        let scopes = APIKey.Scope.allCases.filter(key.scopes.contains).map(\.rawValue)
        let known = key.upstreams.map { $0.filter { caller?.mayUse($0) ?? true } }
        guard known?.isEmpty != true else { return nil }
        let upstreams = known?.map(\.description).sorted() ?? ["*"]
        return JSONWriter.object { json in
            json.string("name", key.name)
            json.raw("scopes", JSONWriter.array(scopes.map(JSONEscapes.quoted)))
            json.raw("upstreams", JSONWriter.array(upstreams.map(JSONEscapes.quoted)))
            json.time("expiresAt", key.expiresAt)
            json.time("lastUsedAt", listed.lastUsedAt)
        }
    }
}
