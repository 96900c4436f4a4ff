import PosternCore
import PosternSimulatorKit

/// The endpoint of a kind of report.
struct Endpoint: ControlText, Equatable {
    let kind: SeerKind
    /// The path with its leading slash; compared as sent.
    let path: String
    /// The query that is part of a custom path.
    var query: String?
    var isBatch = false
    /// The path of the kind's single endpoint. There is one per kind, so an order by path is an order by kind.
    let kindPath: String

    static let tokenPath = "/oauth/access_token"

    static let presets = [
        Endpoint(kind: .activity, path: "/sactivity"),
        Endpoint(kind: .instrumentation, path: "/sinstrumentation"),
        Endpoint(kind: .tincan, path: "/tincan"),
        Endpoint(kind: .activity, path: "/sactivity/batch", isBatch: true, kindPath: "/sactivity"),
        Endpoint(kind: .tincan, path: "/tincan/batch", isBatch: true, kindPath: "/tincan"),
    ]

    private init(kind: SeerKind, path: String, query: String? = nil, isBatch: Bool = false, kindPath: String? = nil) {
        self.kind = kind
        self.path = path
        self.query = query
        self.isBatch = isBatch
        self.kindPath = kindPath ?? path
    }

    static let form = "a path that is not a preset's"

    var description: String { path + (query.map { "?" + $0 } ?? "") }

    /// From an entry of an endpoint table: slashes at both ends do not count. Nil for a text that cannot be a path,
    /// or is a preset's.
    init?(_ entry: String) {
        let sides = entry.split(separator: "?", maxSplits: 1, omittingEmptySubsequences: false)
        let path = "/" + trimmingSlashes(sides[0])
        guard path.utf8.count > 1, entry.utf8.allSatisfy({ (0x21...0x7e).contains($0) && !"#\"\\".utf8.contains($0) }),
            path != Self.tokenPath,
            !Self.presets.contains(where: { $0.path == path })
        else { return nil }
        self.init(kind: .custom, path: path, query: sides.count > 1 ? String(sides[1]) : nil)
    }
}

private func trimmingSlashes(_ text: Substring) -> Substring {
    let slash = UInt8(ascii: "/")
    let start = text.drop { $0 == "/" }
    return start[..<(start.utf8.lastIndex { $0 != slash }.map { start.utf8.index(after: $0) } ?? start.startIndex)]
}

/// The query of a request, which is `apikey` or nothing, after the endpoint's own query.
struct Query {
    /// Decoded as servers do, with the plus sign as a blank; nil if there is none.
    private(set) var apiKey: String?
    private(set) var violations: [String] = []

    /// - Parameter own: the endpoint's.
    init(_ query: String?, own: String? = nil) {
        var rest = query
        if let own {
            if query == own { return }
            guard let query, query.hasPrefix(own + "&") else {
                violations = ["a query that does not begin with the custom path's own"]
                return
            }
            rest = String(query.dropFirst(own.count + 1))
        }
        guard let rest else { return }
        let value = rest.hasPrefix("apikey=") ? rest.dropFirst("apikey=".count) : nil
        guard let value, !value.contains("&") else {
            apiKey = rest.split(separator: "&").first { $0.hasPrefix("apikey=") }
                .map { Self.decoded($0.dropFirst("apikey=".count)) }
            violations = ["a query other than one apikey"]
            return
        }
        apiKey = Self.decoded(value)
        if value.isEmpty { violations = ["an empty apikey"] }
        if !Self.isEncoded(value) { violations = ["an apikey that is not percent-encoded"] }
    }

    /// Only characters that mean themselves anywhere and whole escapes of UTF-8.
    private static func isEncoded(_ value: Substring) -> Bool {
        let decoded = PercentDecoded(value.utf8, plusIsSpace: false)
        return decoded.isWhole && decoded.text != nil
            && value.utf8.allSatisfy { $0.isUnreserved || $0 == UInt8(ascii: "%") }
    }

    private static func decoded(_ value: Substring) -> String {
        String(decoding: PercentDecoded(value.utf8, plusIsSpace: true).bytes, as: UTF8.self)
    }
}
