import Glibc
import PosternCore
import PosternTestKit
import PosternThreads
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
        let thread = try! DedicatedThread(name: "raw-accept") { [self] in accept(play) }
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
            _ = try! DedicatedThread(name: "raw-play") { play(RawConnection(connection), number) }
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

/// The server's end of one connection.
final class RawConnection: TestConnection {
    init(_ socket: Int32) { super.init(socket: socket, patience: longestWait) }

    /// The head and body of the next request, or nil if the client has disconnected or takes too long.
    func request() -> String? {
        guard let (head, body) = try? next() else { return nil }
        return head.joined(separator: "\r\n") + "\r\n\r\n" + String(decoding: body, as: UTF8.self)
    }

    /// Makes closing reset the connection instead of ending it in an orderly way.
    func resetOnClose() {
        var now = linger(l_onoff: 1, l_linger: 0)
        setsockopt(socket, SOL_SOCKET, SO_LINGER, &now, socklen_t(MemoryLayout<linger>.size))
    }

    /// Closes the connection in an orderly way immediately.
    func end() { shutdown(socket, Int32(SHUT_RDWR)) }

    /// Whether the client closed its end within so many milliseconds.
    func hasEnded(within milliseconds: Int32) -> Bool {
        var ready = pollfd(fd: socket, events: Int16(POLLIN), revents: 0)
        return poll(&ready, 1, milliseconds) > 0
    }
}
