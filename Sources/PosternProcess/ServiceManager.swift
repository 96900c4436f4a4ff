import Glibc
import PosternCore

/// The service manager that started this process, and what it is told: sd_notify(3), a datagram for each message to the
/// socket that `NOTIFY_SOCKET` names. systemd uses it for services of `Type=notify`.
public struct ServiceManager: Sendable {
    private let socket: Int32
    private let address: sockaddr_un
    private let length: socklen_t
    /// How often it wants to hear that the process works (`WATCHDOG_USEC`); nil if it does not, or if that is not a
    /// positive number (sd_watchdog_enabled(3)).
    public let watchdogPeriod: Duration?

    /// Nil if no service manager wants to be told. A name that begins with `@` is in the abstract namespace (unix(7)).
    public init?(environment: [String: String]) {
        guard let name = environment["NOTIFY_SOCKET"], name.hasPrefix("/") || name.hasPrefix("@") else { return nil }
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        let bytes = Array(name.utf8)
        guard bytes.count < MemoryLayout.size(ofValue: address.sun_path) else { return nil }
        withUnsafeMutableBytes(of: &address.sun_path) { path in
            path.copyBytes(from: bytes)
            if bytes[0] == UInt8(ascii: "@") { path[0] = 0 }
        }
        let socket = Glibc.socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        guard socket >= 0 else { return nil }
        // A manager that does not read must not stop the thread that reloads and stops the gateway.
        var patience = timeval(tv_sec: 1, tv_usec: 0)
        setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &patience, socklen_t(MemoryLayout.size(ofValue: patience)))
        self.socket = socket
        self.address = address
        length = socklen_t(MemoryLayout<sa_family_t>.size + bytes.count)
        // Another process may be meant, whose environment this one has inherited.
        let isMeant = environment["WATCHDOG_PID"].map { $0 == "\(getpid())" } ?? true
        let microseconds = environment["WATCHDOG_USEC"].flatMap { Int64($0) } ?? 0
        watchdogPeriod = isMeant && microseconds > 0 ? .microseconds(microseconds) : nil
    }

    /// Sends assignments such as `READY=1`, all in one message. It is lost if the manager does not listen any more, or
    /// does not read for a second: the service goes on. Returns whether it was sent.
    @discardableResult public func notify(_ lines: [String]) -> Bool {
        let text = Array(lines.joined(separator: "\n").utf8)
        return withUnsafePointer(to: address) { address in
            address.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
                sendto(socket, text, text.count, Int32(MSG_NOSIGNAL), address, length) == text.count
            }
        }
    }

    /// Announces that the configuration is read again; `READY=1` has to follow.
    public func notifyOfReload() {
        var now = timespec()
        clock_gettime(CLOCK_MONOTONIC, &now)
        notify(["RELOADING=1", "MONOTONIC_USEC=\(now.tv_sec * 1_000_000 + now.tv_nsec / 1000)"])
    }
}
