import PosternHTTP

/// The request's `Prefer` header (RFC 7240) as far as Postern understands it; the rest is ignored, as section 2 asks.
struct Preferences: Equatable {
    /// Seconds to hold the answer, 1 to 60.
    var wait: Int?
    /// Store the good messages even when there are bad ones.
    var isLenient = false
    /// Leave the ids out.
    var isMinimal = false

    static let longestWait = 60

    init(_ head: RequestHead) {
        guard head.header("Prefer") != nil else {
            self.init("")
            return
        }
        // There may be several such lines; together they are one list.
        let lines = head.headers.filter { $0.name.lowercased() == "prefer" }
        self.init(lines.map(\.value).joined(separator: ","))
    }

    init(_ value: String) {
        for preference in value.split(whereSeparator: { $0 == "," || $0 == ";" }) {
            let parts = preference.split(separator: "=", maxSplits: 1)
            let name = parts.first.map { $0.filter { $0 != " " && $0 != "\t" }.lowercased() } ?? ""
            let argument = parts.count > 1 ? String(parts[1].filter { $0 != " " && $0 != "\"" && $0 != "\t" }) : ""
            switch (name, argument.lowercased()) {
            case ("wait", _):
                if let seconds = Int(argument), seconds > 0 { wait = min(seconds, Self.longestWait) }
            case ("handling", "lenient"): isLenient = true
            case ("handling", "strict"): isLenient = false
            case ("return", "minimal"): isMinimal = true
            case ("return", "representation"): isMinimal = false
            default: continue
            }
        }
    }

    /// For `Preference-Applied` (RFC 7240, section 3); nil when there was nothing to apply. One message alone is either
    /// stored or not, and its answer is short anyway.
    func applied(toMany isMany: Bool) -> String? {
        var words: [String] = []
        if isMany, isLenient { words.append("handling=lenient") }
        if isMany, isMinimal { words.append("return=minimal") }
        if let wait { words.append("wait=\(wait)") }
        return words.isEmpty ? nil : words.joined(separator: ", ")
    }
}
