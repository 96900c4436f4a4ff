import Glibc
package import PosternCore

extension Responder {
    /// When the client connected; nil in a test without a connection.
    package var connectedAt: MonotonicInstant? { (target as? Connection)?.connectedAt }

    /// Takes the connection out of HTTP: instead of a response, `use` is called on the connection's worker thread and
    /// owns the socket from then on. `use` is not called if the client has hung up or the server stops. Plain HTTP
    /// only.
    package func detach(_ use: @escaping @Sendable (DetachedConnection) -> Void) { settle(.detached(use)) }
}

/// A connection that the server no longer reads or writes. It is closed when it is released.
package final class DetachedConnection: Sendable {
    /// A duplicate, valid as long as this object, even if the server has closed its own.
    package let socket: Int32
    private let connection: Connection
    private let requestNumber: UInt64

    init(_ connection: Connection) {
        self.connection = connection
        requestNumber = connection.requestNumber
        socket = fcntl(connection.socket, F_DUPFD_CLOEXEC, 0)
    }

    deinit {
        close(socket)
        connection.settle(.hangUp, requestNumber: requestNumber)
    }
}
