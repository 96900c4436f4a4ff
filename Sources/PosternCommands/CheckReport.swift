import PosternCore
public import PosternGateway
import PosternHTTP

/// The findings of `postern check` about a configuration.
public struct CheckReport: Sendable, Equatable {
    /// The report, for standard output.
    public let text: String
    /// 0, or 78 if there is a problem.
    public let exitCode: Int32

    /// `EX_CONFIG` of sysexits.h.
    static let configurationError: Int32 = 78

    /// `asJSON`: one object `{"file","valid","problems":[{"path","detail"}],"warnings":[…]}` instead of text for
    /// people. `triesToStart`: whether files and addresses are tried as `serve` would.
    public init(on loader: ConfigurationLoader, asJSON: Bool = false, triesToStart: Bool = true) {
        let found = loader.examine(triesToStart: triesToStart)
        exitCode = found.problems.isEmpty ? 0 : Self.configurationError
        guard !asJSON else {
            text = Self.json(loader.file, found)
            return
        }
        let summary =
            found.problems.isEmpty
            ? "\(loader.file) is fine: \(Self.summary(found.configuration))." : Self.text(loader.file, found.problems)
        let database = found.database.map { ["The store is in \($0)."] } ?? []
        text = ([summary] + database + found.warnings.map { "Warning: \($0)" }).joined(separator: "\n")
    }

    private static func summary(_ configuration: GatewayConfiguration) -> String {
        let enabled = configuration.upstreams.filter(\.isEnabled).map(\.name.description)
        let upstreams =
            switch enabled.count {
            case 0: "no upstream"
            case 1: "upstream \(enabled[0])"
            default: "upstreams \(enabled.joined(separator: ", "))"
            }
        let (host, port) = (configuration.server.http.host, configuration.server.http.port)
        return "\(upstreams), to listen on \(host.contains(":") ? "[\(host)]" : host):\(port)"
    }

    /// As it is also shown when the gateway does not start.
    static func text(_ file: String, _ problems: [ConfigurationProblem]) -> String {
        let heading = problems.count == 1 ? "1 problem" : "\(problems.count) problems"
        return (["The configuration \(file) has \(heading):"] + problems.map { "  \($0)" }).joined(separator: "\n")
    }

    private static func json(_ file: String, _ found: ConfigurationLoader.CheckResult) -> String {
        JSONWriter.object { json in
            json.string("file", file)
            json.flag("valid", found.problems.isEmpty)
            json.raw("problems", JSONWriter.array(found.problems.map(Self.json)))
            json.raw("warnings", JSONWriter.array(found.warnings.map(Self.json)))
            if let database = found.database { json.string("database", database) }
        }
    }

    private static func json(_ problem: ConfigurationProblem) -> String {
        JSONWriter.object { json in
            json.string("path", problem.path)
            json.string("detail", problem.detail)
        }
    }
}
