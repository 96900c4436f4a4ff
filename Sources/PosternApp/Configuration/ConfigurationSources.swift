import Configuration
import Glibc
import PosternCore

/// A configured value that has not been checked yet.
struct RawValue: Equatable {
    enum Content: Equatable {
        /// From the JSON file.
        case json(ConfigurationNode)
        /// From the environment or a secret file: everything is text there.
        case text(String)
    }
    let content: Content
    /// The environment variable or the secret file it is from; nil for the JSON file.
    let origin: String?

    /// For the end of "server.port is 0": ` (from POSTERN_SERVER_PORT)`.
    var fromOrigin: String { origin.map { " (from \($0))" } ?? "" }
}

/// Where values come from, strongest first: environment variables, secret files, the JSON file.
///
/// The first two are providers of the Configuration package. The file is not: the package refuses arrays of objects
/// (`auth.keys`), and knows neither lines nor members that are given twice.
struct ConfigurationSources {
    static let secretsVariable = "POSTERN_SECRETS_DIR"

    let file: ConfigurationNode
    private let environment: any ConfigProvider
    private let secrets: any ConfigProvider
    private let secretsDirectory: String
    // Most often there are none, and every look-up spells the key anew.
    private let hasVariables: Bool
    private let hasSecrets: Bool

    /// `secrets` has the texts of secret files by the files' names.
    init(file: ConfigurationNode, environment: [String: String], secrets: [String: String], secretsDirectory: String) {
        self.file = file
        let ours = environment.filter { $0.key.hasPrefix("POSTERN_") }
        self.environment = EnvironmentVariablesProvider(environmentVariables: ours)
            .mapKeys { AbsoluteConfigKey(["postern"] + $0.components.map(separatingAcronyms)) }
        let values = secrets.map { (AbsoluteConfigKey([$0]), ConfigValue(.string($1), isSecret: true)) }
        self.secrets = InMemoryProvider(values: Dictionary(uniqueKeysWithValues: values))
            .mapKeys { AbsoluteConfigKey([secretFileName($0.components)]) }
        self.secretsDirectory = secretsDirectory
        hasVariables = !ours.isEmpty
        hasSecrets = !secrets.isEmpty
    }

    func value(at path: [String]) -> RawValue? {
        let key = AbsoluteConfigKey(path)
        if hasVariables, let found = lookUp(key, in: environment), let text = found.text {
            return RawValue(content: .text(text), origin: found.name)
        }
        if let found = secret(at: path) { return found }
        var node: ConfigurationNode? = file
        for name in path { node = node?[name] }
        return node.map { RawValue(content: .json($0), origin: nil) }
    }

    /// What a secret file holds; nil if there is none of that name.
    func secret(at path: [String]) -> RawValue? {
        guard hasSecrets, let text = lookUp(AbsoluteConfigKey(path), in: secrets)?.text else { return nil }
        return RawValue(content: .text(text), origin: "\(secretsDirectory)/\(secretFileName(path))")
    }

    /// `POSTERN_UPSTREAMS_PUSH_DEV_API_KEY` for `upstreams.push-dev.apiKey`.
    func environmentName(of path: [String]) -> String {
        lookUp(AbsoluteConfigKey(path), in: environment)?.name ?? ""
    }

    private func lookUp(_ key: AbsoluteConfigKey, in provider: any ConfigProvider) -> (name: String, text: String?)? {
        // A text is never of the wrong type, so this does not throw.
        guard let result = try? provider.value(forKey: key, type: .string) else { return nil }
        guard case .string(let text)? = result.value?.content else { return (result.encodedKey, nil) }
        return (result.encodedKey, text)
    }
}

/// `clientCAFile` as `clientCA_File`, which becomes `CLIENT_CA_FILE`: the package starts a word at a capital only after a small letter.
private func separatingAcronyms(_ name: String) -> String {
    var words = ""
    var rest = name.unicodeScalars[...]
    while let first = rest.popFirst() {
        words.unicodeScalars.append(first)
        let next = rest.prefix(2).map(\.properties)
        if first.properties.isUppercase, next.count == 2, next[0].isUppercase, next[1].isLowercase { words += "_" }
    }
    return words
}

/// The file's name for the key `path`: `upstreams-seer-clientSecret`, as the package's own provider has it.
func secretFileName(_ path: [String]) -> String {
    path.map { String($0.map { $0.isLetter || $0.isNumber || $0 == "-" ? $0 : "_" }) }.joined(separator: "-")
}

/// Without white space at both ends.
func trimmed(_ text: some StringProtocol) -> String {
    guard let first = text.firstIndex(where: { !$0.isWhitespace }),
        let last = text.lastIndex(where: { !$0.isWhitespace })
    else { return "" }
    return String(text[first...last])
}

struct FileFailure: Error, Equatable {
    let detail: String
}

/// The bytes of the file at `path`; a pipe will do too.
func readFile(_ path: String, atMost limit: Int) -> Result<[UInt8], FileFailure> {
    let descriptor = open(path, O_RDONLY | O_CLOEXEC)
    guard descriptor >= 0 else { return .failure(.init(detail: "cannot be read: \(lastError())")) }
    defer { close(descriptor) }
    var bytes: [UInt8] = []
    var part = [UInt8](repeating: 0, count: 65_536)
    while true {
        let count = read(descriptor, &part, part.count)
        if count < 0, errno == EINTR { continue }
        guard count >= 0 else { return .failure(.init(detail: "cannot be read: \(lastError())")) }
        guard count > 0 else { return .success(bytes) }
        bytes += part[..<count]
        guard bytes.count <= limit else {
            return .failure(.init(detail: "is larger than \(limit) bytes; is it the right file?"))
        }
    }
}

func lastError() -> String { String(cString: strerror(errno)) }
