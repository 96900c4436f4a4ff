import PosternHTTP

extension HTTPResponse {
    /// A response in JSON, which ends with a newline.
    static func json(
        _ status: Int, _ text: String, headers: [(name: String, value: String)] = []
    ) -> HTTPResponse {
        var body = Array(text.utf8)
        body.append(UInt8(ascii: "\n"))
        return HTTPResponse(status: status, headers: [("Content-Type", "application/json")] + headers, body: body)
    }
}
