import Foundation
import Glibc

/// A client on one connection, byte by byte as the test wants it. Every wait has a deadline.
public final class HTTPClient {
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

    public enum Failure: Error {
        case connect(Int32)
        case deadline(got: String)
        case closed(got: String)
        case reset
        case garbled(String)
    }

    public let port: UInt16
    private let socket: Int32
    private var received: [UInt8] = []

    /// `patience` bounds each wait for bytes. A small `receiveBuffer` makes a slow reader.
    public init(port: UInt16, patience: Duration = .seconds(20), receiveBuffer: Int32? = nil) throws {
        self.port = port
        socket = Glibc.socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        if var receiveBuffer { setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &receiveBuffer, 4) }
        let milliseconds = patience.components.seconds * 1000 + patience.components.attoseconds / 1_000_000_000_000_000
        var limit = timeval(tv_sec: Int(milliseconds / 1000), tv_usec: Int(milliseconds % 1000) * 1000)
        setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, socklen_t(MemoryLayout<timeval>.size))
        setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, socklen_t(MemoryLayout<timeval>.size))
        var one: Int32 = 1
        setsockopt(socket, Int32(IPPROTO_TCP), TCP_NODELAY, &one, 4)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        let code = withUnsafeBytes(of: &address) {
            connect(socket, $0.assumingMemoryBound(to: sockaddr.self).baseAddress, socklen_t($0.count))
        }
        // Nothing is closed here: every property has its value, so `deinit` runs and closes the socket. A second
        // `close` would hit whatever another thread has opened under the same number since.
        if code != 0 { throw Failure.connect(errno) }
    }

    deinit { close(socket) }

    // MARK: Whole requests

    /// Sends a request and waits for its answer. A `Content-Type` of JSON is added to a body that has none.
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

    // MARK: Bytes

    /// Returns false if the peer has closed the connection.
    @discardableResult public func send(_ bytes: [UInt8]) -> Bool {
        var rest = bytes[...]
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes { Glibc.send(socket, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
            guard count > 0 else { return false }
            rest = rest.dropFirst(count)
        }
        return true
    }

    @discardableResult public func send(_ text: String) -> Bool { send(Array(text.utf8)) }

    /// The next answer; `hasBody: false` for HEAD.
    public func answer(hasBody: Bool = true) throws -> Answer {
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
            return (name: String(parts[0]), value: parts.count > 1 ? String(parts[1].drop { $0 == " " }) : "")
        }
        guard status != 100 else { return try answer(hasBody: hasBody) }
        let length = headers.first { $0.name.lowercased() == "content-length" }.flatMap { Int($0.value) } ?? 0
        guard hasBody, length > 0 else { return Answer(status: status, headers: headers, body: []) }
        while received.count < length { try receiveMore() }
        defer { received.removeFirst(length) }
        return Answer(status: status, headers: headers, body: Array(received.prefix(length)))
    }

    /// Everything until the peer closes in good order.
    public func readToEnd() throws -> [UInt8] {
        while true {
            do { try receiveMore() } catch Failure.closed { return received }
        }
    }

    /// Waits for the end of the connection, orderly or not.
    public func waitForEnd() throws {
        do { _ = try readToEnd() } catch Failure.reset {}
    }

    /// Whether anything has arrived. Does not wait.
    public var hasMore: Bool {
        if !received.isEmpty { return true }
        var byte: UInt8 = 0
        return recv(socket, &byte, 1, Int32(MSG_PEEK) | Int32(MSG_DONTWAIT)) > 0
    }

    private var endOfHead: Int? {
        guard received.count >= 4 else { return nil }
        return (0...received.count - 4).first {
            received[$0] == 13 && received[$0..<$0 + 4].elementsEqual([13, 10, 13, 10])
        }
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

/// A JSON value to look into; what is not there is null. Read by Foundation, not by the parser under test.
public struct JSON: CustomStringConvertible {
    private let value: Any?

    public init(_ bytes: [UInt8]) {
        value = try? JSONSerialization.jsonObject(with: Data(bytes), options: .fragmentsAllowed)
    }
    private init(value: Any?) { self.value = value }

    public subscript(_ name: String) -> JSON { JSON(value: (value as? [String: Any])?[name]) }
    public subscript(_ index: Int) -> JSON { JSON(value: array.indices.contains(index) ? array[index].value : nil) }

    public var string: String? { value as? String }
    public var int: Int? { (value as? NSNumber)?.intValue }
    public var double: Double? { (value as? NSNumber)?.doubleValue }
    public var bool: Bool? { value as? Bool }
    public var array: [JSON] { (value as? [Any])?.map { JSON(value: $0) } ?? [] }
    public var strings: [String] { array.compactMap(\.string) }
    public var keys: Set<String> { Set((value as? [String: Any])?.keys.map { $0 } ?? []) }
    /// Whether there is a value. `null` counts as none.
    public var isThere: Bool { value != nil && !(value is NSNull) }
    /// As text, members in the order of their names: equal values have equal texts.
    public var description: String {
        let options: JSONSerialization.WritingOptions = [.sortedKeys, .fragmentsAllowed]
        let text = value.flatMap { try? JSONSerialization.data(withJSONObject: $0, options: options) }
        return text.map { String(decoding: $0, as: UTF8.self) } ?? "nothing"
    }
}

/// Polls until `condition` holds. False when it does not in time; the caller fails the test.
public func eventually(
    within patience: Duration = .seconds(20), every pause: Duration = .milliseconds(5),
    _ condition: () throws -> Bool
) rethrows -> Bool {
    let end = ContinuousClock.now + patience
    while try !condition() {
        guard ContinuousClock.now < end else { return false }
        usleep(UInt32(pause.components.attoseconds / 1_000_000_000_000) + UInt32(pause.components.seconds) * 1_000_000)
    }
    return true
}
