import Foundation
import PosternCore
public import PosternGateway
import PosternHTTP
import PosternUpstream

/// Where a command reaches a gateway, and which certificate it accepts there.
public struct GatewayAddress: Sendable, Equatable {
    /// Without a slash at the end.
    let url: String
    /// The certificates that are accepted from the gateway over TLS.
    let trust: TransferOptions.Trust
    /// PEM file with a client certificate and its key; nil if the command has none.
    let clientCertificateFile: String?

    /// The options of the command line. What they omit is taken from the configuration.
    public struct Choice: Sendable, Equatable {
        /// `--url`; nil means the address in the configuration.
        public var url: String?
        /// PEM file with the authorities of the gateway's certificate.
        var caFile: String?
        /// Whether any certificate is accepted.
        var isInsecure: Bool
        /// PEM file with a client certificate and its key.
        var clientCertificateFile: String?

        public init(
            url: String? = nil, caFile: String? = nil, isInsecure: Bool = false, clientCertificateFile: String? = nil
        ) {
            self.url = url
            self.caFile = caFile
            self.isInsecure = isInsecure
            self.clientCertificateFile = clientCertificateFile
        }

        /// Nil if the command line says nothing about certificates.
        func trust() throws(CommandFailure) -> TransferOptions.Trust? {
            if isInsecure { return .any }
            guard let caFile else { return nil }
            do throws(HTTPServerError) { _ = try CertificateFile(caFile) } catch {
                throw CommandFailure(CommandFailure.no, "--ca cannot be used: \(error.detail).")
            }
            return .authorities(file: caFile)
        }
    }

    /// The gateway at `choice.url`, or else at `fallback`.
    public init(_ choice: Choice, orAt fallback: String) throws(CommandFailure) {
        url = choice.url ?? fallback
        clientCertificateFile = choice.clientCertificateFile
        trust = try choice.trust() ?? .system
    }

    /// The gateway that runs with these settings: on loopback if it listens on all interfaces, with exactly the
    /// certificate that it is configured with, whatever name that has. Nil if its port is not known.
    init?(of server: GatewayConfiguration.Server, _ choice: Choice = Choice()) throws(CommandFailure) {
        guard let url = choice.url ?? Self.url(of: server) else { return nil }
        self.url = url
        clientCertificateFile = choice.clientCertificateFile
        if let chosen = try choice.trust() {
            trust = chosen
        } else if server.http.tls.isOn {
            trust = .publicKey(sha256: try Self.pin(server.http.tls.certificateFile))
        } else {
            trust = .system
        }
    }

    /// As a configuration file has it. Problems of settings that do not concern the address are left to `check`: the
    /// gateway may be running with an earlier version of the file.
    public init(_ loader: ConfigurationLoader, _ choice: Choice) throws(CommandFailure) {
        let found: ConfigurationLoader.CheckResult
        do throws(ConfigurationProblems) { found = try loader.settings() } catch {
            throw CommandFailure(CheckReport.configurationError, CheckReport.text(loader.file, error.problems))
        }
        let concerning = found.problems.filter { $0.path.hasPrefix("server.") }
        guard concerning.isEmpty else {
            throw CommandFailure(CheckReport.configurationError, CheckReport.text(loader.file, concerning))
        }
        guard let address = try Self(of: found.configuration.server, choice) else {
            throw CommandFailure(
                CommandFailure.no, "The configuration leaves the port to the system. Specify its address with --url.")
        }
        self = address
    }

    /// The address at which this machine reaches the probes and the operators' routes of a server. For an address that
    /// means all interfaces, that is loopback.
    private static func url(of server: GatewayConfiguration.Server) -> String? {
        let (host, port) =
            server.admin.isOn ? (server.admin.host, server.admin.port) : (server.http.host, server.http.port)
        guard port > 0 else { return nil }
        let address =
            switch host {
            case "", "0.0.0.0": "127.0.0.1"
            case "::", "[::]": "[::1]"
            case let host where host.contains(":") && !host.hasPrefix("["): "[\(host)]"
            case let host: host
            }
        return "\(server.http.tls.isOn ? "https" : "http")://\(address):\(port)"
    }

    private static func pin(_ certificateFile: String) throws(CommandFailure) -> String {
        do throws(HTTPServerError) {
            return Data(try CertificateFile(certificateFile).publicKeyDigest).base64EncodedString()
        } catch {
            throw CommandFailure(CommandFailure.no, "server.tls.certificateFile cannot be used: \(error.detail).")
        }
    }
}
