import PosternCore

/// What `postern check` says about a configuration.
public struct CheckReport: Sendable, Equatable {
    public let text: String
    public let exitCode: Int32

    /// `EX_CONFIG` of sysexits.h.
    public static let configurationError: Int32 = 78

    /// `asJSON`: one object `{"file","valid","problems":[{"path","detail"}]}` instead of text for people.
    public init(on loader: ConfigurationLoader, asJSON: Bool = false) {
        do throws(ConfigurationProblems) {
            let configuration = try loader.load().configuration
            text = asJSON ? Self.json(loader.file, []) : "\(loader.file) is fine: \(Self.summary(configuration))."
            exitCode = 0
        } catch {
            text = asJSON ? Self.json(loader.file, error.problems) : Self.text(loader.file, error.problems)
            exitCode = Self.configurationError
        }
    }

    private static func summary(_ configuration: GatewayConfiguration) -> String {
        let enabled = configuration.upstreams.filter(\.isEnabled).map(\.name.description)
        let upstreams =
            switch enabled.count {
            case 0: "no upstream"
            case 1: "upstream \(enabled[0])"
            default: "upstreams \(enabled.joined(separator: ", "))"
            }
        let host = configuration.server.host
        return "\(upstreams), to listen on \(host.contains(":") ? "[\(host)]" : host):\(configuration.server.port)"
    }

    /// As it is also shown when the gateway does not start.
    static func text(_ file: String, _ problems: [ConfigurationProblem]) -> String {
        let heading = problems.count == 1 ? "1 problem" : "\(problems.count) problems"
        return (["The configuration \(file) has \(heading):"] + problems.map { "  \($0)" }).joined(separator: "\n")
    }

    private static func json(_ file: String, _ problems: [ConfigurationProblem]) -> String {
        let items = problems.map {
            "{\"path\":\(JSONEscapes.quoted($0.path)),\"detail\":\(JSONEscapes.quoted($0.detail))}"
        }
        return "{\"file\":\(JSONEscapes.quoted(file)),\"valid\":\(problems.isEmpty),"
            + "\"problems\":[\(items.joined(separator: ","))]}"
    }
}
