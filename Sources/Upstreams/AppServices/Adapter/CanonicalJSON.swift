import PosternCore
import PosternUpstream

/// The form of the specification's test vectors (section 4.0): members sorted by name, no white space, `/` not escaped,
/// characters outside ASCII not escaped. Numbers keep their spelling.
enum CanonicalJSON {
    static func text(_ value: JSONValue) -> String {
        switch value.kind {
        case .object: object(value.members.map { ($0.key.string ?? "", text($0.value)) })
        case .array: "[" + value.elements.map(text).joined(separator: ",") + "]"
        case .string: JSONEscapes.quoted(value.string ?? "")
        case .number, .true, .false, .null: String(decoding: value.bytes, as: UTF8.self)
        }
    }

    /// `members`: names and JSON texts.
    static func object(_ members: [(name: String, json: String)]) -> String {
        let sorted = members.sorted { $0.name.utf8.lexicographicallyPrecedes($1.name.utf8) }
        return "{" + sorted.map { "\(JSONEscapes.quoted($0.name)):\($0.json)" }.joined(separator: ",") + "}"
    }
}
