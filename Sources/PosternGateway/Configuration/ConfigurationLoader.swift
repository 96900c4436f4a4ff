import Foundation
import PosternAPI
import PosternCore
import PosternHTTP
import PosternProcess
public import PosternUpstream

/// Reads the configuration from its sources, checks all of it, and creates the upstreams.
public struct ConfigurationLoader: Sendable {
    let types: [UpstreamType]
    /// Base URLs by type. Upstreams of these types get the URL of their simulator, and credentials that it accepts.
    var simulators: [String: String] = [:]
    /// The encryption key of a run with simulators whose configuration has none.
    var simulatedKey: [UInt8]?
    var environment: [String: String]
    /// Whether `examine` connects to a store in PostgreSQL, which may not be reachable from where a configuration is checked.
    public var connects = false
    private let source: ConfigurationFile
    /// The path of the JSON file as it was given.
    public var file: String { source.path }
    let secretsDirectory: String?

    /// `secretsDirectory`: nil if there is none.
    public init(
        types: [UpstreamType], environment: [String: String], file: ConfigurationFile, secretsDirectory: String?
    ) {
        self.types = types.sorted { $0.name < $1.name }
        self.environment = environment
        source = file
        self.secretsDirectory = secretsDirectory
    }

    /// `file`: the path of the JSON file.
    public init(types: [UpstreamType], environment: [String: String], file: String, secretsDirectory: String?) {
        self.init(
            types: types, environment: environment, file: ConfigurationFile(file), secretsDirectory: secretsDirectory)
    }

    /// With the registry's types and this process's environment. Secret files are looked for in the directory that
    /// `POSTERN_SECRETS_DIR` names, or else in `/run/secrets`, if that exists.
    public init(file: ConfigurationFile) {
        // Where the service manager listens is where this process listens.
        let environment = ProcessInfo.processInfo.environment.merging(PassedSockets.own.settings) { $1 }
        let named = environment[ConfigurationSources.secretsVariable] ?? ""
        let usual = FileManager.default.fileExists(atPath: "/run/secrets") ? "/run/secrets" : nil
        self.init(
            types: UpstreamRegistry.all, environment: environment, file: file,
            secretsDirectory: named.isEmpty ? usual : named)
    }

    /// The same, with the path of the JSON file. `store`: instead of the configured `outbox.path`.
    public init(file: String, store: String? = nil) {
        self.init(file: ConfigurationFile(file))
        if let store { environment["POSTERN_OUTBOX_PATH"] = store }
    }

    /// A configuration without problems, and the enabled upstreams of it, ordered by name.
    public struct LoadedConfiguration: Sendable {
        public var configuration: GatewayConfiguration
        let digest: String
        /// Enabled ones only, ordered by name.
        public let upstreams: [any Upstream]
        /// Warnings: likely mistakes that do not prevent a start.
        let warnings: [ConfigurationProblem]
    }

    /// The result of `check`: the problems with settings, and those that would prevent `serve` from starting.
    public struct CheckResult: Sendable {
        /// Complete only if there are no problems.
        public var configuration = GatewayConfiguration()
        public var problems: [ConfigurationProblem] = []
        /// Likely mistakes that do not prevent a start.
        public var warnings: [ConfigurationProblem] = []
        /// The database of the store, if `examine` has connected to it.
        public var database: String?
    }

    /// Throws all problems at once. Only if the file is not JSON, those of its contents are missing.
    public func load() throws(ConfigurationProblems) -> LoadedConfiguration {
        let found = try settings()
        guard found.problems.isEmpty else { throw ConfigurationProblems(found.problems) }
        return LoadedConfiguration(
            configuration: found.configuration, digest: ConfigurationDigest(of: try parsedFile(), environment).text,
            upstreams: try makeUpstreams(of: found.configuration),
            warnings: found.warnings)
    }

    /// The same, and also tries the files and addresses as `serve` would, unless `triesToStart` is false.
    public func examine(triesToStart: Bool = true) -> CheckResult {
        do throws(ConfigurationProblems) {
            var found = try settings()
            if found.problems.isEmpty {
                let upstreams = try makeUpstreams(of: found.configuration)
                found.warnings += StartCheck.warnings(
                    of: found.configuration, upstreams: upstreams, now: SystemTime().now)
                found.warnings += SDKCheck.warnings(
                    of: upstreams, hasKeys: !found.configuration.auth.keys.isEmpty,
                    requiresCertificates: !found.configuration.server.http.tls.clientCAFile.isEmpty)
            }
            if triesToStart {
                found.problems += StartCheck.problems(of: found.configuration, besides: found.problems)
                found.warnings += StartCheck.exposedFiles(of: found.configuration)
                if connects { StartCheck.connect(&found) }
            }
            return found
        } catch {
            return CheckResult(problems: error.problems)
        }
    }

    /// Every setting of the sources, and every problem with one. Throws only if the file holds no JSON object.
    public func settings() throws(ConfigurationProblems) -> CheckResult { settings(of: try parsedFile()) }

    /// The same without the file, which cannot be read.
    public func settingsOfEnvironment() -> CheckResult { settings(of: .object([])) }

    private func settings(of root: ConfigurationNode) -> CheckResult {
        let environment = environment.filter { !isLinkedPort($0.key, $0.value) }
        let secrets = secretsDirectory.map(SecretFiles.init(in:)) ?? SecretFiles()
        let sources = ConfigurationSources(
            file: root, environment: environment, secrets: secrets.texts, secretsDirectory: secretsDirectory ?? "")
        var check = ConfigurationCheck(sources: sources, types: types, environment: environment)
        check.problems = secrets.problems
        check.simulatedKey = simulatedKey
        var (configuration, schema) = check.configuration()
        // A simulator is on this machine, and speaks plain HTTP.
        for index in configuration.upstreams.indices where simulators[configuration.upstreams[index].type] != nil {
            configuration.upstreams[index].connection = .init()
        }
        return CheckResult(
            configuration: configuration, problems: check.problems,
            warnings: secrets.misspelt(by: schema, keys: configuration.auth.keys.map(\.name))
                + configuration.upstreams.filter(\.isEnabled).flatMap(shortSecrets))
    }

    /// Warnings of secrets that are not masked in what the upstream answers.
    private func shortSecrets(of upstream: GatewayConfiguration.UpstreamConfiguration) -> [ConfigurationProblem] {
        let settings = types.first { $0.name == upstream.type }?.settings ?? []
        // A prefix that is short can be guessed anyway.
        let secret = settings.filter { $0.isSecret && $0.name != SDKSettings.prefixName }
        let values = secret.flatMap { setting -> [(path: [String], text: String)] in
            switch upstream.values[setting.name] {
            case .text(let text): [(setting.path, text)]
            case .strings(let texts): texts.sorted { $0.key < $1.key }.map { (setting.path + [$0.key], $0.value) }
            case .list(let texts): texts.map { (setting.path, $0) }
            default: []
            }
        }
        let short = values.filter { (1..<SecretMask.shortestSecret).contains($0.text.count) }
        return short.map {
            ConfigurationProblem(
                keyPath(["upstreams", "\(upstream.name)"] + $0.path),
                "has less than \(SecretMask.shortestSecret) characters, so it is not masked where the upstream repeats it"
            )
        }
    }

    private func makeUpstreams(of configuration: GatewayConfiguration) throws(ConfigurationProblems) -> [any Upstream] {
        var made: [any Upstream] = []
        for upstream in configuration.upstreams where upstream.isEnabled {
            guard let type = types.first(where: { $0.name == upstream.type }) else { continue }
            let values = simulators[type.name].map { type.simulated(upstream.values, at: $0) } ?? upstream.values
            do throws(Setting.Problems) {
                made.append(try type.make(upstream.name, values))
            } catch {
                throw ConfigurationProblems(
                    error.problems.map {
                        .init(keyPath(["upstreams", "\(upstream.name)"] + Setting.path(of: $0.setting)), $0.detail)
                    })
            }
        }
        return made
    }

    private func parsedFile() throws(ConfigurationProblems) -> ConfigurationNode {
        let detail: String
        switch source.contents() {
        case .failure(let failure): detail = failure.detail
        case .success(let bytes):
            do throws(ConfigurationNode.SyntaxError) {
                let root = try ConfigurationNode.parse(commented: bytes)
                if case .object = root { return root }
                detail = "holds \(root.shown); expected an object"
            } catch {
                detail = error.description
            }
        }
        throw ConfigurationProblems([ConfigurationProblem(file, detail)])
    }
}
