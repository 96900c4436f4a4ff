import Glibc

/// A socket bound to a free port of the loopback address; not listening yet.
public func boundSocket() -> Int32 {
    guard let socket = boundSocket(at: 0) else { preconditionFailure("no free port") }
    return socket
}

/// The same at a certain port; nil if that is in use.
public func boundSocket(at port: UInt16) -> Int32? {
    let socket = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_port = port.bigEndian
    address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
    let code = withUnsafeBytes(of: &address) {
        bind(socket, $0.assumingMemoryBound(to: sockaddr.self).baseAddress, socklen_t($0.count))
    }
    if code == 0 { return socket }
    close(socket)
    return nil
}

public func port(of socket: Int32) -> UInt16 {
    var address = sockaddr_in()
    var length = socklen_t(MemoryLayout<sockaddr_in>.size)
    let code = withUnsafeMutableBytes(of: &address) {
        getsockname(socket, $0.assumingMemoryBound(to: sockaddr.self).baseAddress, &length)
    }
    precondition(code == 0, "not a socket")
    return UInt16(bigEndian: address.sin_port)
}

/// Raises the number of descriptors that this process may have as far as the system allows: usually it is 1024.
public func allowManyDescriptors() {
    var limit = rlimit()
    getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
    limit.rlim_cur = limit.rlim_max
    setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
}

/// A port of the loopback address that refuses connections while `body` runs: it is bound, so no listener is given it.
public func withRefusingPort<R>(_ body: (UInt16) async throws -> R) async rethrows -> R {
    let socket = boundSocket()
    defer { close(socket) }
    return try await body(port(of: socket))
}
