import PosternCore
import PosternGatewayTestKit
import PosternStore
import PosternUpstream
import Testing

@testable import PosternGateway

@Suite struct ConfigurationTemplateTests {
    private func found(in text: String) throws -> ConfigurationLoader.CheckResult {
        let scratch = try ScratchConfiguration(text)
        return ConfigurationLoader(
            types: UpstreamRegistry.all, environment: [:], file: scratch.file, secretsDirectory: nil
        ).examine(triesToStart: false)
    }

    @Test(arguments: UpstreamRegistry.all.map(\.name))
    func template_hasNoProblem_andNamesWhatHasToBeFilledIn(type: String) throws {
        let text = try ConfigurationTemplate(ofType: type).text
        let found = try found(in: text)
        #expect(found.problems.isEmpty)
        #expect(found.configuration.upstreams.map(\.name.description) == [type])
        for warning in found.warnings {
            let setting = try #require(warning.path.split(separator: ".").last)
            #expect(text.contains("\"\(setting)\": ") || text.contains("// \(setting): "), "\(warning)")
        }
        #expect(text.split(separator: "\n").allSatisfy { $0.count <= 120 })
    }

    @Test func url_isThatOfTheUpstream() throws {
        let text = try ConfigurationTemplate(ofType: "webhook", at: "https://shop.example/hooks?key=\"1\"").text
        let found = try found(in: text.replacing("\\\"1\\\"", with: "1"))
        #expect(found.configuration.upstreams.map { $0.values["url"] } == [.text("https://shop.example/hooks?key=1")])
        #expect(found.problems.isEmpty && found.warnings.isEmpty)
    }

    /// It is the only copy.
    @Test func encryptionKey_isNew_andOnlyForTypesThatNeedIt() throws {
        let keys = try (0..<2).map { _ in
            try found(in: try ConfigurationTemplate(ofType: "streamone").text).configuration.outbox.encryptionKeys
                .current
        }
        #expect(keys[0]?.count == 32 && keys[0] != keys[1])
        #expect(try !ConfigurationTemplate(ofType: "samsara").text.contains("encryptionKey"))
    }

    @Test(arguments: [
        ("webhok", nil, "webhok is not a type of upstream; the types are samsara, "),
        ("webhook", "ftp://user:password@a", "The URL ftp://***@a cannot be used: "),
    ])
    func templateThatCannotBeMade_isRefused(type: String, url: String?, start: String) {
        #expect { try ConfigurationTemplate(ofType: type, at: url) } throws: { "\($0)".hasPrefix(start) }
    }
}
