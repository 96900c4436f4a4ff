import PosternCore

extension UpstreamRouteResponse {
    /// The problem of a body that is not valid JSON.
    package static func notJSON(_ error: JSONError, in body: [UInt8]) -> Self {
        .invalidJSON(error.description(in: body), offset: error.offset)
    }
}
