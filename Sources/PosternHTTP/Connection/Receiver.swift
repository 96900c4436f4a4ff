internal import CMicrohttpd

/// The buffer that a worker reads into, and the connections whose sockets it reads. Belongs to the worker's thread.
final class Receiver: @unchecked Sendable {
    // @unchecked: only the worker's thread uses it, except `deinit`.
    private let scratch = UnsafeMutableBufferPointer<UInt8>.allocate(capacity: 64 << 10)
    /// Connections by socket. Unretained: an entry is removed before libmicrohttpd releases its connection.
    private var connections: [Int32: Unmanaged<Connection>] = [:]

    deinit { scratch.deallocate() }

    func add(_ connection: Connection) { connections[connection.socket] = .passUnretained(connection) }
    func remove(_ connection: Connection) { connections[connection.socket] = nil }

    /// The buffer to read into. One byte more than a body still needs shows whether the socket has more.
    func room(for missingBodyBytes: Int?) -> UnsafeMutableBufferPointer<UInt8> {
        let wanted = max(missingBodyBytes.map { min($0, scratch.count) + 1 } ?? 0, HTTPServerSettings.readAheadBytes)
        return UnsafeMutableBufferPointer(rebasing: scratch[..<min(wanted, scratch.count)])
    }

    /// `session` is nil for a read of the socket itself: on a connection with TLS, one of GnuTLS.
    func receive(
        _ socket: Int32, through session: UnsafeMutableRawPointer?, _ buffer: UnsafeMutableRawBufferPointer
    ) -> Int {
        // Not a registered socket: the stream ends.
        guard let connection = connections[socket] else { return 0 }
        return connection._withUnsafeGuaranteedRef { connection in
            session == nil && connection.tlsSession != nil
                ? Int(POSTERN_READ_UNCHANGED) : connection.receive(into: buffer)
        }
    }
}
