import Foundation
import PosternCore
import PosternSimulatorKit
import PosternSimulators
import PosternTestKit
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
            types: UpstreamRegistry.all, environment: [:],
            file: top.appendingPathComponent("config.example.json").path,
            secretsDirectory: nil
        ).load()
        var expected = GatewayConfiguration()
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
                let raw = try #require(sources.value(at: section.path + [setting.name]), "\(setting.name) is missing")
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
