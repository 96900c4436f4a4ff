import PosternCore
import PosternStore

/// How callers write a filter: as parameters of a query, or as members of a JSON object.
extension MessageFilter {
    /// The names that `set` accepts. `upstream` and `state` are read separately, because which of their values are
    /// allowed depends on the caller and the request.
    static let names = [
        "kind", "key", "lane", "createdAfter", "createdBefore", "settledBefore", "errorClass", "errorText",
        "group",
    ]
    private static let longestText = 200
    static let timeRule = "must be a time of RFC 3339, e.g. 2026-01-31T12:00:00Z"

    /// Sets what is called `name`. Returns the rule that `text` breaks; nil if it is valid.
    mutating func set(_ name: String, to text: String) -> String? {
        switch name {
        case "kind": kind = Kind(text)
        case "key": key = text
        case "lane": lane = text
        case "createdAfter":
            createdAfter = Timestamp(rfc3339: text)
            if createdAfter == nil { return Self.timeRule }
        case "createdBefore":
            createdBefore = Timestamp(rfc3339: text)
            if createdBefore == nil { return Self.timeRule }
        case "settledBefore":
            settledBefore = Timestamp(rfc3339: text)
            if settledBefore == nil { return Self.timeRule }
        case "errorClass":
            errorClass = AttemptError.Class(rawValue: text)
            if errorClass == nil { return QueryReader.oneOf(AttemptError.Class.allCases.map(\.rawValue)) }
        case "errorText":
            guard (1...Self.longestText).contains(text.unicodeScalars.count) else {
                return "must have 1 to \(Self.longestText) characters"
            }
            errorText = text
        case "group":
            group = FailureGroup.ID(text)
            if group == nil { return "must be the id of a group of failures" }
        default: return "is unknown"
        }
        return nil
    }

    /// Sets those of `names` that a query has.
    mutating func read(_ names: [String], from query: inout QueryReader) {
        for name in names {
            if let text = query.text(name), let rule = set(name, to: text) { query.refuse(name, rule) }
        }
    }
}
