import Glibc
import PosternCore

/// Detects clients that hang up while their connection is suspended and libmicrohttpd does not watch its socket.
/// Belongs to the reaper's thread.
///
/// A check costs one system call for all connections that were already suspended at the previous one, so an ordinary
/// write, which is suspended for milliseconds, is never watched.
///
/// A reset is a hang-up. The end of the client's stream may be one, or the client has nothing more to send and waits
/// for its response, which RFC 9112 does not forbid (`nc -N` does so). `Connection.examineHalfClosed` distinguishes
/// them.
struct HangUpWatch {
    /// The time between two checks. With one check for the end of the stream, and one for the reset, a hang-up is
    /// detected within a second.
    static let interval = Duration.milliseconds(250)
    /// The time after a client was probed.
    static let shortInterval = Duration.milliseconds(50)

    private struct Watched {
        let connection: Connection
        let requestNumber: UInt64
        var wasAsked = false
    }
    private var watched: [ObjectIdentifier: Watched] = [:]

    /// - Parameter suspended: the connections that are suspended, with the number of the request.
    /// - Returns: When to check again.
    mutating func look(at suspended: [(connection: Connection, requestNumber: UInt64)]) -> Duration {
        let known = watched
        watched = Dictionary(
            suspended.map {
                (ObjectIdentifier($0.connection), Watched(connection: $0.connection, requestNumber: $0.requestNumber))
            },
            uniquingKeysWith: { $1 })
        var old: [Watched] = []
        for (id, entry) in known where watched[id]?.requestNumber == entry.requestNumber {
            watched[id] = entry
            old.append(entry)
        }
        var hasAsked = false
        for (entry, event) in zip(old, Self.poll(old.map(\.connection.socket))) {
            switch event {
            case .none: continue
            case .reset: entry.connection.endHungUp(requestNumber: entry.requestNumber)
            case .endOfStream:
                guard !entry.wasAsked else { continue }
                switch entry.connection.examineHalfClosed(requestNumber: entry.requestNumber) {
                case .hungUp: entry.connection.endHungUp(requestNumber: entry.requestNumber)
                case .asked:
                    watched[ObjectIdentifier(entry.connection)]?.wasAsked = true
                    hasAsked = true
                case .unknown: continue
                }
            }
        }
        return hasAsked ? Self.shortInterval : Self.interval
    }

    private enum Event { case none, endOfStream, reset }

    /// A socket that was closed meanwhile, or has another owner, is harmless: its connection is no longer suspended.
    private static func poll(_ sockets: [Int32]) -> [Event] {
        guard !sockets.isEmpty else { return [] }
        // POLLRDHUP, which Glibc shows only with _GNU_SOURCE.
        let endOfStream = Int16(0x2000)
        var polled = sockets.map { pollfd(fd: $0, events: endOfStream, revents: 0) }
        guard Glibc.poll(&polled, nfds_t(polled.count), 0) > 0 else { return sockets.map { _ in .none } }
        return polled.map { polled in
            if polled.revents & Int16(POLLHUP | POLLERR) != 0 { return .reset }
            return polled.revents & endOfStream != 0 ? .endOfStream : .none
        }
    }
}
