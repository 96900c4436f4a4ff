import PosternCore
public import PosternThreads

/// Why a server did not start.
public struct HTTPServerError: Error, Sendable, Equatable, CustomStringConvertible {
    /// The bounded set of causes, for exit codes.
    public enum Class: String, Sendable { case badAddress, portInUse, notPermitted, badTLSFiles, systemLimit, failed }
    public let errorClass: Class
    /// What happened and where.
    public let detail: String

    public var description: String { "\(detail). \(advice)" }

    private var advice: String {
        switch errorClass {
        case .badAddress: "Set `server.host` to an address of this machine."
        case .portInUse: "Stop the process that listens there, or choose another `server.port`."
        case .notPermitted: "Choose a `server.port` above 1023 or grant the right to bind lower ones."
        case .badTLSFiles:
            "Check the files under `server.tls`: PEM, readable, and the key belonging to the certificate."
        case .systemLimit: "Nothing was started."
        case .failed: "See the log for the error of the HTTP library; check the limits on open files and threads."
        }
    }
}

extension HTTPServerError {
    public init(_ error: SystemLimitError) { self.init(errorClass: .systemLimit, detail: "\(error)") }
}
