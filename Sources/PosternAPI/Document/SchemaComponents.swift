import PosternCore
import PosternUpstream

/// The JSON Schema of a kind as schemas of the served document, in YAML's flow style.
///
/// A `$ref` inside the file becomes one to a component of its own, because generators of clients know only these, and
/// because the root of the file is not the root of the document.
struct SchemaComponents {
    /// The first one is that of the payload.
    private(set) var components: [(name: String, schema: String)] = []
    /// Whether a payload is certainly an object.
    private(set) var isOfObject = false
    private let name: String
    /// The names of components by their places in the file.
    private var names: [String: String] = [:]
    private var open: [String] = []

    /// - Parameters:
    ///   - text: Valid JSON, whose references have been checked.
    ///   - name: What the component of the payload is called if the name is not taken.
    init(of text: [UInt8], named name: String, _ taken: inout UniqueNames) {
        self.name = name
        _ = JSONParser.ofThisThread.parse(text) { root in
            isOfObject = root["type"]?.string == "object"
            _ = component(at: "", &taken)
            while !open.isEmpty {
                let pointer = open.removeFirst()
                guard let name = names[pointer], let value = Self.value(at: pointer, in: root) else { continue }
                components.append((name, schema(value, &taken)))
            }
        }
    }

    private mutating func component(at pointer: String, _ taken: inout UniqueNames) -> String {
        if let known = names[pointer] { return known }
        let last = pointer.split(separator: "/").last.map { camelCased(Self.unescaped($0)) } ?? ""
        let unique = taken.unique(name + last)
        names[pointer] = unique
        open.append(pointer)
        return unique
    }

    private static func value(at pointer: String, in root: JSONValue) -> JSONValue? {
        let parts = pointer.split(separator: "/", omittingEmptySubsequences: false).dropFirst()
        return parts.reduce(Optional(root)) { value, part in
            guard let value else { return nil }
            if value.kind == .array {
                return Int(part).flatMap { index in value.elements.dropFirst(index).first { _ in true } }
            }
            return value[named: unescaped(part)]
        }
    }

    private static func unescaped(_ part: Substring) -> String {
        String(part).replacing("~1", with: "/").replacing("~0", with: "~")
    }

    // MARK: Schemas

    /// Generators of clients know `true` and `false` only as `additionalProperties`.
    private mutating func schema(_ value: JSONValue, _ taken: inout UniqueNames) -> String {
        switch value.kind {
        case .true: return "{}"
        case .false: return "{not: {}}"
        default: break
        }
        var members: [String] = []
        for (key, member) in value.members {
            let name = key.string ?? ""
            if let text = keyword(name, member, &taken) { members.append("\(YAMLText.quoted(name)): \(text)") }
        }
        return "{" + members.joined(separator: ", ") + "}"
    }

    /// Nil for what is left out: it would be about the file.
    private mutating func keyword(_ name: String, _ value: JSONValue, _ taken: inout UniqueNames) -> String? {
        switch name {
        case "$schema", "$id", "$comment", "$defs", "definitions": return nil
        case "$ref":
            let target = component(at: String((value.string ?? "#").dropFirst()), &taken)
            return "\"#/components/schemas/\(target)\""
        case "properties":
            var members: [String] = []
            for (key, member) in value.members {
                members.append("\(YAMLText.quoted(key.string ?? "")): \(schema(member, &taken))")
            }
            return "{" + members.joined(separator: ", ") + "}"
        case "additionalProperties" where value.kind != .object: return YAMLText.flow(value)
        case "additionalProperties", "items", "not": return schema(value, &taken)
        case "prefixItems", "allOf", "anyOf", "oneOf":
            var elements: [String] = []
            for element in value.elements { elements.append(schema(element, &taken)) }
            return "[" + elements.joined(separator: ", ") + "]"
        default: return YAMLText.flow(value)
        }
    }
}

/// JSON values as YAML that readers of both of its versions understand alike.
enum YAMLText {
    static func flow(_ value: JSONValue) -> String {
        switch value.kind {
        case .null: "null"
        case .true: "true"
        case .false: "false"
        case .string: quoted(value.string ?? "")
        case .number: number(String(decoding: value.bytes, as: UTF8.self))
        case .array: "[" + value.elements.map(flow).joined(separator: ", ") + "]"
        case .object:
            "{" + value.members.map { "\(quoted($0.key.string ?? "")): \(flow($0.value))" }.joined(separator: ", ")
                + "}"
        }
    }

    /// YAML 1.1 takes `1e5` for a string.
    static func number(_ literal: String) -> String {
        guard literal.contains(where: { "eE".contains($0) }), let number = Double(literal), number.isFinite else {
            return literal
        }
        let text = "\(number)"
        return text.contains(".") ? text : text.replacing("e", with: ".0e")
    }

    /// In quotation marks; with escapes for what YAML or one of its readers does not accept as it is.
    static func quoted(_ text: String) -> String {
        var result = "\""
        for scalar in text.unicodeScalars {
            switch scalar.value {
            case 0x22: result += "\\\""
            case 0x5C: result += "\\\\"
            case 0x20...0x7E, 0xA0...0x2027, 0x202A...0xD7FF, 0xE000...0xFEFE, 0xFF00...0xFFFD:
                result.unicodeScalars.append(scalar)
            default:
                let digits = String(scalar.value, radix: 16)
                result += "\\U" + String(repeating: "0", count: 8 - digits.count) + digits
            }
        }
        return result + "\""
    }
}
