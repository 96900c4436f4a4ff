// The head of a request, in its wire format, for another process that answers the request.

extension RequestHead {
    /// The request line and the headers, without what concerns the connection or the body's encoding, and without those named in
    /// `omitted` (in lower case).
    public func serialized(without omitted: Set<String> = []) -> [UInt8] {
        let target = path + (query.map { "?\($0.text)" } ?? "")
        var text = "\(method) \(target) \(HTTPVersion.http11.rawValue)\r\n"
        for (name, value) in headers {
            let lowercase = name.lowercased()
            guard !Self.ofConnection.contains(lowercase), !omitted.contains(lowercase) else { continue }
            text += "\(name): \(value)\r\n"
        }
        return Array("\(text)X-Request-Id: \(requestID)\r\n\r\n".utf8)
    }

    private static let ofConnection: Set = [
        "connection", "content-encoding", "content-length", "expect", "keep-alive", "te", "trailer",
        "transfer-encoding",
        "upgrade", "x-request-id",
    ]

    /// Reads what `serialized` has returned; nil if it is not the head of a request.
    ///
    /// - Parameter peer: The address of the client of the process that has received the request.
    public convenience init?(serialized head: [UInt8], peer: String) {
        var (reader, position, found) = (RequestReader(), 0, nil as RequestReader.Head?)
        head.withUnsafeBufferPointer { bytes in
            _ = reader.read(bytes, from: &position) { head in
                found = head
                return .stop
            }
        }
        guard let found else { return nil }
        self.init(found, peer: PeerAddress(text: peer))
    }
}

extension Responder {
    /// Passes the response to a request that this process has not received itself to `completion`, on any thread. Nil: there is
    /// none, because the request was abandoned, or would get a stream.
    public convenience init(to head: RequestHead, completion: @escaping @Sendable (HTTPResponse?) -> Void) {
        self.init(RelayedTarget(head, completion), requestNumber: 0)
    }
}

private final class RelayedTarget: ResponseTarget {
    private let head: RequestHead
    private let completion: @Sendable (HTTPResponse?) -> Void

    init(_ head: RequestHead, _ completion: @escaping @Sendable (HTTPResponse?) -> Void) {
        (self.head, self.completion) = (head, completion)
    }

    func settle(_ action: ResponseAction, requestNumber: UInt64) {
        switch action {
        case .response(let response): completion(response)
        case .rendered(let render): completion(render())
        case .problem(let problem): completion(problem.response(to: head))
        case .stream, .hangUp, .detached: completion(nil)
        }
    }

    // Its client is not known here.
    func onHangUp(requestNumber: UInt64, _ action: @escaping @Sendable () -> Void) {}
    func wake(requestNumber: UInt64) {}
    func cut(requestNumber: UInt64?) {}
}
