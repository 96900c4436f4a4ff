import Glibc
import PosternCore
import PosternTestKit
import Synchronization

/// A listener on a free loopback port whose connections are played by a closure, one thread each.
///
/// Every read has a deadline, so a test that goes wrong ends.
final class RawServer: Sendable {
    let port: UInt16
    private let listener: Int32
    private let accepted = Mutex(0)
    private let acceptor = Mutex<DedicatedThread?>(nil)
    var url: String { "http://127.0.0.1:\(port)" }
    var connections: Int { accepted.withLock { $0 } }

    /// `play` gets each connection and its number, from 1.
    init(_ play: @escaping @Sendable (RawConnection, Int) -> Void) {
        listener = boundSocket()
        port = PosternTestKit.port(of: listener)
        listen(listener, 256)
        let thread = DedicatedThread(name: "raw-accept") { [self] in accept(play) }
        acceptor.withLock { $0 = thread }
    }

    private func accept(_ play: @escaping @Sendable (RawConnection, Int) -> Void) {
        while true {
            let connection = Glibc.accept(listener, nil, nil)
            guard connection >= 0 else { return }
            let number = accepted.withLock { count in
                count += 1
                return count
            }
            detach { play(RawConnection(connection), number) }
        }
    }

    /// Ends the accepting thread, then closes the listener: the thread would otherwise accept connections of the next
    /// listener that is given the same descriptor.
    func stop() {
        guard let thread = acceptor.withLock({ $0.take() }) else { return }
        shutdown(listener, Int32(SHUT_RDWR))
        thread.join()
        close(listener)
    }
}

/// The server's end of one connection; closed when it is released.
final class RawConnection: Sendable {
    private let socket: Int32

    init(_ socket: Int32) {
        self.socket = socket
        var deadline = timeval(tv_sec: 60, tv_usec: 0)
        setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &deadline, socklen_t(MemoryLayout<timeval>.size))
        setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &deadline, socklen_t(MemoryLayout<timeval>.size))
    }

    deinit { close(socket) }

    /// Head and body of the next request; nil when the client has gone or takes too long.
    func request() -> String? {
        var bytes: [UInt8] = []
        while true {
            if let end = endOfHead(bytes) {
                let head = String(decoding: bytes[..<end], as: UTF8.self)
                let length = head.split(separator: "\r\n").compactMap { line in
                    line.hasPrefix("Content-Length: ") ? Int(line.dropFirst(16)) : nil
                }
                if bytes.count >= end + (length.first ?? 0) { return String(decoding: bytes, as: UTF8.self) }
            }
            guard let more = read() else { return nil }
            bytes += more
        }
    }

    /// What has arrived; waits for at least one byte.
    func read() -> [UInt8]? {
        var buffer = [UInt8](repeating: 0, count: 1 << 16)
        let count = recv(socket, &buffer, buffer.count, 0)
        return count > 0 ? Array(buffer[..<count]) : nil
    }

    /// False when the client no longer takes anything.
    @discardableResult func send(_ text: String) -> Bool {
        var bytes = Array(text.utf8)[...]
        while !bytes.isEmpty {
            let sent = bytes.withUnsafeBytes {
                Glibc.send(socket, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL))
            }
            guard sent > 0 else { return false }
            bytes = bytes.dropFirst(sent)
        }
        return true
    }

    /// From now on closing means a reset, not an orderly end.
    func resetOnClose() {
        var now = linger(l_onoff: 1, l_linger: 0)
        setsockopt(socket, SOL_SOCKET, SO_LINGER, &now, socklen_t(MemoryLayout<linger>.size))
    }

    /// Ends the connection in order, at once.
    func end() { shutdown(socket, Int32(SHUT_RDWR)) }

    /// Whether the client closed its end within so many milliseconds.
    func hasEnded(within milliseconds: Int32) -> Bool {
        var ready = pollfd(fd: socket, events: Int16(POLLIN), revents: 0)
        return poll(&ready, 1, milliseconds) > 0
    }

    /// Waits until the client has closed its end.
    func waitForEnd() { while read() != nil {} }

    private func endOfHead(_ bytes: [UInt8]) -> Int? {
        let end = Array("\r\n\r\n".utf8)
        guard bytes.count >= 4 else { return nil }
        return (4...bytes.count).first { bytes[($0 - 4)..<$0].elementsEqual(end) }
    }
}

/// Runs `body` on a thread of its own.
private func detach(_ body: @escaping @Sendable () -> Void) {
    final class Box {
        let body: () -> Void
        init(_ body: @escaping () -> Void) { self.body = body }
    }
    var thread = pthread_t()
    let box = Unmanaged.passRetained(Box(body))
    pthread_create(
        &thread, nil,
        { context in
            Unmanaged<Box>.fromOpaque(context!).takeRetainedValue().body()
            return nil
        }, box.toOpaque())
    pthread_detach(thread)
}
