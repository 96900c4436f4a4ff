import PosternCore
import PosternHTTP
import PosternStore
public import PosternUpstream

/// A configuration to begin with: one upstream, what has to be filled in for it, and comments that explain both.
public struct ConfigurationTemplate {
    private let type: UpstreamType
    private let url: String?
    private let encryptionKey: [UInt8]

    /// Why there is no such template.
    public struct Refusal: Error, CustomStringConvertible {
        /// A sentence.
        public let description: String
    }

    /// - Parameters:
    ///   - name: The type of its upstream.
    ///   - url: Where that is; nil means the default of the type.
    public init(
        ofType name: String, at url: String? = nil, types: [UpstreamType] = UpstreamRegistry.all
    ) throws(Refusal) {
        guard let type = types.first(where: { $0.name == name }) else {
            let known = types.map(\.name)
            throw Refusal(
                description: "\(name) is not a type of upstream; the types are \(known.joined(separator: ", ")).")
        }
        if let url, let address = type.settings.first(where: \.isAddress) {
            do throws(Setting.Mismatch) { try type.check(.text(url), of: address) } catch {
                throw Refusal(
                    description: "The URL \(masked(url: url)) cannot be used: \(error.details.joined(separator: "; "))."
                )
            }
        }
        self.type = type
        self.url = url
        encryptionKey = (0..<32).map { _ in UInt8.random(in: .min ... .max) }
    }

    /// The text of the file.
    public var text: String {
        """
        // A configuration of Postern to begin with. `postern config schema` prints all settings with their meanings.
        //   postern check --config FILE    reports every problem of it
        //   postern serve --config FILE    runs the gateway; with --simulate, next to a simulator of the upstream
        {
          "server": {
        \(member(GatewayConfiguration.Server.field(of: \.http.host).setting, indent: 4))
        \(member(GatewayConfiguration.Server.field(of: \.http.port).setting, indent: 4))
          },
          "outbox": {
        \(outbox.joined(separator: "\n"))
          },
          "upstreams": {
        \(comment(type.summary, indent: 4))
            \(JSONEscapes.quoted(type.name)): {
        \(upstream.joined(separator: "\n"))
            },
          },
        }
        """
    }

    private var outbox: [String] {
        var members = [member(OutboxOptions.field(of: \.path).setting, indent: 4)]
        if type.storesCredentials {
            let key = OutboxOptions.field(of: \.encryptionKeys.current).setting
            members.append(
                member(
                    key, value: .text(encryptionKey.hexadecimal), indent: 4, hint: " This one is new, and only here."))
        }
        return members
    }

    /// What has to be filled in, and where messages go. Secrets are better kept elsewhere.
    private var upstream: [String] {
        let settings = type.settings.filter { setting in
            let hasObjects = if case .objects = setting.kind { true } else { false }
            return setting.path.count == 1 && (setting.isAddress || setting.simulated != nil || hasObjects)
        }
        return settings.map { setting in
            let path = ["upstreams", type.name] + setting.path
            if setting.isSecret {
                return comment(
                    "\(setting.name): \(setting.summary) It is a secret: give it in the variable "
                        + "\(environmentName(of: path)), or in the secret file \(secretFileName(path)).",
                    indent: 6)
            }
            return member(setting, value: setting.isAddress ? url.map { .text($0) } : nil, indent: 6)
        }
    }

    private func member(
        _ setting: Setting, value: SettingValue? = nil, indent: Int, hint: String = ""
    ) -> String {
        let space = String(repeating: " ", count: indent)
        let value = (value ?? setting.defaultValue).json
        return comment(setting.summary + hint, indent: indent)
            + "\n\(space)\(JSONEscapes.quoted(setting.name)): \(value),"
    }

    /// The text in lines that are readable in a terminal.
    private func comment(_ text: String, indent: Int) -> String {
        let start = String(repeating: " ", count: indent) + "//"
        var lines: [String] = []
        for word in text.split(separator: " ") {
            if let last = lines.last, last.count + word.count < 100 {
                lines[lines.count - 1] = "\(last) \(word)"
            } else {
                lines.append("\(start) \(word)")
            }
        }
        return lines.joined(separator: "\n")
    }
}
