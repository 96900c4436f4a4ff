import PosternCore
import PosternUpstream

/// The endpoints of Seer: the SDK's table, with the SDK's names (the specification's "Endpoints").
struct Endpoints: Sendable {
    struct Endpoint: Sendable, Equatable {
        let name: String
        /// Without slashes at its ends.
        let path: String
        let isPreset: Bool
    }

    /// The names of the SDK's constants.
    enum Preset: String, CaseIterable {
        case tokenFetch = "SeerTokenFetch"
        case activity = "SeerActivityStreamReport"
        case instrumentation = "SeerInstrumentationReport"
        case tincan = "SeerTincanReport"
        case activityBatch = "ActivityStreamBatch"
        case tincanBatch = "TincanBatch"

        var path: String {
            switch self {
            case .tokenFetch: "oauth/access_token"
            case .activity: "sactivity"
            case .instrumentation: "sinstrumentation"
            case .tincan: "tincan"
            case .activityBatch: "sactivity/batch"
            case .tincanBatch: "tincan/batch"
            }
        }
    }

    /// The presets in the SDK's order, then the custom ones by name.
    let table: [Endpoint]
    private let base: String
    /// The path as it is used in a URL; nil if there is none.
    private let key: String?
    private let paths: [String: String]

    /// A preset's name in `endpoints` gives it another path; any other name creates a custom kind. An empty api key is
    /// not sent (Assumption 1).
    init(_ settings: SeerSettings) {
        let paths = settings.endpoints.mapValues(Self.trimmed)
        let presets = Preset.allCases.map {
            Endpoint(name: $0.rawValue, path: paths[$0.rawValue] ?? $0.path, isPreset: true)
        }
        let custom = paths.filter { Preset(rawValue: $0.key) == nil }.sorted { $0.key < $1.key }
        table = presets + custom.map { Endpoint(name: $0.key, path: $0.value, isPreset: false) }
        base = settings.baseURL.text
        key = settings.apiKey.isEmpty ? nil : PercentEncoding.encode(settings.apiKey)
        self.paths = Dictionary(uniqueKeysWithValues: table.map { ($0.name, $0.path) })
    }

    var customNames: [String] { table.filter { !$0.isPreset }.map(\.name) }

    func url(_ preset: Preset) -> String { url(named: preset.rawValue) }

    /// The whole URL, including the api key, which is part of every call, including the one for the token.
    func url(named name: String) -> String {
        let url = base + "/" + (paths[name] ?? "")
        guard let key else { return url }
        return "\(url)\(url.contains("?") ? "&" : "?")apikey=\(key)"
    }

    /// The same without the api key and without values of a query, for the log, the store, and responses.
    func shownURL(named name: String) -> String { URLQuery.masked(base + "/" + (paths[name] ?? "")) }

    // MARK: Rules

    static func problems(_ entries: [String: String]) -> [String] {
        entries.sorted { $0.key < $1.key }.flatMap { name, path in
            let kind = Preset(rawValue: name) == nil ? problem(withKind: name) : nil
            return [
                kind.map { "'\(name)' \($0)" },
                problem(withPath: trimmed(path)).map { "the path of '\(name)' \($0)" },
            ].compactMap(\.self)
        }
    }

    private static func trimmed(_ path: String) -> String {
        String(path.drop { $0 == "/" }.reversed().drop { $0 == "/" }.reversed())
    }

    private static func problem(withPath path: String) -> String? {
        if path.isEmpty { return "must not be empty" }
        guard path.utf8.allSatisfy({ (0x21...0x7E).contains($0) }), !path.contains("#") else {
            return "must be ASCII without white space and fragment"
        }
        return nil
    }

    /// A custom endpoint is a kind, so its name is part of paths and labels.
    private static func problem(withKind name: String) -> String? {
        if ["activity", "instrumentation", "tincan"].contains(name) {
            return "is a kind already; to give it another path, name the SDK's endpoint, e.g. SeerTincanReport"
        }
        return KindName.problem(with: name)
    }
}
