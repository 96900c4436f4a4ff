public import PosternCore
import Synchronization

/// A request as an upstream's type builds it, complete except for the headers that the transport adds.
public struct UpstreamRequest: Sendable, Equatable {
    public enum Method: String, Sendable {
        case get = "GET"
        case post = "POST"
        case put = "PUT"
        case patch = "PATCH"
        case delete = "DELETE"
    }

    public var method: Method
    /// Absolute, in ASCII, with its query. May contain credentials.
    public var url: String
    /// In the order sent. `Host`, `Content-Length` and the coding of the body are added by the transport.
    public var headers: [(name: String, value: String)]
    /// Before compression; empty for none.
    public var body: [UInt8]
    /// Whether the body is sent compressed, with `Content-Encoding: gzip`.
    public var gzip: Bool
    /// The endpoint: a path, a kind, or a step. Requests to one endpoint fail together. The upstream's type has a
    /// bounded number of them. Not sent.
    public var endpoint: String
    /// The step of its message's sequence, by which the upstream's type recognizes the response. It is stored with the
    /// attempt. Not sent.
    public var step: String?
    /// The version of the stored credential that it carries; not sent.
    public var credentialVersion: Int64?
    /// Stored with its only message before the request is sent, so that a later run knows which step may have arrived.
    /// If it differs from what is stored, a step begins, and `Message.mayHaveArrived` is about that step from then on.
    /// Nil means that nothing is stored; not sent.
    public var progress: [UInt8]?
    /// Parts of it that authenticate the sender, such as a signature. They are masked where requests are shown.
    public var proofs: [String]
    /// The maximum number of bytes of the response's body; the rest is discarded.
    public var maxResponseBytes: Int
    /// Whether a status says all that its response means. A response with such a status counts as soon as its header has
    /// arrived, even if its body is cut short or does not come; any other one is then a failed transfer. Not sent.
    public var statusDecides: @Sendable (Int) -> Bool
    /// Whether nothing is sent: only a connection of its own is made, with name, address, and TLS, and then closed. The
    /// response to that has the status 0, and nothing else.
    public var onlyConnects = false
    /// Returns the request signed at another time. Nil if no time is part of a signature. It is called if the request was
    /// not sent within a second; not sent.
    public var signedAgain: (@Sendable (Timestamp) -> UpstreamRequest)?

    public init(
        method: Method = .post, url: String, headers: [(name: String, value: String)] = [], body: [UInt8] = [],
        gzip: Bool = false, endpoint: String = "", step: String? = nil, credentialVersion: Int64? = nil,
        progress: [UInt8]? = nil, proofs: [String] = [], maxResponseBytes: Int = 1 << 20,
        statusDecides: @escaping @Sendable (Int) -> Bool = { _ in false }
    ) {
        self.method = method
        self.url = url
        self.headers = headers
        self.body = body
        self.gzip = gzip
        self.endpoint = endpoint
        self.step = step
        self.credentialVersion = credentialVersion
        self.progress = progress
        self.proofs = proofs
        self.maxResponseBytes = maxResponseBytes
        self.statusDecides = statusDecides
    }

    /// Adds the header that names the trace to which the request belongs (W3C Trace Context). Nil adds none.
    public mutating func add(traceParent: String?) {
        if let traceParent { headers.append(("traceparent", traceParent)) }
    }

    public static func == (left: Self, right: Self) -> Bool {
        left.method == right.method && left.url == right.url && left.body == right.body && left.gzip == right.gzip
            && left.endpoint == right.endpoint && left.step == right.step
            && left.credentialVersion == right.credentialVersion && left.progress == right.progress
            && left.onlyConnects == right.onlyConnects && left.headers.elementsEqual(right.headers, by: ==)
    }
}

/// An upstream's response. The body is cut at the request's limit, or where the connection broke (`statusDecides`).
public struct UpstreamResponse: Sendable, Equatable {
    /// As received, which may be a number that HTTP does not define.
    public var status: Int
    /// In the order received, trailers excluded.
    public var headers: [(name: String, value: String)]
    /// Empty if there was none.
    public var body: [UInt8]

    public init(status: Int, headers: [(name: String, value: String)] = [], body: [UInt8] = []) {
        self.status = status
        self.headers = headers
        self.body = body
    }

    /// The first header of that name; names differ in case only by accident (RFC 9110, section 5.1).
    public func header(_ name: String) -> String? {
        headers.first { $0.name.lowercased() == name.lowercased() }?.value
    }

    /// The delay that `Retry-After` asks for; nil if there is none that can be read.
    public func retryAfter(now: Timestamp) -> Duration? {
        header("Retry-After").flatMap { RetryAfter.delay($0, now: now) }
    }

    public static func == (left: Self, right: Self) -> Bool {
        left.status == right.status && left.body == right.body && left.headers.elementsEqual(right.headers, by: ==)
    }
}

/// Why a request got no response.
public struct TransferFailure: Error, Sendable, Equatable {
    /// The bounded set of causes, for verdicts and metrics.
    public enum Reason: String, Sendable {
        /// No connection could be established (name, address, TLS). The upstream has received nothing.
        case unreachable
        /// The gateway has no thread or no memory for it. The upstream has received nothing.
        case lackedResources
        /// The time limit was exceeded.
        case timeout
        /// The connection broke during the transfer.
        case interrupted
        /// The response is not valid HTTP, or its header lines are longer than allowed.
        case garbled
        /// Cancelled by the gateway, because it stops or the caller has hung up.
        case cancelled
    }
    public let reason: Reason
    /// Whether the upstream may have received the request. False only if it certainly has not.
    public let mayHaveArrived: Bool
    /// What happened, as libcurl describes it; without payloads and credentials.
    public let detail: String

    public init(_ reason: Reason, mayHaveArrived: Bool, detail: String) {
        self.reason = reason
        self.mayHaveArrived = mayHaveArrived
        self.detail = detail
    }
}

/// The result of a request.
public typealias TransferResult = Result<UpstreamResponse, TransferFailure>

/// Limits of one transfer.
public struct TransferOptions: Sendable, Equatable {
    /// Includes name lookup and the TLS handshake.
    public var connectTimeout: Duration
    /// The time limit of the whole exchange, including the connection.
    public var requestTimeout: Duration
    /// Ignored for `http` URLs.
    public var trust: Trust
    /// Presented to a server that requests one. Ignored for `http` URLs.
    public var clientCertificate: ClientCertificate?
    /// The proxy through which all connections go; nil means none, whatever the environment says.
    public var proxy: Proxy?
    /// Addresses that names have, instead of those that the system finds: `host:port:address`.
    public var resolve: [String] = []
    /// Which connections it may share.
    public var connections: ConnectionGroup
    /// How long a connection is used, counted from its first request.
    public var connectionMaxAge: Duration

    public init(
        connectTimeout: Duration = .seconds(5), requestTimeout: Duration = .seconds(30), trust: Trust = .system,
        clientCertificate: ClientCertificate? = nil, proxy: Proxy? = nil,
        connections: ConnectionGroup = ConnectionGroup(), connectionMaxAge: Duration = .seconds(120)
    ) {
        self.connectTimeout = connectTimeout
        self.requestTimeout = requestTimeout
        self.trust = trust
        self.clientCertificate = clientCertificate
        self.proxy = proxy
        self.connections = connections
        self.connectionMaxAge = connectionMaxAge
    }
}

/// Sends requests. Any thread may call; `completion` is called exactly once, on a thread of the transport's, and must
/// not block.
public protocol Transport: Sendable {
    @discardableResult func submit(
        _ request: UpstreamRequest, options: TransferOptions, completion: @escaping @Sendable (TransferResult) -> Void
    ) -> SubmittedTransfer
}

/// A transfer that can be aborted.
public struct SubmittedTransfer: Sendable {
    /// Ends the transfer with `.cancelled` unless it has ended. May be called from any thread, and more than once.
    public let cancel: @Sendable () -> Void

    public init(cancel: @escaping @Sendable () -> Void) { self.cancel = cancel }
}

extension Transport {
    /// Sends `request` and waits for the result.
    ///
    /// - Parameter isAbortable: Whether cancelling the task aborts the transfer.
    public func send(
        _ request: UpstreamRequest, options: TransferOptions, isAbortable: Bool = true
    ) async -> TransferResult {
        let cancellation = TransferCancellation()
        return await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                cancellation.started(submit(request, options: options) { continuation.resume(returning: $0) })
            }
        } onCancel: {
            if isAbortable { cancellation.cancel() }
        }
    }
}

/// Connects a task's cancellation with its transfer, whichever of the two comes first.
private final class TransferCancellation: Sendable {
    private struct State {
        var isCancelled = false
        var transfer: SubmittedTransfer?
    }
    private let state = Mutex(State())

    func started(_ transfer: SubmittedTransfer) {
        let isCancelled = state.withLock { state in
            state.transfer = transfer
            return state.isCancelled
        }
        if isCancelled { transfer.cancel() }
    }

    func cancel() {
        let transfer = state.withLock { state in
            state.isCancelled = true
            return state.transfer
        }
        transfer?.cancel()
    }
}

extension TransferOptions {
    /// Which server a transfer accepts over TLS.
    public enum Trust: Sendable, Equatable {
        /// One whose certificate was issued by an authority of the system.
        case system
        /// One whose certificate was issued by an authority in this PEM file. Those of the system do not count. The file is
        /// read for each new connection.
        case authorities(file: String)
        /// The server that holds this key, whatever name and term its certificate has: the SHA-256 of the
        /// SubjectPublicKeyInfo, in Base64.
        case publicKey(sha256: String)
        /// Any server.
        case any
    }
}

extension TransferOptions {
    /// PEM files, which are read for each new connection, so that replaced ones take effect.
    public struct ClientCertificate: Sendable, Equatable {
        /// The certificate, with those of the authorities between it and the one that the server knows.
        public var certificateFile: String
        /// Its key, not encrypted. May be the same file.
        public var keyFile: String

        public init(certificateFile: String, keyFile: String) {
            self.certificateFile = certificateFile
            self.keyFile = keyFile
        }
    }

    /// An HTTP proxy that makes tunnels (`CONNECT`).
    public struct Proxy: Sendable, Equatable {
        /// `http://host:port`.
        public var url: String
        /// Empty for a proxy without authentication.
        public var username: String
        public var password: String

        public init(url: String, username: String = "", password: String = "") {
            self.url = url
            self.username = username
            self.password = password
        }
    }
}
