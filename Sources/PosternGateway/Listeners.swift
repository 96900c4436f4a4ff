import Logging
import PosternAPI
import PosternCore
import PosternHTTP
import PosternProcess

/// Passes requests to the handler: in the gateway, its HTTP servers.
protocol Listeners: Sendable {
    /// Returns the ports.
    func start() throws(AppError) -> (main: UInt16, admin: UInt16?)
    func stopAccepting()
    var runningRequests: Int { get }
    /// Cuts off the requests that are still running.
    func stop()
    /// When the certificate expires; nil without TLS.
    var certificateExpiry: Timestamp? { get }
    /// Reads the TLS files again if they have changed. Returns whether they have changed, and why one of them cannot be
    /// used.
    func renewCertificates() -> (isRenewed: Bool, failure: HTTPServerError?)
}

/// The HTTP server for callers, and the one for operators if they have their own.
struct HTTPListeners: Listeners {
    private let main: HTTPServer
    private let admin: HTTPServer?
    private var servers: [HTTPServer] { [main] + (admin.map { [$0] } ?? []) }

    /// - Parameter admin: The handler of the listener for operators, if the settings have one.
    init(
        _ settings: GatewayConfiguration.Server, memory: ByteBudget, handler: any HTTPHandler,
        admin: @autoclosure () -> any HTTPHandler, logger: Logger
    ) {
        main = HTTPServer(settings.http, memory: memory, handler: handler, logger: logger)
        self.admin = settings.adminHTTP.map { HTTPServer($0, memory: memory, handler: admin(), logger: logger) }
    }

    func start() throws(AppError) -> (main: UInt16, admin: UInt16?) {
        let passed = PassedSockets.own
        let adminPort = try admin.map { server throws(AppError) in try start(server, passed.admin) }
        do throws(AppError) {
            return (try start(main, passed.main), adminPort)
        } catch {
            admin?.stopAndWait(grace: .zero)
            throw error
        }
    }

    private func start(_ server: HTTPServer, _ passed: PassedSockets.Socket?) throws(AppError) -> UInt16 {
        do throws(HTTPServerError) {
            return try server.start(on: passed?.descriptor)
        } catch {
            throw error.errorClass == .systemLimit ? .system("\(error.detail).") : .cannotListen("\(error)")
        }
    }

    func stopAccepting() { for server in servers { server.stopAccepting() } }
    var runningRequests: Int { servers.reduce(0) { $0 + $1.runningRequests } }
    func stop() { for server in servers { server.stopAndWait(grace: .zero) } }

    var certificateExpiry: Timestamp? { main.certificateExpiry }

    func renewCertificates() -> (isRenewed: Bool, failure: HTTPServerError?) {
        var isRenewed = false
        var failure: HTTPServerError?
        for server in servers {
            do throws(HTTPServerError) { isRenewed = try server.renewCertificate() || isRenewed } catch {
                failure = error
            }
        }
        return (isRenewed, failure)
    }
}
