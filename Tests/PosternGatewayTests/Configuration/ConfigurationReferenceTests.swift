import Foundation
import PosternCore
import PosternSimulatorKit
import PosternSimulators
import PosternStore
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternGateway

/// `config.example.json` and the tables of `docs/configuration.md` are made from the tables in the code. After a change
/// of those, `UPDATE_REFERENCE=1 swift test --filter ConfigurationReferenceTests` rewrites them; one test after the
/// other, because some read what others write.
@Suite(.serialized) struct ConfigurationReferenceTests {
    private let top = URL(fileURLWithPath: Fixture.top)

    private func expectFile(_ name: String, toHold expected: String) throws {
        let file = top.appendingPathComponent(name)
        if ProcessInfo.processInfo.environment["UPDATE_REFERENCE"] == "1" {
            try FileManager.default.createDirectory(
                at: file.deletingLastPathComponent(), withIntermediateDirectories: true)
            try Data(expected.utf8).write(to: file)
        }
        #expect(try String(contentsOf: file, encoding: .utf8) == expected)
    }

    /// The parts of a page that people write which are made from the code.
    private func expectPage(_ name: String, toHold parts: [String: String]) throws {
        var text = try String(contentsOf: top.appendingPathComponent(name), encoding: .utf8)
        #expect(text.ranges(of: "<!-- begin of ").count == parts.count)
        for (part, expected) in parts {
            let begin = text.firstRange(of: "<!-- begin of \(part), made from the code -->\n")
            let end = text.firstRange(of: "<!-- end of \(part) -->")
            let (start, stop) = (
                try #require(begin, "\(name) has no place for \(part)"), try #require(end, "\(part) has no end")
            )
            text.replaceSubrange(start.upperBound..<stop.lowerBound, with: expected)
        }
        try expectFile(name, toHold: text)
    }

    @Test func reference_saysWhatTheCodeSays() throws {
        try expectPage("docs/configuration.md", toHold: ConfigurationReference.parts(types: UpstreamRegistry.all))
    }

    @Test func example_holdsEverySettingWithItsDefault() throws {
        try expectFile("config.example.json", toHold: ConfigurationReference.example(types: UpstreamRegistry.all))
    }

    /// Tables of types inside pages that people write.
    @Test(arguments: ["README.md", "docs/simulators.md"])
    func page_listsEveryType(page: String) throws {
        let pages = Dictionary(uniqueKeysWithValues: try Slice.all().map { ($0.type, $0.page) })
        let table =
            page == "README.md"
            ? ConfigurationReference.typeTable(UpstreamRegistry.all, pages: pages)
            : ConfigurationReference.portTable(
                SimulatorRegistry.all.map(\.name), from: SimulatorHost.defaultPort, pages: pages)
        try expectPage(page, toHold: ["the types": table])
    }

    @Test func example_loads_toTheDefaults() throws {
        let loaded = try ConfigurationLoader(
            types: UpstreamRegistry.all,
            environment: ["POSTERN_OUTBOX_ENCRYPTION_KEY": String(repeating: "0a", count: 32)],
            file: top.appendingPathComponent("config.example.json").path,
            secretsDirectory: nil
        ).load()
        var expected = GatewayConfiguration()
        expected.outbox.encryptionKeys.current = Array(repeating: 0x0A, count: 32)
        expected.upstreams = UpstreamRegistry.all.map { .init(name: UpstreamName($0.name)!, type: $0) }
        expected.upstreams.sort { $0.name < $1.name }
        #expect(loaded.configuration == expected)
    }

    @Test func example_leavesNoSettingOut() throws {
        let bytes = try Data(contentsOf: top.appendingPathComponent("config.example.json"))
        let root = try ConfigurationNode.parse(Array(bytes))
        let sources = ConfigurationSources(file: root, environment: [:], secrets: [:], secretsDirectory: "")
        for section in ConfigurationSchema.fixed {
            for setting in section.settings {
                let raw = try #require(sources.value(at: section.path + setting.path), "\(setting.name) is missing")
                #expect(try setting.value(of: raw) == setting.defaultValue)
            }
        }
        for type in UpstreamRegistry.all {
            for setting in type.settings {
                let raw = try #require(sources.value(at: ["upstreams", type.name] + setting.path))
                #expect(try setting.value(of: raw) == setting.defaultValue)
            }
        }
    }
}

/// The documents that say which settings there are, made from the same tables that check them.
enum ConfigurationReference {
    /// `config.example.json`: every setting with its default, and one upstream of each type.
    static func example(types: [UpstreamType]) -> String {
        let sections = ConfigurationSchema.sectionNames.map { name in
            let value =
                switch name {
                case _ where ConfigurationSchema.lists.contains([name]): "[]"
                case "upstreams": object(types.map { "\"\($0.name)\": \(object(upstream($0), depth: 2))" }, depth: 1)
                default: object(members(of: name), depth: 1)
                }
            return "\"\(name)\": \(value)"
        }
        return object(sections, depth: 0) + "\n"
    }

    private static func members(of section: String) -> [String] {
        var members = nested(ConfigurationSchema.fixed.first { $0.path == [section] }?.settings ?? [], depth: 2)
        for inner in ConfigurationSchema.fixed where inner.path.count == 2 && inner.path[0] == section {
            members.append("\"\(inner.path[1])\": \(object(inner.settings.map(member), depth: 2))")
        }
        return section == ConfigurationSchema.keysPath[0] ? members + ["\"keys\": []"] : members
    }

    private static func upstream(_ type: UpstreamType) -> [String] {
        let queue = QueueCap.fields.map { member($0.setting) }
        let log = GatewayConfiguration.UpstreamConfiguration.OwnLog.fields.map { member($0.setting) }
        let common = GatewayConfiguration.UpstreamConfiguration.Common.fields.map(\.setting).filter {
            $0.name != "type"
        }
        return common.map(member) + nested(type.settings, depth: 3)
            + ["\"delivery\": {}", "\"queue\": \(object(queue, depth: 3))", "\"log\": \(object(log, depth: 3))"]
    }

    /// The members of a section: first those without a part of their own.
    private static func nested(_ settings: [Setting], depth: Int) -> [String] {
        let parts = Dictionary(grouping: settings.filter { $0.path.count > 1 }) { $0.path[0] }
        return settings.filter { $0.path.count == 1 }.map(member)
            + parts.sorted { $0.key < $1.key }.map { "\"\($0)\": \(object($1.map(member), depth: depth))" }
    }

    private static func member(_ setting: Setting) -> String {
        "\"\(setting.path.last ?? "")\": \(setting.defaultValue.json)"
    }

    private static func object(_ members: [String], depth: Int) -> String {
        guard !members.isEmpty else { return "{}" }
        let indent = String(repeating: "  ", count: depth)
        return "{\n" + members.map { "\(indent)  \($0)" }.joined(separator: ",\n") + "\n\(indent)}"
    }

    /// For `docs/configuration.md`: the table of each section, and all sections of the types, by name.
    static func parts(types: [UpstreamType]) -> [String: String] {
        var parts = [
            "auth.keys": table(KeyEntry.fields.map(\.setting), needed: KeyEntry.needed),
            "callbacks": table(CallbackEntry.fields.map(\.setting), needed: CallbackEntry.needed),
        ]
        for section in ConfigurationSchema.fixed {
            parts[section.path.joined(separator: ".")] = table(section.settings)
        }
        for section in ConfigurationSchema.common(at: ["upstreams", "<name>"]) where section.path.last != "delivery" {
            parts[section.path.joined(separator: ".")] = table(section.settings)
        }
        parts["the types"] = types.map(section).joined(separator: "\n")
        return parts
    }

    private static func section(_ type: UpstreamType) -> String {
        let text = "### `upstreams.<name>`, type `\(type.name)`\n\n\(table(type.settings))"
        guard type.batchMaxMessages != nil else { return text }
        return text
            + "\nThe global `delivery.batchMaxMessages` does not bound its batches; its own does, if there is one.\n"
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
        case .bool: "`true`, `false`" + (setting.isOptional ? ", `null`" : "")
        case .integer: "whole, \(setting.allowed)"
        case .number, .text, .url, .strings, .objects, .records, .list, .integers: setting.allowed
        }
    }

    private static func cell(_ text: String) -> String { text.replacing("|", with: "\\|") }
}
