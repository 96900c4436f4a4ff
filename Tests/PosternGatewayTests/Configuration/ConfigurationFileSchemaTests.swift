import PosternUpstream
import Testing

@testable import PosternGateway

/// Whether the schema and `check` agree is what `make contract` tries, with a validator.
@Suite struct ConfigurationFileSchemaTests {
    private let schema = ConfigurationFileSchema().root

    @Test func schema_hasEverySetting_withItsMeaningAndDefault() throws {
        func expect(_ setting: Setting, in object: ConfigurationNode?, hasDefault: Bool = true) throws {
            var node = object
            for name in setting.path { node = node?["properties"]?[name] }
            let found = try #require(node, "\(setting.name) is missing")
            let meaning = setting.summary + (setting.isSecret ? " Secret." : "")
            #expect(found["description"] == .string(meaning))
            let value = try found["default"].map { try setting.value(of: RawValue(content: .json($0), origin: nil)) }
            #expect(value == (hasDefault ? setting.defaultValue : nil), "\(setting.name)")
        }
        for section in ConfigurationSchema.fixed {
            let object = section.path.reduce(schema) { $0["properties"]?[$1] ?? .null }
            for setting in section.settings { try expect(setting, in: object) }
        }
        for type in UpstreamRegistry.all {
            let object = schema["$defs"]?[type.name]
            for setting in type.settings { try expect(setting, in: object) }
        }
        for setting in ConfigurationSchema.common(at: []).filter({ $0.path == ["delivery"] }).flatMap(\.settings) {
            // Its default is what `delivery` says.
            try expect(setting, in: schema["$defs"]?["delivery"], hasDefault: false)
        }
        let keys = schema["properties"]?["auth"]?["properties"]?["keys"]?["items"]
        #expect(keys?["required"] == .array(["name", "scopes"]))
    }

    @Test func text_isTheSchema() throws {
        #expect(try ConfigurationNode.parse(Array(ConfigurationFileSchema().text.utf8)) == schema)
    }

    @Test func fileMayNameItsSchema() throws {
        func problems(_ text: String) throws -> [String] {
            let file = try ConfigurationNode.parse(Array(text.utf8))
            return ConfigurationSchema(upstreams: []).problems(in: file).map(\.description)
        }
        #expect(try problems(#"{"$schema": "postern.schema.json"}"#) == [])
        #expect(try problems(#"{"$schema": 1, "log": {"$schema": ""}}"#).count == 2)
    }
}
