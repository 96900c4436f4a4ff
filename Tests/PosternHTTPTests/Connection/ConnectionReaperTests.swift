import Glibc
import PosternCore
import PosternTestKit
import Testing

@testable import PosternHTTP

/// The reaper is run by the test, in time that the test moves.
@Suite struct ConnectionReaperTests {
    private let reaper = ConnectionReaper(headerTimeout: .seconds(10), idleTimeout: .seconds(10))
    private let time = ManualTime()

    /// A client, and whether it is still read.
    private final class Client {
        let socket: Int32

        init(readBy reaper: ConnectionReaper) {
            var ends: [Int32] = [-1, -1]
            #expect(socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &ends) == 0)
            socket = ends[0]
            reaper.readOut(ends[1])
            close(ends[1])
        }

        deinit { close(socket) }

        func write() { #expect(Glibc.send(socket, "a", 1, Int32(MSG_NOSIGNAL)) == 1) }

        var isRead: Bool {
            var polled = pollfd(fd: socket, events: 0, revents: 0)
            return poll(&polled, 1, 0) == 0
        }
    }

    private func turn(after span: Duration) {
        time.advance(by: span)
        _ = reaper.turn(at: time.instant)
    }

    @Test func silentClient_isReadForTwoSeconds() {
        let client = Client(readBy: reaper)
        turn(after: .zero)
        turn(after: .milliseconds(1999))
        #expect(client.isRead)
        turn(after: .milliseconds(1))
        #expect(!client.isRead)
    }

    @Test func clientThatGoesOnSending_isReadForTwentySeconds() {
        let client = Client(readBy: reaper)
        turn(after: .zero)
        for _ in 1..<20 {
            client.write()
            turn(after: .seconds(1))
            #expect(client.isRead)
        }
        client.write()
        turn(after: .seconds(1))
        #expect(!client.isRead)
    }

    @Test func reaper_sleeps_withoutConnections() {
        let client = Client(readBy: reaper)
        #expect(reaper.turn(at: time.instant) != .distantFuture)
        turn(after: .seconds(2))
        #expect(!client.isRead)
        #expect(reaper.turn(at: time.instant) == .distantFuture)
    }
}
