import PosternHTTP

extension HTTPResponse {
    /// A response in JSON.
    static func json(
        _ status: Int, _ text: String, headers: [(name: String, value: String)] = []
    ) -> HTTPResponse {
        HTTPResponse(
            status: status, headers: [("Content-Type", "application/json")] + headers, body: Array(text.utf8))
    }
}
