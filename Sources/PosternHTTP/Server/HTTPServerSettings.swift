/// How a server listens, and its limits.
public struct HTTPServerSettings: Sendable, Equatable {
    /// Address or name to listen on; the first address of a name is taken.
    public var host = "127.0.0.1"
    /// The port. 0 lets the system choose; `HTTPServer.start()` returns it.
    public var port = 8080
    /// The number of threads that read and write sockets and call the handler; 0 means one per core.
    public var workerThreads = 0
    /// The maximum number of connections, split evenly among the worker threads.
    public var maxConnections = 10_000
    /// 0 means no limit.
    public var maxConnectionsPerAddress = 0
    /// The time from connecting, or from the first byte of a later request, until the headers are complete. A body may
    /// take this time in addition to its size at 1 KiB/s.
    public var headerTimeout = Duration.seconds(10)
    /// How long a kept-alive connection may wait for its next request. Longer than the 60 s for which nginx and the load
    /// balancers of AWS keep one: the side that sends requests must be the first to close.
    public var idleTimeout = Duration.seconds(75)
    /// Plain HTTP if its files are empty.
    public var tls = TLSFiles()

    public init(_ change: (inout Self) -> Void = { _ in }) { change(&self) }

    /// Request line and headers together; more is refused with 431 (design, section 3.6).
    static let maxHeaderBytes = 16 << 10
    /// Memory of one connection inside libmicrohttpd, which clears it with each request: half of it before the response,
    /// all of it after. The head of a response has to fit in. So does the constant that stands for the request, but no
    /// body does, except one chunk of a stream.
    ///
    /// The longest heads are a console file's and a preflight's, to a page whose origin is as long as a DNS name may be
    /// and with the longest `X-Request-Id`: 1180 and 1700 bytes (`ResponseHeadTests`). glibc clears 2 KiB without
    /// `rep stosb`, which callgrind shows and which starts slowly.
    static let connectionMemory = 2 << 10
    /// The most that all header lines of a response may have. The rest is for the status line, `Date`, and
    /// `Content-Length`, and for what libmicrohttpd stores of the request.
    package static let maxResponseHeaderBytes = connectionMemory - 256
    /// How much of a stream is read at once for a client that does not know chunks.
    static let streamBlock = 8 << 10
    /// How many bytes are read from a socket before it is known whether they belong to one request.
    static let readAheadBytes = 16 << 10
    /// How often one connection's socket is read before others are served.
    static let readsAtOnce = 64
    /// Up to this size, the body of a rejected request is read and discarded, so that its connection can stay open.
    static let discardedBodyBytes = 64 << 10
    /// The reaper's deadlines are earlier; this one is for clients that do not read their responses.
    var libraryTimeoutSeconds: UInt32 {
        UInt32(clamping: max(idleTimeout, headerTimeout).components.seconds + 2)
    }
    /// A larger body does not use all of the memory budget, see `ByteBudget.shareOfLarge`.
    static let largeBody = 64 << 10
    /// A response larger than this is not copied, counts in `memory`, and has to be read at a certain rate. A smaller
    /// one roughly fits into the buffers of its socket.
    static let largeResponse = 64 << 10
    /// The least rate at which a large response has to be read, with `headerTimeout` on top: bytes per second.
    var responseRate = 64 << 10
    /// A body may take this long for each of its bytes on top of the header timeout: 1 KiB/s.
    static let bodyNanosecondsPerByte: Int64 = 1_000_000_000 / 1024
}

/// Paths of PEM files, or empty: the configuration's `server.tls`. Certificate and key are given together.
public struct TLSFiles: Sendable, Equatable {
    /// The certificate, followed by its chain. Empty means plain HTTP.
    public var certificateFile = ""
    /// The private key of the certificate.
    public var keyFile = ""
    /// If given, a certificate of these authorities is requested from clients. The handler decides whether a client
    /// without one is served; see `RequestHead.clientCertificate`.
    public var clientCAFile = ""

    /// Whether the server speaks TLS.
    public var isOn: Bool { !certificateFile.isEmpty }

    public init() {}
}
