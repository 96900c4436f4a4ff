internal import CMicrohttpd
import Glibc
internal import PosternCore

/// Where new connections wait for their first bytes, which tell those that listen to a stream from all others. Belongs to
/// the acceptor's thread.
///
/// libmicrohttpd looks at all suspended connections of a daemon whenever it resumes some of them, as it does for each
/// commit. Streams are suspended nearly all the time, so they are kept apart, in a daemon of their own. A connection
/// cannot be moved once a daemon has it.
final class Lobby {
    typealias Arrival = HTTPWorker.NewConnection

    /// A client that has sent nothing for so long, or up to twice as long, is served like most are.
    private static let patience = Duration.milliseconds(500)

    private let startOfStream: [UInt8]
    private let epoll: Int32
    private var recent: [Int32: Arrival] = [:]
    private var earlier: [Int32: Arrival] = [:]
    private var nextTick = MonotonicInstant.distantFuture

    /// - Parameter path: Of the requests whose responses are streams.
    init(streamsAt path: String) throws(SystemLimitError) {
        startOfStream = Array("GET \(path)".utf8)
        epoll = epoll_create1(Int32(EPOLL_CLOEXEC))
        guard epoll >= 0 else { throw .descriptors }
    }

    deinit { close(epoll) }

    /// Becomes readable with the first bytes of any connection.
    var descriptor: Int32 { epoll }
    /// When `takeOverdue` has something.
    var deadline: MonotonicInstant { nextTick }

    /// Returns whether the connection's first bytes have not arrived yet, so that it waits here.
    func add(_ arrival: Arrival, at now: MonotonicInstant) -> Bool {
        guard firstBytes(arrival.socket) == .none else { return false }
        var event = epoll_event(events: EPOLLIN.rawValue, data: epoll_data_t(fd: arrival.socket))
        guard epoll_ctl(epoll, EPOLL_CTL_ADD, arrival.socket, &event) == 0 else { return false }
        if recent.isEmpty, earlier.isEmpty { nextTick = now + Self.patience }
        recent[arrival.socket] = arrival
        return true
    }

    /// Those of which something has arrived, if only that the client has left.
    func takeArrived() -> [Arrival] {
        guard !recent.isEmpty || !earlier.isEmpty else { return [] }
        return withUnsafeTemporaryAllocation(of: epoll_event.self, capacity: 64) { events in
            let count = epoll_wait(epoll, events.baseAddress, Int32(events.count), 0)
            return events[..<Int(max(0, count))].compactMap { take($0.data.fd) }
        }
    }

    /// Those that have waited long enough.
    func takeOverdue(at now: MonotonicInstant) -> [Arrival] {
        guard now >= nextTick else { return [] }
        let overdue = earlier.keys.compactMap { take($0) }
        (earlier, recent) = (recent, [:])
        nextTick = earlier.isEmpty ? .distantFuture : now + Self.patience
        return overdue
    }

    func takeAll() -> [Arrival] { (Array(earlier.keys) + Array(recent.keys)).compactMap { take($0) } }

    private func take(_ socket: Int32) -> Arrival? {
        epoll_ctl(epoll, EPOLL_CTL_DEL, socket, nil)
        return recent.removeValue(forKey: socket) ?? earlier.removeValue(forKey: socket)
    }

    // MARK: The first bytes

    private enum FirstBytes { case none, ofStream, others }

    func isStream(_ arrival: Arrival) -> Bool { firstBytes(arrival.socket) == .ofStream }

    private func firstBytes(_ socket: Int32) -> FirstBytes {
        withUnsafeTemporaryAllocation(byteCount: startOfStream.count + 1, alignment: 1) { buffer in
            let count = recv(socket, buffer.baseAddress, buffer.count, Int32(MSG_PEEK | MSG_DONTWAIT))
            if count < 0, errno == EAGAIN { return .none }
            guard count == buffer.count, buffer.starts(with: startOfStream) else { return .others }
            // The end of the path.
            return [UInt8(ascii: " "), UInt8(ascii: "?")].contains(buffer[startOfStream.count]) ? .ofStream : .others
        }
    }
}
