import Glibc
import PosternCore

/// A configured value that has not been checked yet.
struct RawValue: Equatable {
    enum Content: Equatable {
        /// From the JSON file.
        case json(ConfigurationNode)
        /// From the environment or a secret file, where every value is text.
        case text(String)
    }
    let content: Content
    /// The environment variable or the secret file that it comes from; nil for the JSON file.
    let origin: String?

    /// For the end of "server.port is 0": ` (from POSTERN_SERVER_PORT)`.
    var fromOrigin: String { origin.map { " (from \($0))" } ?? "" }
}

/// The sources of values, by precedence: environment variables, secret files, the JSON file.
public struct ConfigurationSources {
    static let secretsVariable = "POSTERN_SECRETS_DIR"
    /// Contains an API key for commands. It is not a setting.
    public static let commandKeyVariable = "POSTERN_KEY"

    let file: ConfigurationNode
    let environment: [String: String]
    /// The contents of secret files, by file name.
    let secrets: [String: String]
    let secretsDirectory: String

    func value(at path: [String]) -> RawValue? {
        if !environment.isEmpty {
            let variable = environmentName(of: path)
            if let text = environment[variable] { return RawValue(content: .text(text), origin: variable) }
        }
        if let found = secret(at: path) { return found }
        var node: ConfigurationNode? = file
        for name in path { node = node?[name] }
        return node.map { RawValue(content: .json($0), origin: nil) }
    }

    /// The content of a secret file; nil if there is none of that name.
    func secret(at path: [String]) -> RawValue? {
        guard !secrets.isEmpty else { return nil }
        let name = secretFileName(path)
        return secrets[name].map { RawValue(content: .text($0), origin: "\(secretsDirectory)/\(name)") }
    }
}

/// `POSTERN_UPSTREAMS_PUSH_DEV_API_KEY` for `upstreams.push-dev.apiKey`.
func environmentName(of path: [String]) -> String {
    (["POSTERN"] + path.map(inCapitals)).joined(separator: "_")
}

/// `CLIENT_CA_FILE` for `clientCAFile`: a word begins at an upper-case letter after a lower-case one, and at the last
/// of several upper-case letters if a lower-case one follows.
private func inCapitals(_ name: String) -> String {
    let letters = Array(name)
    var words = ""
    for (index, letter) in letters.enumerated() {
        if letter.isUppercase, index > 0 {
            let endsAcronym =
                letters[index - 1].isUppercase && index + 1 < letters.count && letters[index + 1].isLowercase
            if letters[index - 1].isLowercase || endsAcronym { words += "_" }
        }
        words += letter.isLetter || letter.isNumber ? letter.uppercased() : "_"
    }
    return words
}

/// The name of the secret file for the setting at `path`: `upstreams-seer-clientSecret`.
func secretFileName(_ path: [String]) -> String {
    path.map { String($0.map { $0.isLetter || $0.isNumber || $0 == "-" ? $0 : "_" }) }.joined(separator: "-")
}

/// Returns the text without white space at both ends.
func trimmed(_ text: some StringProtocol) -> String {
    guard let first = text.firstIndex(where: { !$0.isWhitespace }),
        let last = text.lastIndex(where: { !$0.isWhitespace })
    else { return "" }
    return String(text[first...last])
}

struct FileFailure: Error, Equatable {
    let detail: String
}

/// Reads the file at `path`. It may be a pipe if `orPipe`; otherwise a pipe, whose writer may never come, is a failure.
func readFile(_ path: String, atMost limit: Int, orPipe: Bool = false) -> Result<[UInt8], FileFailure> {
    let descriptor = open(path, O_RDONLY | O_CLOEXEC | (orPipe ? 0 : O_NONBLOCK))
    guard descriptor >= 0 else { return .failure(.init(detail: "cannot be read: \(lastError())")) }
    defer { close(descriptor) }
    var status = stat()
    if !orPipe, fstat(descriptor, &status) == 0, status.st_mode & S_IFMT == S_IFIFO {
        return .failure(.init(detail: "is a pipe; expected a regular file"))
    }
    var bytes: [UInt8] = []
    var part = [UInt8](repeating: 0, count: 65_536)
    while true {
        let count = read(descriptor, &part, part.count)
        if count < 0, errno == EINTR { continue }
        guard count >= 0 else { return .failure(.init(detail: "cannot be read: \(lastError())")) }
        guard count > 0 else { return .success(bytes) }
        bytes += part[..<count]
        guard bytes.count <= limit else {
            return .failure(.init(detail: "is larger than \(limit) bytes; check that it is the right file"))
        }
    }
}

func lastError() -> String { String(cString: strerror(errno)) }
