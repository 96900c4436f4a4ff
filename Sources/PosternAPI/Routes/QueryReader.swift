import PosternCore
import PosternHTTP
import PosternUpstream

/// Reads the parameters of a query, and collects what is wrong with them, so that one response reports all of it.
struct QueryReader: Sendable {
    private let query: RequestQuery?
    /// Not checked if the type of the upstream validates the query.
    private var isMalformed = false
    private var errors: [(parameter: String, detail: String)] = []

    /// Records parameters that the route does not have, and those that are given more than once although they may not.
    init(_ query: RequestQuery?, of route: Route) {
        self.query = query
        guard let query, let known = route.query else { return }
        isMalformed = !query.isWellFormed
        var seen: Set<String> = []
        var refused: Set<String> = []
        for (name, _) in query.pairs {
            if !known.contains(name) {
                guard refused.insert(name).inserted else { continue }
                refuse(name, "is unknown; this path accepts \(known.isEmpty ? "none" : known.joined(separator: ", "))")
            } else if !seen.insert(name).inserted, !route.repeatable.contains(name), refused.insert(name).inserted {
                refuse(name, "is given more than once")
            }
        }
    }

    // MARK: Values

    /// Nil if it is not given.
    func text(_ name: String) -> String? { query?[name] }

    /// All values of a parameter that may be given more than once.
    func texts(_ name: String) -> [String] { query?.pairs.filter { $0.name == name }.map(\.value) ?? [] }

    /// Records what is wrong with the value of a parameter.
    mutating func refuse(_ name: String, _ detail: String) { errors.append((name, detail)) }

    /// What `read` makes of the value; nil if it is not given, or if `read` returns nil, which is an error.
    mutating func value<Value>(_ name: String, _ rule: String, _ read: (String) -> Value?) -> Value? {
        guard let text = text(name) else { return nil }
        let value = read(text)
        if value == nil { refuse(name, rule) }
        return value
    }

    mutating func flag(_ name: String) -> Bool {
        value(name, "must be true or false") { $0 == "true" ? true : $0 == "false" ? false : nil } ?? false
    }

    /// The value of `limit`.
    mutating func limit(upTo most: Int) -> Int {
        value("limit", "must be a number from 1 to \(most)") { text in
            Int(text).flatMap { (1...most).contains($0) ? $0 : nil }
        } ?? 100
    }

    // MARK: Errors

    static func oneOf(_ names: [String]) -> String { "must be one of \(names.joined(separator: ", "))" }

    /// Throws a 400 with everything that is wrong.
    func check() throws(Problem) {
        if isMalformed {
            throw Problem(slug: .badRequest, status: 400, detail: "The query is not valid percent-encoded UTF-8.")
        }
        guard let first = errors.first else { return }
        let texts = errors.prefix(PayloadErrors.most).map { error in
            JSONWriter.object { json in
                json.string("parameter", error.parameter)
                json.string("detail", error.detail)
            }
        }
        var members = [(name: "errors", json: JSONWriter.array(texts))]
        if errors.count > texts.count { members.append(("errorsOmitted", String(errors.count - texts.count))) }
        throw Problem(
            slug: .badRequest, status: 400,
            detail: errors.count == 1
                ? "The query parameter \(first.parameter) \(first.detail)."
                : "The query has \(errors.count) errors. See `errors`.",
            members: members)
    }
}
