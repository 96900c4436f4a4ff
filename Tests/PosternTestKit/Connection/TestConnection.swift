import Glibc

/// One end of a connection, which a test controls byte by byte. Closed when it is released; every wait has a deadline.
open class TestConnection {
    public enum Failure: Error {
        case connect(Int32)
        case deadline(got: String)
        case closed(got: String)
        case reset
        case garbled(String)
    }

    public let socket: Int32
    private var received: [UInt8] = []

    /// `patience` bounds each wait for bytes.
    public init(socket: Int32, patience: Duration) {
        self.socket = socket
        let (seconds, attoseconds) = patience.components
        var limit = timeval(tv_sec: Int(seconds), tv_usec: Int(attoseconds / 1_000_000_000_000))
        setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, socklen_t(MemoryLayout<timeval>.size))
        setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, socklen_t(MemoryLayout<timeval>.size))
    }

    deinit { close(socket) }

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

    /// The lines of the next head, and the body of the length that it names.
    public func next(hasBody: Bool = true) throws -> (head: [String], body: [UInt8]) {
        var end = endOfHead
        while end == nil {
            try receiveMore()
            end = endOfHead
        }
        let head = String(decoding: received[..<end!], as: UTF8.self).split(separator: "\r\n").map(String.init)
        received.removeFirst(end! + 4)
        let length = head.first { $0.lowercased().hasPrefix("content-length:") }
            .flatMap { Int($0.dropFirst("content-length:".count).drop { $0 == " " }) }
        guard hasBody, let length else { return (head, []) }
        while received.count < length { try receiveMore() }
        defer { received.removeFirst(length) }
        return (head, Array(received.prefix(length)))
    }

    /// Reads exactly `count` bytes.
    public func read(_ count: Int) throws -> [UInt8] {
        while received.count < count { try receiveMore() }
        defer { received.removeFirst(count) }
        return Array(received[..<count])
    }

    /// The next chunk of a body; nil after the last one.
    public func nextChunk() throws -> [UInt8]? {
        var line: [UInt8] = []
        while !line.suffix(2).elementsEqual([13, 10]) { line += try read(1) }
        guard let size = Int(String(decoding: line.dropLast(2), as: UTF8.self), radix: 16) else {
            throw Failure.garbled(String(decoding: line, as: UTF8.self))
        }
        let chunk = try read(size + 2)
        return size == 0 ? nil : Array(chunk.dropLast(2))
    }

    /// Reads everything until the peer closes the connection in an orderly way.
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

    /// Waits for at least one byte.
    public func receiveMore() throws {
        var buffer = [UInt8](repeating: 0, count: 64 << 10)
        let count = recv(socket, &buffer, buffer.count, 0)
        let got = String(decoding: received.prefix(300), as: UTF8.self)
        if count == 0 { throw Failure.closed(got: got) }
        if count < 0 { throw errno == ECONNRESET ? Failure.reset : Failure.deadline(got: got) }
        received += buffer[..<count]
    }
}
