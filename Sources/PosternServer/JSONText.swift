import PosternCore

/// Builds JSON text member by member; for answers, which are small.
struct JSONText {
    private(set) var text = "{"
    private var isFirst = true

    mutating func raw(_ name: String, _ json: String) {
        text += isFirst ? "\"\(name)\":" : ",\"\(name)\":"
        text += json
        isFirst = false
    }

    mutating func string(_ name: String, _ value: String?) {
        raw(name, value.map(JSONEscapes.quoted) ?? "null")
    }

    mutating func number(_ name: String, _ value: Int?) { raw(name, value.map(String.init) ?? "null") }

    mutating func decimal(_ name: String, _ value: Double?) { raw(name, value.map { "\($0)" } ?? "null") }

    mutating func flag(_ name: String, _ value: Bool) { raw(name, value ? "true" : "false") }

    mutating func time(_ name: String, _ value: Timestamp?) { string(name, value?.description) }

    mutating func object(_ name: String, _ build: (inout JSONText) -> Void) {
        var inner = JSONText()
        build(&inner)
        raw(name, inner.finished)
    }

    var finished: String { text + "}" }

    static func object(_ build: (inout JSONText) -> Void) -> String {
        var json = JSONText()
        build(&json)
        return json.finished
    }

    static func array(_ elements: [String]) -> String { "[" + elements.joined(separator: ",") + "]" }
}
