import Glibc

/// A client on one connection.
public final class HTTPClient: TestConnection {
    public struct Answer: Sendable {
        public let status: Int
        public let headers: [(name: String, value: String)]
        public let body: [UInt8]

        public var text: String { String(decoding: body, as: UTF8.self) }
        public var json: JSON { JSON(body) }

        /// The first header of that name, in whatever case.
        public func header(_ name: String) -> String? {
            headers.first { $0.name.lowercased() == name.lowercased() }?.value
        }
    }

    public let port: UInt16

    /// A small `receiveBuffer` simulates a slow reader.
    public init(port: UInt16, patience: Duration = longestWait, receiveBuffer: Int32? = nil) throws {
        self.port = port
        super.init(
            socket: Glibc.socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0),
            patience: patience)
        if var receiveBuffer { setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &receiveBuffer, 4) }
        var one: Int32 = 1
        setsockopt(socket, Int32(IPPROTO_TCP), TCP_NODELAY, &one, 4)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        let code = withUnsafeBytes(of: &address) {
            connect(socket, $0.assumingMemoryBound(to: sockaddr.self).baseAddress, socklen_t($0.count))
        }
        // Nothing is closed here: every property has its value, so `deinit` runs and closes the socket. A second `close`
        // would hit whatever another thread has opened under the same number since.
        if code != 0 { throw Failure.connect(errno) }
    }

    /// Sends a request and waits for its response. If it has a body without a `Content-Type`, the type is JSON.
    public func ask(
        _ method: String, _ path: String, _ body: [UInt8]? = nil, headers: [(String, String)] = []
    ) throws -> Answer {
        sendRequest(method, path, body, headers: headers)
        return try answer(hasBody: method != "HEAD")
    }

    public func sendRequest(_ method: String, _ path: String, _ body: [UInt8]? = nil, headers: [(String, String)] = [])
    {
        var lines = ["\(method) \(path) HTTP/1.1", "Host: 127.0.0.1"]
        lines += headers.map { "\($0): \($1)" }
        if let body {
            if !headers.contains(where: { $0.0.lowercased() == "content-type" }) {
                lines.append("Content-Type: application/json")
            }
            lines.append("Content-Length: \(body.count)")
        }
        send(Array((lines.joined(separator: "\r\n") + "\r\n\r\n").utf8) + (body ?? []))
    }

    public func get(_ path: String) throws -> Answer { try ask("GET", path) }

    public func post(_ path: String, _ body: String = "", headers: [(String, String)] = []) throws -> Answer {
        try ask("POST", path, Array(body.utf8), headers: headers)
    }

    /// The next answer, also an interim one; `hasBody: false` for HEAD.
    public func answer(hasBody: Bool = true) throws -> Answer {
        let (head, body) = try next(hasBody: hasBody)
        guard let first = head.first, let status = Int(first.split(separator: " ").dropFirst().first ?? "") else {
            throw Failure.garbled(head.joined(separator: "\n"))
        }
        let headers = head.dropFirst().map { line in
            let parts = line.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
            return (name: String(parts[0]), value: parts.count > 1 ? String(parts[1].drop { $0 == " " }) : "")
        }
        return Answer(status: status, headers: headers, body: body)
    }
}
