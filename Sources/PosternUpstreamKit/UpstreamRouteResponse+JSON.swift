package import PosternCore
package import PosternJSON

extension UpstreamRouteResponse {
    /// The problem of a body that is not valid JSON.
    package static func notJSON(_ error: JSONError) -> Self { .invalidJSON("\(error)", offset: error.offset) }
}
