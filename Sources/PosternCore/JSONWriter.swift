/// Builds JSON text member by member, for small responses.
public struct JSONWriter {
    /// The object so far, without its closing brace.
    public private(set) var text = "{"
    private var isFirst = true

    public init() {}

    /// Adds a member whose value is JSON text already.
    public mutating func raw(_ name: String, _ json: String) {
        text += isFirst ? "\"\(name)\":" : ",\"\(name)\":"
        text += json
        isFirst = false
    }

    /// Adds a string with its escapes; nil becomes `null`.
    public mutating func string(_ name: String, _ value: String?) {
        raw(name, value.map(JSONEscapes.quoted) ?? "null")
    }

    public mutating func number(_ name: String, _ value: Int?) { raw(name, value.map(String.init) ?? "null") }

    public mutating func decimal(_ name: String, _ value: Double?) { raw(name, value.map { "\($0)" } ?? "null") }

    public mutating func flag(_ name: String, _ value: Bool) { raw(name, value ? "true" : "false") }

    /// Adds a time in the form of RFC 3339; nil becomes `null`.
    public mutating func time(_ name: String, _ value: Timestamp?) { string(name, value?.description) }

    /// Adds an object that `build` fills.
    public mutating func object(_ name: String, _ build: (inout JSONWriter) -> Void) {
        var inner = JSONWriter()
        build(&inner)
        raw(name, inner.finished)
    }

    /// The complete object. More members may still be added for a later call.
    public var finished: String { text + "}" }

    public static func object(_ build: (inout JSONWriter) -> Void) -> String {
        var json = JSONWriter()
        build(&json)
        return json.finished
    }

    /// `elements` are JSON texts.
    public static func array(_ elements: [String]) -> String { "[" + elements.joined(separator: ",") + "]" }
}
