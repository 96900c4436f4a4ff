import PosternCore
import PosternUpstream

/// `GET /v1/{name}/endpoints`: the SDK's endpoint table with what it means here.
enum EndpointTable {
    static func resource(_ endpoints: Endpoints) -> UpstreamRoute {
        let kinds = (SeerKind.presets + endpoints.customNames.map { .custom($0) })
        let rows = endpoints.table.map { endpoint in
            let single = kinds.first { $0.endpoint == endpoint.name }
            let batch = kinds.first { $0.batchEndpoint?.rawValue == endpoint.name }
            return JSONWriter.object { json in
                json.string("name", endpoint.name)
                json.string("path", "/" + URLQuery.masked(endpoint.path))
                json.string("url", endpoints.shownURL(named: endpoint.name))
                json.string("kind", (single ?? batch)?.name)
                json.flag("isBatch", batch != nil)
                json.flag("isPreset", endpoint.isPreset)
            }
        }
        let text = JSONWriter.object { $0.raw("endpoints", JSONWriter.array(rows)) }
        return UpstreamRoute(.get, "endpoints", .read { _, _ in .json(text) })
    }
}
