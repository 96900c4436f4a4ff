import Foundation
import Glibc
import PosternAPI
import PosternCore
import PosternHTTP
import PosternStore
import PosternUpstream

/// Problems that would prevent `serve` from starting although every setting is valid alone: files that cannot be used,
/// and addresses that cannot be listened on.
enum StartCheck {
    /// `others`: the problems that are known already. Their settings are not tried.
    static func problems(
        of configuration: GatewayConfiguration, besides others: [ConfigurationProblem] = []
    ) -> [ConfigurationProblem] {
        func isSound(_ section: String) -> Bool { !others.contains { $0.path.hasPrefix(section) } }
        var problems: [ConfigurationProblem] = []
        if isSound("server.") {
            problems += listening(configuration.server.http, as: "server")
            problems += configuration.server.adminHTTP.map { listening($0, as: "server.admin") } ?? []
        }
        if isSound("outbox.path"), configuration.outbox.kind == .sqlite {
            problems += store(configuration.outbox.absolutePath, for: configuration.upstreams)
        }
        return problems
    }

    /// What a gateway starts with, but does not work with: settings that messages wait for, and keys that are rejected.
    static func warnings(
        of configuration: GatewayConfiguration, upstreams: [any Upstream], now: Timestamp
    ) -> [ConfigurationProblem] {
        var warnings: [ConfigurationProblem] = []
        for upstream in upstreams.map(AnyUpstream.init) {
            warnings += upstream.missingSettings.map { name in
                .init(
                    keyPath(["upstreams", "\(upstream.name)"] + Setting.path(of: name)),
                    "has to be filled in; messages wait until it is")
            }
        }
        for upstream in configuration.upstreams where upstream.isEnabled {
            let connection = upstream.connection
            // Files that cannot be used are a problem.
            guard !connection.clientCertificateFile.isEmpty,
                let pair = try? CertificatePair(
                    certificateFile: connection.clientCertificateFile, keyFile: connection.clientKeyFile),
                pair.expiresAt <= now
            else { continue }
            let name = GatewayConfiguration.UpstreamConfiguration.Common.name(of: \.connection.clientCertificateFile)
            warnings.append(
                .init(
                    keyPath(["upstreams", "\(upstream.name)", name]),
                    "is \(ConfigurationNode.string(connection.clientCertificateFile).shown); the certificate expired at "
                        + "\(pair.expiresAt)"))
        }
        for (index, key) in configuration.auth.keys.enumerated() {
            guard let expiresAt = key.expiresAt, expiresAt <= now else { continue }
            warnings.append(.init("auth.keys[\(index)].expiresAt", "is \(expiresAt); the key has expired"))
        }
        return warnings
    }

    /// Files of the store that other users can use.
    static func exposedFiles(of configuration: GatewayConfiguration) -> [ConfigurationProblem] {
        guard configuration.outbox.kind == .sqlite else { return [] }
        return ExposedFile.all(of: configuration.outbox.absolutePath).map {
            ConfigurationProblem("outbox.path", "is not private: \($0)")
        }
    }

    private static func listening(_ server: HTTPServerSettings, as section: String) -> [ConfigurationProblem] {
        do throws(HTTPServerError) {
            try HTTPServer.validate(server)
            return []
        } catch {
            let path =
                switch error.errorClass {
                case .badTLSFiles: "server.tls"
                case .notPermitted, .portInUse: "\(section).port"
                case .badAddress, .systemLimit, .failed: "\(section).host"
                }
            return [ConfigurationProblem(path, "cannot be used: \(error.detail)")]
        }
    }

    private static func store(
        _ path: String, for upstreams: [GatewayConfiguration.UpstreamConfiguration]
    ) -> [ConfigurationProblem] {
        if access(path, F_OK) == 0 {
            do throws(StoreError) {
                return otherTypes(of: upstreams, in: try StoreView(path: path).summaries())
            } catch {
                return [ConfigurationProblem("outbox.path", "cannot be used: \(error)")]
            }
        }
        return (unusableName(path) ?? unusableFolder(of: path)).map { reason in
            [ConfigurationProblem("outbox.path", "cannot be used: no store can be created at \(path): \(reason)")]
        } ?? []
    }

    /// Upstreams whose messages in the store another type accepted.
    private static func otherTypes(
        of upstreams: [GatewayConfiguration.UpstreamConfiguration], in stored: [UpstreamSummary]
    ) -> [ConfigurationProblem] {
        upstreams.filter(\.isEnabled).compactMap { upstream in
            stored.first { $0.name == upstream.name }?.problem(as: upstream.type).map {
                ConfigurationProblem("upstreams.\(upstream.name).type", "cannot be used: \($0)")
            }
        }
    }

    /// Connects to the database of the store, if it has one, and adds what is found there.
    static func connect(_ found: inout ConfigurationLoader.CheckResult) {
        let (outbox, path) = (found.configuration.outbox.located, "outbox.postgres")
        guard outbox.kind == .postgres, !found.problems.contains(where: { $0.path.hasPrefix(path) }) else { return }
        do throws(StoreError) {
            let report = try outbox.postgres.examine()
            found.database = report.summary
            found.problems += report.problems.map { ConfigurationProblem(path, $0) }
            guard report.hasTables, report.problems.isEmpty else { return }
            found.problems += otherTypes(of: found.configuration.upstreams, in: try StoreView(outbox).summaries())
        } catch {
            found.problems.append(ConfigurationProblem(path, "cannot be used: \(error)"))
        }
    }

    /// Why no store can be created under that name. It is made with `.new` appended, of which SQLite takes 504 bytes, and
    /// next to it a `-journal`.
    private static func unusableName(_ path: String) -> String? {
        let name = (path as NSString).lastPathComponent
        if path.hasSuffix("/") { return "that is the name of a directory" }
        if path.utf8.count > 500 { return "the path is longer than 500 bytes" }
        return name.utf8.count > 243 ? "the name is longer than 243 bytes" : nil
    }

    /// Why no file can be created there. The gateway creates the folders that are missing.
    private static func unusableFolder(of path: String) -> String? {
        var folder = (path as NSString).deletingLastPathComponent
        var status = stat()
        while lstat(folder, &status) != 0, folder.count > 1 { folder = (folder as NSString).deletingLastPathComponent }
        guard stat(folder, &status) == 0, status.st_mode & S_IFMT == S_IFDIR else {
            return "\(folder) is not a directory"
        }
        return access(folder, W_OK | X_OK) == 0 ? nil : "\(folder) is not writable"
    }
}
