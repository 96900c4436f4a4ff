import PosternCore
import PosternHTTP
import PosternUpstream

/// The preferences of a request that Postern understands; others are ignored, as RFC 7240, section 2, requires.
struct Preferences: Equatable {
    /// Seconds to hold the response, 1 to 60.
    var wait: Int?
    /// Whether the good messages are stored even if there are bad ones.
    var isLenient = false
    /// Whether the ids are left out.
    var isMinimal = false
    /// Whether the response does not wait until everything is done.
    var isAsynchronous = false

    init(_ head: RequestHead) {
        let lines = head.headers("Prefer")
        self = lines.isEmpty ? Self() : Self(lines)
    }

    /// Those of a request without any.
    private init() {}

    /// - Parameter lines: the values of the `Prefer` header lines.
    init(_ lines: [String]) {
        let header = PreferHeader(lines)
        wait = header.wait
        isLenient = header["handling"]?.lowercased() == "lenient"
        isMinimal = header["return"]?.lowercased() == "minimal"
        isAsynchronous = header["respond-async"] != nil
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
