internal import CMicrohttpd
import Glibc
import Logging
import PosternCore
import Synchronization

/// The context of libmicrohttpd's callbacks. It exists from before the daemon's start until after its end.
final class ServerCore: Sendable {
    let settings: HTTPServerSettings
    /// The budget for bodies of requests, from their headers until the handler has them, and for large responses until
    /// they are sent. A request whose body does not fit is rejected with 503.
    let memory: ByteBudget
    /// The identity for new connections; nil without TLS.
    let identity = Mutex<TLSIdentity?>(nil)
    /// The stamps of the TLS files when they were last read.
    let lookedAt = Mutex<FileStamps?>(nil)
    let handler: any HTTPHandler
    let logger: Logger
    let reaper: ConnectionReaper
    let limiter: ConnectionLimiter
    /// The number of requests whose headers have arrived and whose response has not been sent.
    let running = Atomic<Int>(0)
    /// The number of `Connection` objects. More than open connections means that a responder is still retained.
    let living = Atomic<Int>(0)
    /// Whether every response closes its connection.
    let isDraining = Atomic<Bool>(false)
    /// Whether the server no longer waits for anything.
    let isAborting = Atomic<Bool>(false)
    /// Signalled when the last running request ends while draining.
    let drained = EventFD()

    init(_ settings: HTTPServerSettings, memory: ByteBudget, handler: any HTTPHandler, logger: Logger) {
        self.settings = settings
        self.memory = memory
        self.handler = handler
        self.logger = logger
        limiter = ConnectionLimiter(total: settings.maxConnections, perAddress: settings.maxConnectionsPerAddress)
        reaper = ConnectionReaper(headerTimeout: settings.headerTimeout, idleTimeout: settings.idleTimeout)
    }

    func finishRequest() {
        let left = running.wrappingSubtract(1, ordering: .releasing).newValue
        if left == 0, isDraining.load(ordering: .relaxed) { drained.signal() }
    }

    /// The connection of a request.
    func clientCertificate(of connection: OpaquePointer) -> ClientCertificate {
        guard !settings.tls.clientCAFile.isEmpty else { return .notRequested }
        return postern_mhd_tls_session(connection).map(ClientCertificate.init) ?? .missing
    }
}

// MARK: The callbacks

private func worker(_ context: UnsafeMutableRawPointer?) -> HTTPWorker {
    Unmanaged<HTTPWorker>.fromOpaque(context!).takeUnretainedValue()
}

/// The connection stored in the socket's context: retained there from `connectionChanged` to `connectionChanged`, so
/// that the callbacks between need no reference of their own.
private func connection(_ handle: OpaquePointer?) -> Unmanaged<Connection>? {
    handle.flatMap { postern_mhd_socket_context($0) }.map { Unmanaged<Connection>.fromOpaque($0) }
}

let connectionChanged: MHD_NotifyConnectionCallback = { context, handle, slot, change in
    guard let handle, let slot else { return }
    let worker = worker(context)
    let core = worker.core
    if change == .CONNECTION_NOTIFY_STARTED {
        let connection = Connection(handle, of: worker)
        // Not the certificate that the daemon was started with: it may have been renewed.
        if let session = postern_mhd_tls_session(handle) { connection.identity?.identify(session) }
        core.reaper.add(connection)
        worker.receiver.add(connection)
        slot.pointee = Unmanaged.passRetained(connection).toOpaque()
    } else if let pointer = slot.pointee {
        let connection = Unmanaged<Connection>.fromOpaque(pointer).takeRetainedValue()
        slot.pointee = nil
        worker.receiver.remove(connection)
        connection.finish()
        connection.endRequest(.closed)
        core.reaper.remove(connection, lingering: connection.drainsInput)
        worker.release(connection)
    }
}

let requestAdvanced: MHD_AccessHandlerCallback = { _, handle, _, _, _, _, size, slot in
    size?.pointee = 0
    guard let slot, let pointer = slot.pointee ?? connection(handle)?.toOpaque() else { return .NO }
    slot.pointee = pointer
    return Unmanaged<Connection>.fromOpaque(pointer)._withUnsafeGuaranteedRef { $0.advance() }
}

/// libmicrohttpd is about to read a socket.
let socketRead: postern_receiver = { context, socket, session, buffer, size in
    guard let buffer else { return 0 }
    let room = UnsafeMutableRawBufferPointer(start: buffer, count: size)
    return worker(context).receiver.receive(socket, through: session, room)
}

let requestCompleted: MHD_RequestCompletedCallback = { _, _, slot, _ in
    guard let pointer = slot?.pointee else { return }
    Unmanaged<Connection>.fromOpaque(pointer)._withUnsafeGuaranteedRef { $0.finish() }
    slot?.pointee = nil
}

let messageLogged: MHD_LogCallback = { context, format, arguments in
    guard let format, let arguments else { return }
    let logger = worker(context).core.logger
    guard logger.logLevel <= .debug else { return }
    var text = [CChar](repeating: 0, count: 512)
    vsnprintf(&text, text.count, format, arguments)
    let line = String(decoding: text.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
    logger.debug("libmicrohttpd reported", metadata: ["message": "\(line.split(separator: "\n").joined())"])
}
