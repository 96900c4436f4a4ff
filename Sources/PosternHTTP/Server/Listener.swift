internal import CMicrohttpd
import Glibc
import PosternCore
import PosternThreads

/// A listening socket. It is created here and not by libmicrohttpd, so that errors name the cause.
struct Listener {
    let socket: Int32
    let port: UInt16

    init(host: String, port: Int) throws(HTTPServerError) {
        let socket = try Self.bound(host: host, port: port)
        guard listen(socket, 4096) == 0 else {
            let error = HTTPServerError.listening(on: host, port, errno)
            close(socket)
            throw error
        }
        self.socket = socket
        self.port = Self.port(of: socket)
    }

    /// With a socket that listens already.
    init(passed socket: Int32) {
        _ = fcntl(socket, F_SETFD, FD_CLOEXEC)
        _ = fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK)
        self.socket = socket
        port = Self.port(of: socket)
    }

    /// Throws what would prevent listening there, except that the port is in use.
    static func validate(host: String, port: Int) throws(HTTPServerError) {
        do throws(HTTPServerError) {
            close(try bound(host: host, port: port))
        } catch  where error.errorClass == .portInUse {
            return
        }
    }

    private static func bound(host: String, port: Int) throws(HTTPServerError) -> Int32 {
        var hints = addrinfo()
        hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV
        hints.ai_socktype = Int32(SOCK_STREAM.rawValue)
        var found: UnsafeMutablePointer<addrinfo>?
        let code = getaddrinfo(host, String(port), &hints, &found)
        guard code == 0, let address = found else {
            throw HTTPServerError(
                errorClass: .badAddress, detail: "cannot listen on \(host): \(String(cString: gai_strerror(code)))")
        }
        defer { freeaddrinfo(found) }
        let type = Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue)
        let socket = Glibc.socket(address.pointee.ai_family, type, 0)
        guard socket >= 0 || (errno != EMFILE && errno != ENFILE) else { throw HTTPServerError(.descriptors) }
        var on: Int32 = 1
        setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, socklen_t(MemoryLayout<Int32>.size))
        guard socket >= 0, bind(socket, address.pointee.ai_addr, address.pointee.ai_addrlen) == 0 else {
            let error = HTTPServerError.listening(on: host, port, errno)
            if socket >= 0 { close(socket) }
            throw error
        }
        return socket
    }

    private static func port(of socket: Int32) -> UInt16 {
        var address = sockaddr_in6()
        var size = socklen_t(MemoryLayout<sockaddr_in6>.size)
        withUnsafeMutableBytes(of: &address) {
            _ = getsockname(socket, $0.assumingMemoryBound(to: sockaddr.self).baseAddress, &size)
        }
        return UInt16(bigEndian: address.sin6_port)  // At the same place in `sockaddr_in`.
    }
}

extension HTTPServerError {
    fileprivate static func listening(on host: String, _ port: Int, _ code: Int32) -> Self {
        let errorClass: Class =
            switch code {
            case EADDRINUSE: .portInUse
            case EADDRNOTAVAIL, EAFNOSUPPORT: .badAddress
            case EACCES: .notPermitted
            default: .failed
            }
        return Self(
            errorClass: errorClass, detail: "cannot listen on \(host):\(port): \(String(cString: strerror(code)))")
    }
}
