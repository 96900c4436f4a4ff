internal import CMicrohttpd

/// A response. `Content-Length`, `Date`, `X-Request-Id`, and, if required, `Connection` are added by the server.
public struct HTTPResponse: Sendable, Equatable {
    /// 200 to 599.
    public var status: Int
    /// In the order sent. A header with an empty value or a line break in it is left out.
    public var headers: [(name: String, value: String)]
    /// Sent as it is; not sent for HEAD and with 304, except for its length.
    public var body: [UInt8]
    /// Whether to close the connection after this response.
    public var close: Bool
    /// Whether the connection is closed without a response.
    public var isDropped = false

    public init(
        status: Int, headers: [(name: String, value: String)] = [], body: [UInt8] = [], close: Bool = false
    ) {
        self.status = status
        self.headers = headers
        self.body = body
        self.close = close
    }

    public static func == (left: Self, right: Self) -> Bool {
        left.status == right.status && left.body == right.body && left.close == right.close
            && left.isDropped == right.isDropped
            && left.headers.elementsEqual(right.headers, by: ==)
    }

    /// The complete response in its wire format, with `Connection: close`; for responses that bypass libmicrohttpd.
    package func serialized(requestID: String) -> [UInt8] {
        let lines =
            headers.map { "\($0.name): \($0.value)\r\n" }.joined()
            + "X-Request-Id: \(requestID)\r\nContent-Length: \(body.count)\r\nConnection: close\r\n\r\n"
        let reason = MHD_get_reason_phrase_for(UInt32(status)).map { String(cString: $0) } ?? ""
        return Array("HTTP/1.1 \(status) \(reason)\r\n\(lines)".utf8) + body
    }
}
