import Foundation
import PosternCore
import Testing

@testable import PosternApp

/// `docs/configuration.md` and `config.example.json` are what the tables in the code make of them. After a change of
/// the tables, `UPDATE_REFERENCE=1 swift test --filter ConfigurationReferenceTests` writes them anew.
@Suite struct ConfigurationReferenceTests {
    private let top = URL(fileURLWithPath: #filePath)
        .deletingLastPathComponent().deletingLastPathComponent().deletingLastPathComponent()

    private func expectFile(_ name: String, toHold expected: String) throws {
        let file = top.appendingPathComponent(name)
        if ProcessInfo.processInfo.environment["UPDATE_REFERENCE"] == "1" {
            try FileManager.default.createDirectory(
                at: file.deletingLastPathComponent(), withIntermediateDirectories: true)
            try Data(expected.utf8).write(to: file)
        }
        #expect(try String(contentsOf: file, encoding: .utf8) == expected)
    }

    @Test func reference_saysWhatTheCodeSays() throws {
        try expectFile("docs/configuration.md", toHold: ConfigurationReference.markdown(types: [.samsara]))
    }

    @Test func example_holdsEverySettingWithItsDefault() throws {
        try expectFile("config.example.json", toHold: ConfigurationReference.example(types: [.samsara]))
    }

    @Test func example_loads_toTheDefaults() throws {
        let loaded = try ConfigurationLoader(
            types: [.samsara], environment: [:], file: top.appendingPathComponent("config.example.json").path,
            secretsDirectory: nil
        ).load()
        var expected = GatewayConfiguration()
        expected.upstreams = [.init(name: try #require(UpstreamName("samsara")), type: .samsara)]
        #expect(loaded.configuration == expected)
    }

    @Test func example_leavesNoSettingOut() throws {
        let bytes = try Data(contentsOf: top.appendingPathComponent("config.example.json"))
        let root = try ConfigurationText.parse(Array(bytes))
        let sources = ConfigurationSources(file: root, environment: [:], secrets: [:], secretsDirectory: "")
        for section in ConfigurationSchema.fixed {
            for setting in section.settings {
                let raw = try #require(sources.value(at: section.path + [setting.name]), "\(setting.name) is missing")
                #expect(try setting.check(raw) == setting.byDefault)
            }
        }
        for setting in UpstreamType.samsara.settings {
            let raw = try #require(sources.value(at: ["upstreams", "samsara", setting.name]))
            #expect(try setting.check(raw) == setting.byDefault)
        }
    }
}

extension UpstreamType {
    fileprivate static let samsara = UpstreamType(
        name: "samsara",
        settings: [
            .init(
                "url", .text, default: .text("http://samsara-ingestion.local:9000"),
                "Base URL of the ingestion API; `/v1/events` is added."),
            .init("compression", .choice(["gzip", "none"]), default: .text("gzip"), "Coding of the request body."),
            .init("sourceId", .text, default: .text(""), "Given to events without one; empty: they need their own."),
            .init("addId", .flag, default: .flag(false), "Give events without `id` one of their own."),
            .init(
                "eventMaxBytes", .integer(1024...1_048_576), default: .integer(262_144),
                "Size of one event; larger ones are refused."),
            .init("headers", .texts, default: .texts([:]), "Further headers of every request."),
        ]
    ) { (name, _) throws(SettingProblems) in NamedUpstream(name: name) }
}
