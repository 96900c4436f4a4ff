import Foundation
public import PosternCore
import PosternUpstreams

/// Reads the configuration from its sources, checks all of it, and makes the upstreams.
public struct ConfigurationLoader: Sendable {
    var types: [UpstreamType]
    let environment: [String: String]
    let file: String
    let secretsDirectory: String?

    static let largestFile = 1 << 20

    /// `file`: path of the JSON file. `secretsDirectory`: nil when there is none.
    public init(types: [UpstreamType], environment: [String: String], file: String, secretsDirectory: String?) {
        self.types = types.sorted { $0.name < $1.name }
        self.environment = environment
        self.file = file
        self.secretsDirectory = secretsDirectory
    }

    /// With the registry's types and this process's environment. Secret files are looked for in the directory that
    /// `POSTERN_SECRETS_DIR` names, or else in `/run/secrets`, if that exists.
    public init(file: String) {
        let environment = ProcessInfo.processInfo.environment
        let named = environment[ConfigurationSources.secretsVariable] ?? ""
        let usual = FileManager.default.fileExists(atPath: "/run/secrets") ? "/run/secrets" : nil
        self.init(
            types: UpstreamRegistry.types, environment: environment, file: file,
            secretsDirectory: named.isEmpty ? usual : named)
    }

    /// A configuration without problems, and the enabled upstreams of it, ordered by name.
    public struct Loaded: Sendable {
        public let configuration: GatewayConfiguration
        public let upstreams: [any Upstream]
    }

    /// Throws every problem there is at once; only a file that is no JSON hides those of its contents.
    public func load() throws(ConfigurationProblems) -> Loaded {
        let root = try parsedFile()
        let secrets = secretsDirectory.map(readSecrets) ?? (texts: [:], problems: [])
        let sources = ConfigurationSources(
            file: root, environment: environment, secrets: secrets.texts, secretsDirectory: secretsDirectory ?? "")
        var check = ConfigurationCheck(sources: sources, types: types, environment: environment)
        check.problems = ConfigurationSchema.repeatedMembers(in: root) + secrets.problems
        let configuration = check.configuration()
        let made = configuration.instantiate(types) { check.mayBeMade($0) }
        let problems = check.problems + made.problems
        guard problems.isEmpty else { throw ConfigurationProblems(problems) }
        return Loaded(configuration: configuration, upstreams: made.upstreams)
    }

    private func parsedFile() throws(ConfigurationProblems) -> ConfigurationNode {
        let detail: String
        switch readFile(file, atMost: Self.largestFile) {
        case .failure(let failure): detail = failure.detail
        case .success(let bytes):
            do throws(ConfigurationText.SyntaxError) {
                let root = try ConfigurationText.parse(bytes)
                if case .object = root { return root }
                detail = "holds \(root.shown); expected an object"
            } catch {
                detail = "is no JSON at line \(error.line), column \(error.column): \(error.detail)"
            }
        }
        throw ConfigurationProblems([ConfigurationProblem(file, detail)])
    }
}

extension GatewayConfiguration {
    /// Makes the enabled upstreams, ordered by name; throws what all their types find wrong with the settings.
    public func makeUpstreams(of types: [UpstreamType]) throws(ConfigurationProblems) -> [any Upstream] {
        let made = instantiate(types) { _ in true }
        guard made.problems.isEmpty else { throw ConfigurationProblems(made.problems) }
        return made.upstreams
    }

    func instantiate(
        _ types: [UpstreamType], where mayBeMade: (UpstreamName) -> Bool
    ) -> (upstreams: [any Upstream], problems: [ConfigurationProblem]) {
        var made: [any Upstream] = []
        var problems: [ConfigurationProblem] = []
        for upstream in upstreams where upstream.isEnabled && mayBeMade(upstream.name) {
            guard let type = types.first(where: { $0.name == upstream.type }) else { continue }
            do throws(SettingProblems) {
                made.append(try type.make(upstream.name, upstream.settings))
            } catch {
                problems += error.problems.map { upstream.problem(with: $0.setting, $0.detail, of: type) }
            }
        }
        return (made, problems)
    }
}

extension GatewayConfiguration.UpstreamConfiguration {
    fileprivate func problem(with setting: String, _ detail: String, of type: UpstreamType) -> ConfigurationProblem {
        let path = dotted(["upstreams", name.description, setting])
        guard let described = type.settings.first(where: { $0.name == setting }), let value = values[setting] else {
            return ConfigurationProblem(path, detail)
        }
        let shown = described.isSecret && value != described.byDefault ? "***" : value.json
        return ConfigurationProblem(path, "is \(shown); \(detail)")
    }
}
