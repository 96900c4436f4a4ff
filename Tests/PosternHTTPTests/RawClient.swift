import Glibc
import Testing

/// A client that says exactly what it is told to, byte by byte. Every wait has a deadline.
final class RawClient {
    struct Answer {
        let status: Int
        let headers: [(name: String, value: String)]
        let body: String
        func header(_ name: String) -> String? { headers.first { $0.name == name }?.value }
    }
    enum Failure: Error {
        case connect(Int32)
        case deadline(got: String)
        case closed(got: String)
        case reset
        case garbled(String)
    }

    let socket: Int32
    private var received: [UInt8] = []

    init(port: UInt16, receiveBuffer: Int32? = nil) throws {
        socket = Glibc.socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        if var receiveBuffer { setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &receiveBuffer, 4) }
        var limit = timeval(tv_sec: 10, tv_usec: 0)
        setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, socklen_t(MemoryLayout<timeval>.size))
        setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, socklen_t(MemoryLayout<timeval>.size))
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        let code = withUnsafeBytes(of: &address) {
            connect(socket, $0.assumingMemoryBound(to: sockaddr.self).baseAddress, socklen_t($0.count))
        }
        if code != 0 { throw Failure.connect(errno) }  // Fully made, so `deinit` closes the socket.
    }

    deinit { close(socket) }

    /// Returns false if the peer has closed the connection.
    @discardableResult func send(_ text: String) -> Bool { send(Array(text.utf8)) }

    @discardableResult func send(_ bytes: [UInt8]) -> Bool {
        var rest = bytes[...]
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes { Glibc.send(socket, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
            guard count > 0 else { return false }
            rest = rest.dropFirst(count)
        }
        return true
    }

    func post(_ path: String, _ body: String, headers: String = "") {
        send("POST \(path) HTTP/1.1\r\nHost: t\r\n\(headers)Content-Length: \(body.utf8.count)\r\n\r\n\(body)")
    }

    /// The next answer; `hasBody: false` for HEAD.
    func answer(hasBody: Bool = true) throws -> Answer {
        var end = endOfHead
        while end == nil {
            try receiveMore()
            end = endOfHead
        }
        let head = String(decoding: received[..<end!], as: UTF8.self)
        received.removeFirst(end! + 4)
        let lines = head.split(separator: "\r\n").map(String.init)
        guard let first = lines.first, let status = Int(first.split(separator: " ").dropFirst().first ?? "") else {
            throw Failure.garbled(head)
        }
        let headers = lines.dropFirst().map { line in
            let parts = line.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
            return (name: String(parts[0]), value: parts[1].trimmingPrefix(" ").description)
        }
        let length = headers.first { $0.name == "Content-Length" }.flatMap { Int($0.value) } ?? 0
        guard hasBody, length > 0 else { return Answer(status: status, headers: headers, body: "") }
        while received.count < length { try receiveMore() }
        defer { received.removeFirst(length) }
        return Answer(
            status: status, headers: headers, body: String(decoding: received.prefix(length), as: UTF8.self))
    }

    /// Everything until the peer closes in good order.
    func readToEnd() throws -> String {
        while true {
            do { try receiveMore() } catch Failure.closed { return String(decoding: received, as: UTF8.self) }
        }
    }

    /// Waits for the end of the connection, orderly or not.
    func waitForEnd() throws {
        do { _ = try readToEnd() } catch Failure.reset {}
    }

    /// Whether more can be read without waiting.
    var hasMore: Bool {
        if !received.isEmpty { return true }
        var byte: UInt8 = 0
        return recv(socket, &byte, 1, Int32(MSG_PEEK) | Int32(MSG_DONTWAIT)) > 0
    }

    private var endOfHead: Int? {
        received.indices.dropLast(3).first { received[$0...].starts(with: [13, 10, 13, 10]) }
    }

    private func receiveMore() throws {
        var buffer = [UInt8](repeating: 0, count: 64 << 10)
        let count = recv(socket, &buffer, buffer.count, 0)
        let got = String(decoding: received.prefix(300), as: UTF8.self)
        if count == 0 { throw Failure.closed(got: got) }
        if count < 0 { throw errno == ECONNRESET ? Failure.reset : Failure.deadline(got: got) }
        received += buffer[..<count]
    }
}
