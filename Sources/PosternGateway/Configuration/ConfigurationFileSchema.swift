import PosternCore
import PosternDelivery
public import PosternUpstream

/// The JSON Schema (2020-12) of the configuration file, for editors and for checks before a rollout.
///
/// It is made from the settings, and contains their kinds, ranges, defaults, and meanings. Rules for single texts and for
/// combinations of settings are not part of it; `postern check` knows all of them. Nothing is required that an environment
/// variable or a secret file may give.
public struct ConfigurationFileSchema {
    private typealias Node = ConfigurationNode
    private typealias Upstream = GatewayConfiguration.UpstreamConfiguration

    /// The name of the member of the file that refers to a schema.
    static let reference = "$schema"

    private let types: [UpstreamType]

    public init(types: [UpstreamType] = UpstreamRegistry.all) { self.types = types }

    /// The schema as indented JSON, without a line break at its end.
    public var text: String { root.indented }

    var root: ConfigurationNode {
        let sections = ConfigurationSchema.sectionNames.map { name -> Node.Member in
            switch name {
            case "upstreams": Node.Member(name: name, value: upstreams)
            case "callbacks":
                Node.Member(name: name, value: list(of: CallbackEntry.self, needed: CallbackEntry.needed))
            default: Node.Member(name: name, value: section(name))
            }
        }
        let reference = Node.Member(
            name: Self.reference,
            value: .members(["description": "The schema of this file, for editors.", "type": "string"]))
        return .members([
            Self.reference: "https://json-schema.org/draft/2020-12/schema",
            "title": "Configuration of Postern",
            "type": "object",
            "properties": .object([reference] + sections),
            "additionalProperties": .flag(false),
            "$defs": .object(
                [
                    .init(name: "delivery", value: object(DeliverySettings.fields.map(\.setting), hasDefaults: false)),
                    .init(name: Self.anyType, value: chosenType),
                ] + types.map { .init(name: $0.name, value: settings(of: $0)) }),
        ])
    }

    // MARK: The gateway's own sections

    private func section(_ name: String) -> ConfigurationNode {
        var members: [Node.Member] = []
        for section in ConfigurationSchema.fixed where section.path[0] == name {
            if section.path.count == 1 {
                members += properties(section.settings, hasDefaults: true)
            } else {
                members.append(.init(name: section.path[1], value: object(section.settings)))
            }
        }
        if name == ConfigurationSchema.keysPath[0] {
            // The digest may be in a secret file.
            let needed = KeyEntry.needed.filter { $0 != KeyEntry.name(of: \.sha256) }
            members.append(
                .init(name: ConfigurationSchema.keysPath[1], value: list(of: KeyEntry.self, needed: needed)))
        }
        return closed(members)
    }

    private func list<Entry: SettingsSection>(of entry: Entry.Type, needed: [String]) -> ConfigurationNode {
        // Whatever the default of a member is: one that is needed has none.
        let members = Entry.fields.map(\.setting).flatMap {
            properties([$0], hasDefaults: !needed.contains($0.name))
        }
        return .members([
            "type": "array", "items": closed(members, required: needed), "default": .array([]),
        ])
    }

    // MARK: Upstreams

    private static let anyType = "anyType"

    /// An upstream whose name is a type is of that type, unless it says another one.
    private var upstreams: ConfigurationNode {
        let named = types.map { type in
            Node.Member(
                name: type.name,
                value: .members([
                    "if": .members(["required": .array([.string(typeName)])]),
                    "then": Self.definition(Self.anyType), "else": Self.definition(type.name),
                ]))
        }
        return .members([
            "description": "The upstreams, by name.",
            "type": "object",
            "properties": .object(named),
            "additionalProperties": Self.definition(Self.anyType),
            "propertyNames": .members([
                "pattern": "^[a-z][a-z0-9-]{0,30}$",
                "not": .members(["enum": .array(UpstreamName.reserved.sorted().map { .string($0) })]),
            ]),
            "maxProperties": .number("255"),
        ])
    }

    private var typeName: String { Upstream.Common.name(of: \.type) }

    /// Any upstream that says its type. One that does not gets it from a variable, so nothing is known about its settings.
    private var chosenType: ConfigurationNode {
        .members([
            "type": "object",
            "properties": .members([typeName: .members(["enum": .array(types.map { .string($0.name) })])]),
            "allOf": .array(
                types.map { type in
                    .members([
                        "if": .members([
                            "properties": .members([typeName: .members(["const": .string(type.name)])]),
                            "required": .array([.string(typeName)]),
                        ]),
                        "then": Self.definition(type.name),
                    ])
                }),
        ])
    }

    private func settings(of type: UpstreamType) -> ConfigurationNode {
        let members = properties(Upstream.Common.fields.map(\.setting) + type.settings, hasDefaults: true)
        let sections = ConfigurationSchema.common(at: []).filter { !$0.path.isEmpty }.map { section in
            Node.Member(
                name: section.path[0],
                value: section.path == ["delivery"] ? Self.definition("delivery") : object(section.settings))
        }
        var node = closed(members + sections)
        if case .object(let members) = node {
            node = .object([.init(name: "description", value: .string(type.summary))] + members)
        }
        return node
    }

    private static func definition(_ name: String) -> ConfigurationNode {
        .members(["$ref": .string("#/$defs/\(name)")])
    }

    // MARK: Settings

    private func object(_ settings: [Setting], hasDefaults: Bool = true) -> ConfigurationNode {
        closed(properties(settings, hasDefaults: hasDefaults))
    }

    /// An object with these properties only.
    private func closed(_ properties: [ConfigurationNode.Member], required: [String] = []) -> ConfigurationNode {
        let node = Node.members([
            "type": "object", "properties": .object(properties), "additionalProperties": .flag(false),
        ])
        guard !required.isEmpty, case .object(let members) = node else { return node }
        return .object(members + [.init(name: "required", value: .array(required.map { .string($0) }))])
    }

    /// The members of an object of settings. Settings such as `auth.type` become one member, in place of the first.
    private func properties(_ settings: [Setting], hasDefaults: Bool) -> [ConfigurationNode.Member] {
        var done: Set<String> = []
        return settings.compactMap { setting in
            let name = setting.path[0]
            guard done.insert(name).inserted else { return nil }
            guard setting.path.count > 1 else {
                return .init(name: name, value: schema(of: setting, hasDefault: hasDefaults))
            }
            let inner = settings.filter { $0.path[0] == name }.map { setting in
                Node.Member(name: setting.path[1], value: schema(of: setting, hasDefault: hasDefaults))
            }
            return .init(name: name, value: closed(inner))
        }
    }

    private func schema(of setting: Setting, hasDefault: Bool) -> ConfigurationNode {
        var members: [Node.Member] = [
            .init(name: "description", value: .string(setting.summary + (setting.isSecret ? " Secret." : "")))
        ]
        members += keywords(of: setting.kind, isOptional: setting.isOptional)
        if hasDefault, let value = try? Node.parse(Array(setting.defaultValue.json.utf8)) {
            members.append(.init(name: "default", value: value))
        }
        return .object(members)
    }

    private func keywords(of kind: Setting.Kind, isOptional: Bool = false) -> [Node.Member] {
        let text: Node = .members(["type": "string"])
        var members: [Node.Member] = []
        func add(_ name: String, _ value: Node) { members.append(.init(name: name, value: value)) }
        func add(type: String) {
            add("type", isOptional ? .array([.string(type), "null"]) : .string(type))
        }
        switch kind {
        case .text, .url: add(type: "string")
        case .choice(let choices): add("enum", .array(choices.map { .string($0) }))
        case .bool: add(type: "boolean")
        case .integer(let range):
            add(type: "integer")
            add("minimum", .number("\(range.lowerBound)"))
            add("maximum", .number("\(range.upperBound)"))
        case .number(let range):
            add(type: "number")
            add("minimum", .number(numberText(range.lowerBound)))
            add("maximum", .number(numberText(range.upperBound)))
        case .strings:
            add(type: "object")
            add("additionalProperties", text)
        case .objects(let kinds):
            add(type: "object")
            let properties = kinds.sorted { $0.key < $1.key }.map { name, kind in
                Node.Member(name: name, value: .object(keywords(of: kind)))
            }
            add("additionalProperties", closed(properties))
        case .records(let kinds):
            add(type: "array")
            let properties = kinds.sorted { $0.key < $1.key }.map { name, kind in
                Node.Member(name: name, value: .object(keywords(of: kind)))
            }
            add("items", closed(properties))
        case .list:
            add(type: "array")
            add("items", text)
        case .integers(let range):
            add(type: "array")
            add(
                "items",
                .members([
                    "type": "integer", "minimum": .number("\(range.lowerBound)"),
                    "maximum": .number("\(range.upperBound)"),
                ]))
        }
        return members
    }
}

extension ConfigurationNode: ExpressibleByStringLiteral {
    init(stringLiteral text: String) { self = .string(text) }

    /// An object with members in that order.
    static func members(_ members: KeyValuePairs<String, ConfigurationNode>) -> Self {
        .object(members.map { Member(name: $0.key, value: $0.value) })
    }

    /// The value as JSON over several lines. Arrays and objects that contain neither are on one.
    var indented: String { indented(by: "") }

    private func indented(by indent: String) -> String {
        switch self {
        case .object(let members):
            let parts = members.map { (JSONEscapes.quoted($0.name) + ": ", $0.value) }
            return Self.lines(of: parts, between: ("{", "}"), indentedBy: indent)
        case .array(let elements):
            return Self.lines(of: elements.map { ("", $0) }, between: ("[", "]"), indentedBy: indent)
        case .string(let text): return JSONEscapes.quoted(text)
        default: return shown
        }
    }

    private static func lines(
        of parts: [(start: String, value: ConfigurationNode)], between brackets: (String, String),
        indentedBy indent: String
    ) -> String {
        let inner = indent + "  "
        let texts = parts.map { $0.start + $0.value.indented(by: inner) }
        let line = brackets.0 + texts.joined(separator: ", ") + brackets.1
        let isFlat = parts.allSatisfy { !$0.value.isContainer } && line.count < 100
        if isFlat || texts.isEmpty { return line }
        return "\(brackets.0)\n\(inner)" + texts.joined(separator: ",\n\(inner)") + "\n\(indent)\(brackets.1)"
    }

    private var isContainer: Bool {
        switch self {
        case .object(let members): !members.isEmpty
        case .array(let elements): !elements.isEmpty
        default: false
        }
    }
}
