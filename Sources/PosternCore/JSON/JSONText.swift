/// Builds JSON text member by member, for small responses.
public struct JSONText {
    public private(set) var text = "{"
    private var isFirst = true

    public init() {}

    public mutating func raw(_ name: String, _ json: String) {
        text += isFirst ? "\"\(name)\":" : ",\"\(name)\":"
        text += json
        isFirst = false
    }

    public mutating func string(_ name: String, _ value: String?) {
        raw(name, value.map(JSONEscapes.quoted) ?? "null")
    }

    public mutating func number(_ name: String, _ value: Int?) { raw(name, value.map(String.init) ?? "null") }

    public mutating func decimal(_ name: String, _ value: Double?) { raw(name, value.map { "\($0)" } ?? "null") }

    public mutating func flag(_ name: String, _ value: Bool) { raw(name, value ? "true" : "false") }

    public mutating func time(_ name: String, _ value: Timestamp?) { string(name, value?.description) }

    public mutating func object(_ name: String, _ build: (inout JSONText) -> Void) {
        var inner = JSONText()
        build(&inner)
        raw(name, inner.finished)
    }

    public var finished: String { text + "}" }

    public static func object(_ build: (inout JSONText) -> Void) -> String {
        var json = JSONText()
        build(&json)
        return json.finished
    }

    public static func array(_ elements: [String]) -> String { "[" + elements.joined(separator: ",") + "]" }
}
