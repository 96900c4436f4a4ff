public import PosternCore

/// How a server listens and what it puts up with.
public struct HTTPServerSettings: Sendable {
    /// Address or name to listen on; the first address of a name is taken.
    public var host: String
    /// 0 lets the system choose; `HTTPServer.start()` says which.
    public var port: UInt16
    /// Threads that read and write sockets and call the handler; 0 takes one per core.
    public var workerThreads: Int
    /// Split evenly among the worker threads.
    public var maxConnections: Int
    /// 0 for no limit.
    public var maxConnectionsPerAddress: Int
    /// For handlers to admit by default; the server itself goes by what `HTTPHandler.admit` says.
    public var maxBodyBytes: Int
    /// From connecting, or from the first byte of a later request, until the headers are complete. Also the slack a
    /// body has on top of its size at 1 KiB/s.
    public var headerTimeout: Duration
    /// How long a kept-alive connection may wait for its next request.
    public var idleTimeout: Duration
    /// Plain HTTP when nil.
    public var tls: TLSFiles?
    /// For bodies of requests from their headers until the handler has them, and for large responses until they are
    /// sent. A request whose body does not fit is refused with 503.
    public var memory: ByteBudget

    public init(
        host: String = "127.0.0.1", port: UInt16 = 8080, workerThreads: Int = 0, maxConnections: Int = 10_000,
        maxConnectionsPerAddress: Int = 0, maxBodyBytes: Int = 4 << 20, headerTimeout: Duration = .seconds(10),
        idleTimeout: Duration = .seconds(60), tls: TLSFiles? = nil, memory: ByteBudget = ByteBudget(.max)
    ) {
        self.host = host
        self.port = port
        self.workerThreads = workerThreads
        self.maxConnections = maxConnections
        self.maxConnectionsPerAddress = maxConnectionsPerAddress
        self.maxBodyBytes = maxBodyBytes
        self.headerTimeout = headerTimeout
        self.idleTimeout = idleTimeout
        self.tls = tls
        self.memory = memory
    }

    /// Paths of PEM files.
    public struct TLSFiles: Sendable, Equatable {
        /// The certificate, followed by its chain.
        public var certificate: String
        public var key: String
        /// When set, clients are asked for a certificate of these authorities. Whether one without is served is for the
        /// handler to say; see `RequestHead.clientCertificate`.
        public var clientCA: String?

        public init(certificate: String, key: String, clientCA: String? = nil) {
            self.certificate = certificate
            self.key = key
            self.clientCA = clientCA
        }
    }

    /// Request line and headers together; more is refused with 431 (design, section 3.5).
    static let maxHeaderBytes = 16 << 10
    /// Memory of one connection inside libmicrohttpd, which clears all of it after each request: the headers of a
    /// response fit in.
    static let connectionMemory = 8 << 10
    /// How much is read from a socket before it is known whether it belongs to one request.
    static let readAheadBytes = 16 << 10
    /// How often one connection's socket is read before others have their turn.
    static let readsAtOnce = 64
    /// Up to this size the body of a refused request is read away, so that its connection can stay.
    static let discardedBodyBytes = 64 << 10
    /// The keeper's deadlines come first; this one is left for clients that do not read their responses.
    var libraryTimeoutSeconds: UInt32 {
        UInt32(clamping: max(idleTimeout, headerTimeout).components.seconds + 2)
    }
    /// A response larger than this is not copied, counts in `memory`, and has to be read at a certain rate. A smaller one
    /// fits into the buffers of its socket, more or less.
    static let largeResponse = 64 << 10
    /// The least rate at which a large response has to be read, with `headerTimeout` on top: bytes per second.
    var responseRate = 64 << 10
    /// A body may take this long for each of its bytes on top of the header timeout: 1 KiB/s.
    static let bodyNanosecondsPerByte: Int64 = 1_000_000_000 / 1024
}
