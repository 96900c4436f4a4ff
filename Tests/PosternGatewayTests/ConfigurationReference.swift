import PosternCore
import PosternStore

@testable import PosternGateway

/// The documents that say which settings there are, made from the same tables that check them.
enum ConfigurationReference {
    /// `config.example.json`: every setting with its default, and one upstream of each type.
    static func example(types: [UpstreamType]) -> String {
        var sections: [(name: String, members: [String])] = []
        for name in ConfigurationSchema.sectionNames {
            switch name {
            case "upstreams": sections.append((name, types.map { "\"\($0.name)\": \(object(upstream($0), depth: 2))" }))
            default: sections.append((name, members(of: name)))
            }
        }
        return object(sections.map { "\"\($0.name)\": \(object($0.members, depth: 1))" }, depth: 0) + "\n"
    }

    private static func members(of section: String) -> [String] {
        var members = ConfigurationSchema.fixed.first { $0.path == [section] }?.settings.map(member) ?? []
        for inner in ConfigurationSchema.fixed where inner.path.count == 2 && inner.path[0] == section {
            members.append("\"\(inner.path[1])\": \(object(inner.settings.map(member), depth: 2))")
        }
        return section == ConfigurationSchema.keysPath[0] ? members + ["\"keys\": []"] : members
    }

    private static func upstream(_ type: UpstreamType) -> [String] {
        let queue = QueueCap.fields.map { member($0.setting) }
        let common = GatewayConfiguration.UpstreamConfiguration.Common.fields.map(\.setting).filter {
            $0.name != "type"
        }
        return (common + type.settings).map(member)
            + ["\"delivery\": {}", "\"queue\": \(object(queue, depth: 3))"]
    }

    private static func member(_ setting: Setting) -> String {
        "\"\(setting.name)\": \(setting.defaultValue.json)"
    }

    private static func object(_ members: [String], depth: Int) -> String {
        guard !members.isEmpty else { return "{}" }
        let indent = String(repeating: "  ", count: depth)
        return "{\n" + members.map { "\(indent)  \($0)" }.joined(separator: ",\n") + "\n\(indent)}"
    }

    /// `docs/configuration.md`.
    static func markdown(types: [UpstreamType]) -> String {
        var text = introduction
        for section in ConfigurationSchema.fixed {
            text += "\n## `\(section.path.joined(separator: "."))`\n\n\(table(section.settings))"
            if section.path == ["auth"] {
                text +=
                    "\n### `auth.keys`\n\n\(aboutKeys)\n\(table(KeyEntry.fields.map(\.setting), needed: KeyEntry.needed))"
            }
            if section.path == ["delivery"] { text += upstreams(types) }
        }
        return text + reload
    }

    private static func upstreams(_ types: [UpstreamType]) -> String {
        var text = "\n## `upstreams`\n\n\(aboutUpstreams)\n"
        let sections = ConfigurationSchema.common(at: ["upstreams", "<name>"])
        for section in sections where section.path.last != "delivery" {
            text += "### `\(section.path.joined(separator: "."))`, of any type\n\n\(table(section.settings))\n"
        }
        text += "`upstreams.<name>.delivery` takes every setting of `delivery`, for this upstream alone.\n"
        for type in types {
            text += "\n### `upstreams.<name>`, type `\(type.name)`\n\n\(table(type.settings))"
            if type.batchMaxMessages != nil {
                text +=
                    "\nThe global `delivery.batchMaxMessages` does not bound its batches; its own does, if there is one.\n"
            }
        }
        return text
    }

    private static func table(_ settings: [Setting], needed: [String] = []) -> String {
        let rows = settings.map {
            let byDefault = needed.contains($0.name) ? "none" : "`\($0.defaultValue.json)`"
            return "| `\($0.name)` | \(unit(of: $0)) | \(byDefault) | \(allowed(by: $0)) | \(cell($0.summary))"
                + "\($0.isSecret ? " Secret." : "") |\n"
        }
        return "| key | unit | default | allowed | meaning |\n|---|---|---|---|---|\n" + rows.joined()
    }

    /// For `README.md`. `pages`: the page of each type, seen from there.
    static func typeTable(_ types: [UpstreamType], pages: [String: String]) -> String {
        let rows = types.map {
            "| `\($0.name)` | \($0.summary) | [\($0.name).md](\(pages[$0.name] ?? "")) |\n"
        }
        return "| type | what it is | more |\n|---|---|---|\n" + rows.joined()
    }

    /// For `docs/simulators.md`. `pages`: the page of each type, seen from the top.
    static func portTable(_ names: [String], from first: UInt16, pages: [String: String]) -> String {
        let rows = names.enumerated().map { index, name in
            "| [`\(name)`](../\(pages[name] ?? "")) | \(Int(first) + index) |\n"
        }
        return "| simulator | port |\n|---|---|\n" + rows.joined()
    }

    private static func unit(of setting: Setting) -> String {
        for (ending, unit) in [("Seconds", "seconds"), ("Minutes", "minutes"), ("Bytes", "bytes")] {
            if setting.name.hasSuffix(ending) { return unit }
        }
        return ""
    }

    private static func allowed(by setting: Setting) -> String {
        switch setting.kind {
        case .choice(let choices): choices.map { "`\($0)`" }.joined(separator: ", ")
        case .bool: "`true`, `false`"
        case .integer: "whole, \(setting.allowed)"
        case .number, .text, .url, .strings, .list: setting.allowed
        }
    }

    private static func cell(_ text: String) -> String { text.replacing("|", with: "\\|") }

    private static let introduction = """
        # Configuration

        This page is made from the code and checked against it by the tests (`ConfigurationReferenceTests`).
        [`config.example.json`](../config.example.json) holds every setting with its default and runs as it is.

        ## Where values come from

        | strongest first | form of `upstreams.push-dev.apiKey` | notes |
        |---|---|---|
        | environment variable | `POSTERN_UPSTREAMS_PUSH_DEV_API_KEY` | `POSTERN_`, then the path: words in capitals, joined by `_` |
        | secret file | `/run/secrets/upstreams-push-dev-apiKey` | one value per file; white space around it is cut off; another directory: `POSTERN_SECRETS_DIR` |
        | JSON file | `{"upstreams": {"push-dev": {"apiKey": "…"}}}` | the file given by `--config` |

        In variables and secret files a list is written `a,b,c`, and an object of texts as JSON. Only the JSON file says which
        upstreams and which `auth.keys` there are. Files named in the configuration are looked for from the
        working directory.

        Settings that end in `Seconds` may have a fraction. `postern check --config FILE` reports every problem at once,
        each with its path, its value (secrets as `***`) and what is allowed, and exits with 0 or 78. Unknown settings
        are problems, and so are `POSTERN_` variables that match none; foreign secret files are
        ignored, and one whose name is nearly that of a setting gets a warning.

        """

    private static let aboutKeys = """
        An array of objects, `[]` by default: the gateway then serves loopback addresses only, unless `allowAnonymous` is
        true. As soon as there is one, every caller needs a key, see [security.md](security.md). `name` and `scopes` have to
        be given, and `sha256`, here or in the secret file `auth-keys-<name>`, or `certificateName`.

        """

    private static let aboutUpstreams = """
        An object: its members are the upstreams, by name (`[a-z][a-z0-9-]{0,30}`; not `messages`, `cloudevents`,
        `events`, `upstreams` or `stream`; at most 255). An upstream whose name is no type says its `type`.

        """

    private static let reload = """

        ## Reloading

        `SIGHUP` loads the configuration again. These take effect at once: `auth`, `log.level`, `delivery`, and of each
        upstream its `delivery`, its `caFile` and the settings of its type. All others are named in the log and wait for the next
        start. A configuration with problems changes nothing.

        """
}
