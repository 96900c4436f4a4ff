import Foundation
import Glibc

/// The listening sockets that the service manager passed to this process: sd_listen_fds(3). The service manager goes on
/// listening on them while the process restarts, so callers wait instead of being refused.
public struct PassedSockets: Sendable {
    /// One of them, with its address.
    public struct Socket: Sendable, Equatable {
        public let descriptor: Int32
        let host: String
        let port: UInt16

        /// Nil unless it listens on a TCP port.
        init?(_ descriptor: Int32) {
            var listens: Int32 = 0
            var size = socklen_t(MemoryLayout<Int32>.size)
            guard getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0, listens != 0 else {
                return nil
            }
            var address = sockaddr_storage()
            size = socklen_t(MemoryLayout<sockaddr_storage>.size)
            var host = [CChar](repeating: 0, count: Int(NI_MAXHOST))
            var port = [CChar](repeating: 0, count: Int(NI_MAXSERV))
            let code = withUnsafeMutableBytes(of: &address) { bytes -> Int32 in
                let address = bytes.assumingMemoryBound(to: sockaddr.self).baseAddress!
                guard getsockname(descriptor, address, &size) == 0 else { return -1 }
                return getnameinfo(
                    address, size, &host, socklen_t(host.count), &port, socklen_t(port.count),
                    NI_NUMERICHOST | NI_NUMERICSERV)
            }
            func text(_ characters: [CChar]) -> String {
                String(decoding: characters.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
            }
            guard code == 0, let number = UInt16(text(port)) else { return nil }
            self.descriptor = descriptor
            self.host = text(host)
            self.port = number
        }
    }

    /// The socket for all callers.
    public let main: Socket?
    /// The socket for operators: the one that is named `admin` (`FileDescriptorName=`).
    public let admin: Socket?

    /// Those of this process.
    public static let own = PassedSockets(environment: ProcessInfo.processInfo.environment)

    /// The first descriptor that is passed.
    private static let first: Int32 = 3

    init(environment: [String: String]) {
        // Another process may be meant, whose environment this one has inherited.
        let isMeant = environment["LISTEN_PID"] == "\(getpid())"
        let count = isMeant ? environment["LISTEN_FDS"].flatMap { Int32($0) } ?? 0 : 0
        let names = (environment["LISTEN_FDNAMES"] ?? "").split(separator: ":", omittingEmptySubsequences: false)
        // The number may be wrong, but no descriptor is left out.
        let passed = (0..<max(0, count)).prefix { fcntl(Self.first + $0, F_GETFD) >= 0 }
        let sockets = passed.compactMap { index in
            Socket(Self.first + index).map { ($0, isAdmin: names.dropFirst(Int(index)).first == "admin") }
        }
        main = sockets.first { !$0.isAdmin }?.0
        admin = sockets.first { $0.isAdmin }?.0
    }

    /// Their addresses as settings, by environment variable.
    public var settings: [String: String] {
        var settings: [String: String] = [:]
        for (socket, section) in [(main, "POSTERN_SERVER"), (admin, "POSTERN_SERVER_ADMIN")] {
            guard let socket else { continue }
            settings[section + "_HOST"] = socket.host
            settings[section + "_PORT"] = "\(socket.port)"
        }
        return settings
    }
}
