internal import CMicrohttpd
import Glibc

/// The client's address.
public struct PeerAddress: Sendable, Hashable, CustomStringConvertible {
    /// The IP address as text. An IPv4 address that arrived over IPv6 is shown as IPv4.
    public let description: String
    /// Whether it is in 127.0.0.0/8 or is ::1, also when written as an IPv6 address.
    public let isLoopback: Bool

    init(_ address: UnsafePointer<sockaddr>?) {
        var text = ""
        switch Int32(address?.pointee.sa_family ?? 0) {
        case AF_INET:
            text = Self.text(of: address!, AF_INET, at: MemoryLayout<sockaddr_in>.offset(of: \.sin_addr)!)
        case AF_INET6:
            text = Self.text(of: address!, AF_INET6, at: MemoryLayout<sockaddr_in6>.offset(of: \.sin6_addr)!)
            if text.hasPrefix("::ffff:"), text.contains(".") { text.removeFirst(7) }
        default: break
        }
        self.init(text: text)
    }

    package init(text: String) {
        description = text
        isLoopback = text == "::1" || text.hasPrefix("127.")
    }

    private static func text(of address: UnsafePointer<sockaddr>, _ family: Int32, at offset: Int) -> String {
        var buffer = [CChar](repeating: 0, count: Int(INET6_ADDRSTRLEN))
        guard inet_ntop(family, UnsafeRawPointer(address) + offset, &buffer, socklen_t(buffer.count)) != nil else {
            return ""
        }
        return String(decoding: buffer.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
    }
}
