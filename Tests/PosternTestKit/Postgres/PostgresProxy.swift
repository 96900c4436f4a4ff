import Glibc
import PosternThreads
import Synchronization

/// Forwards connections to a port of the loopback address to the socket of a PostgreSQL server, and disturbs them as a
/// test requests. All connections end with the last reference.
public final class PostgresProxy: Sendable {
    public enum Direction: Sendable, CaseIterable { case toServer, toClient }

    public enum Fault: Sendable {
        /// Both ends are told that the connection has ended.
        case cut
        /// Nothing more arrives in the direction, until `heal`. What was sent, including the end of the connection,
        /// then arrives late.
        case blackHole
    }

    public let port: UInt16
    private let relay: Relay

    init(to socket: String) throws {
        let listener = boundSocket()
        listen(listener, 128)
        port = PosternTestKit.port(of: listener)
        relay = Relay(socket)
        _ = try DedicatedThread(name: "proxy-accept") { [relay] in relay.accept(from: listener) }
    }

    deinit {
        relay.close()
        // Ends the wait for a connection: the relay is closed, and closes the listener.
        close(connectedSocket(to: port))
    }

    /// The database, for the superuser postgres, without TLS.
    public var url: String { PostgresServer.url(host: "127.0.0.1:\(port)", parameter: "sslmode=disable") }

    /// Disturbs the first connection, whichever it is, for which `count` more bytes pass in `direction`: they are
    /// forwarded, and those after them meet the fault. With 0, that is the connection for which the next byte comes.
    /// Replaces an earlier call whose fault has not struck.
    public func strike(_ fault: Fault, after count: Int, _ direction: Direction) {
        relay.state.withLock {
            $0.strikes += 1
            $0.pending = Strike(number: $0.strikes, fault: fault, count: count, direction: direction)
        }
    }

    /// Whether the fault of the latest `strike` has struck.
    public var hasStruck: Bool { relay.state.withLock { $0.strikes > 0 && $0.pending == nil } }

    /// Stalls all connections in these directions, including new ones, until `heal`.
    public func partition(_ directions: Set<Direction> = Set(Direction.allCases)) {
        relay.state.withLock { $0.partitioned = directions }
    }

    /// Cuts all connections.
    public func cutAll() {
        relay.state.withLock { for link in $0.links { link.cut() } }
    }

    /// Whether new connections are closed immediately.
    public var isRefusing: Bool {
        get { relay.state.withLock { $0.isRefusing } }
        set { relay.state.withLock { $0.isRefusing = newValue } }
    }

    /// Forwards what was stalled, and everything from now on.
    public func heal() {
        relay.state.withLock {
            $0.heals += 1
            $0.pending = nil
            $0.partitioned = []
            $0.isRefusing = false
        }
    }

    /// The bytes that were forwarded in a direction so far, of all connections.
    public func forwarded(_ direction: Direction) -> Int { relay.state.withLock { $0.forwarded[direction] ?? 0 } }

    /// How many connections are open.
    public var connections: Int { relay.state.withLock { $0.links.count } }
}

private struct Strike {
    let number: Int
    let fault: PostgresProxy.Fault
    let count: Int
    let direction: PostgresProxy.Direction
}

private final class Link: @unchecked Sendable {
    // @unchecked: what changes is protected by the lock of the relay.
    let client: Int32
    let server: Int32
    var isCut = false
    /// The bytes that have passed since the strike with the number.
    var (strike, passed) = (0, 0)
    /// Stalled directions, with the number of the `heal` that follows.
    var stalled: [PostgresProxy.Direction: Int] = [:]
    var endedDirections = 0

    init(client: Int32, server: Int32) { (self.client, self.server) = (client, server) }

    func cut() {
        isCut = true
        shutdown(client, Int32(SHUT_RDWR))
        shutdown(server, Int32(SHUT_RDWR))
    }
}

/// What the threads of a proxy share: one that accepts connections, and for each connection one per direction.
private final class Relay: Sendable {
    struct State {
        var links: [Link] = []
        var pending: Strike?
        var (strikes, heals) = (0, 0)
        var partitioned: Set<PostgresProxy.Direction> = []
        var forwarded: [PostgresProxy.Direction: Int] = [:]
        var (isRefusing, isClosed) = (false, false)
    }

    private enum Step {
        /// Forward that many bytes, and then cut the connection, or not.
        case pass(Int, thenCut: Bool)
        case stall
        case end
    }

    let state = Mutex(State())
    private let socket: String

    init(_ socket: String) { self.socket = socket }

    func close() {
        state.withLock {
            $0.isClosed = true
            for link in $0.links { link.cut() }
        }
    }

    func accept(from listener: Int32) {
        while true {
            let client = Glibc.accept(listener, nil, nil)
            guard client >= 0 else { continue }
            var one: Int32 = 1
            setsockopt(client, Int32(IPPROTO_TCP), TCP_NODELAY, &one, socklen_t(MemoryLayout<Int32>.size))
            let server = connectedSocket(to: socket)
            let (isClosed, isRefusing) = state.withLock { ($0.isClosed, $0.isRefusing) }
            if isClosed || isRefusing || server < 0 {
                for descriptor in [client, server] where descriptor >= 0 { Glibc.close(descriptor) }
                if !isClosed { continue }
                Glibc.close(listener)
                return
            }
            begin(Link(client: client, server: server))
        }
    }

    private func begin(_ link: Link) {
        state.withLock {
            $0.links.append(link)
            if $0.isClosed { link.cut() }
        }
        for direction in PostgresProxy.Direction.allCases {
            _ = try! DedicatedThread(name: "proxy-forward") { [self] in
                forward(direction, of: link)
                end(link)
            }
        }
    }

    private func forward(_ direction: PostgresProxy.Direction, of link: Link) {
        let (source, target) = direction == .toServer ? (link.client, link.server) : (link.server, link.client)
        var buffer = [UInt8](repeating: 0, count: 64 << 10)
        while true {
            let count = max(0, recv(source, &buffer, buffer.count, 0))
            var sent = 0
            repeat {
                switch next(count - sent, direction, of: link) {
                case .end: return
                case .stall: usleep(1000)
                case .pass(let bytes, let thenCut):
                    guard send(buffer[sent..<sent + bytes], to: target) else { return }
                    sent += bytes
                    if thenCut { return state.withLock { _ in link.cut() } }
                    if count == 0 {
                        shutdown(target, Int32(SHUT_WR))
                        return
                    }
                }
            } while sent < count || count == 0
        }
    }

    /// What happens to the next `count` bytes, or if it is 0, to the end of the connection.
    private func next(_ count: Int, _ direction: PostgresProxy.Direction, of link: Link) -> Step {
        state.withLock { state in
            if link.isCut { return .end }
            if state.partitioned.contains(direction) || link.stalled[direction] == state.heals { return .stall }
            // Counted before the peer can know of them.
            state.forwarded[direction, default: 0] += count
            guard let strike = state.pending, strike.direction == direction, count > 0 else {
                return .pass(count, thenCut: false)
            }
            if link.strike != strike.number { (link.strike, link.passed) = (strike.number, 0) }
            let left = strike.count - link.passed
            link.passed += count
            guard count >= left else { return .pass(count, thenCut: false) }
            state.pending = nil
            state.forwarded[direction, default: 0] -= count - left
            switch strike.fault {
            // The other direction ends already.
            case .cut: link.isCut = true
            case .blackHole: link.stalled[direction] = state.heals
            }
            return .pass(left, thenCut: link.isCut)
        }
    }

    private func send(_ bytes: ArraySlice<UInt8>, to socket: Int32) -> Bool {
        var rest = bytes
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes { Glibc.send(socket, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
            guard count > 0 else { return false }
            rest = rest.dropFirst(count)
        }
        return true
    }

    /// Closes the sockets after the second direction.
    private func end(_ link: Link) {
        state.withLock {
            link.endedDirections += 1
            guard link.endedDirections == 2 else { return }
            $0.links.removeAll { $0 === link }
            Glibc.close(link.client)
            Glibc.close(link.server)
        }
    }
}

/// A socket connected to a path; negative if there is no listener.
private func connectedSocket(to path: String) -> Int32 {
    var address = sockaddr_un()
    address.sun_family = sa_family_t(AF_UNIX)
    withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8.prefix($0.count - 1)) }
    return connectedSocket(AF_UNIX, &address, MemoryLayout<sockaddr_un>.size)
}

/// A socket connected to a port of the loopback address; negative if there is no listener.
private func connectedSocket(to port: UInt16) -> Int32 {
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_port = port.bigEndian
    address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
    return connectedSocket(AF_INET, &address, MemoryLayout<sockaddr_in>.size)
}

private func connectedSocket(_ family: Int32, _ address: UnsafeRawPointer, _ size: Int) -> Int32 {
    let descriptor = socket(family, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
    let code = connect(descriptor, address.assumingMemoryBound(to: sockaddr.self), socklen_t(size))
    if code == 0 { return descriptor }
    close(descriptor)
    return -1
}
