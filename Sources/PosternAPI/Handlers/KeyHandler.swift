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
        let known = key.upstreams.map { $0.filter { caller?.mayUse($0) ?? true } }
        guard known?.isEmpty != true else { return nil }
        return JSONWriter.object { json in
            json.string("name", key.name)
            Self.writeRights(key.scopes, known, into: &json)
            json.number("weight", key.weight)
            json.time("expiresAt", key.expiresAt)
            json.time("lastUsedAt", listed.lastUsedAt)
        }
    }

    /// The members `scopes` and `upstreams`. `upstreams`: nil means all of them.
    static func writeRights(
        _ scopes: Set<APIKey.Scope>, _ upstreams: Set<UpstreamName>?, into json: inout JSONWriter
    ) {
        let scopes = APIKey.Scope.allCases.filter(scopes.contains).map(\.rawValue)
        let names = upstreams?.map(\.description).sorted() ?? ["*"]
        json.raw("scopes", JSONWriter.array(scopes.map(JSONEscapes.quoted)))
        json.raw("upstreams", JSONWriter.array(names.map(JSONEscapes.quoted)))
    }
}
