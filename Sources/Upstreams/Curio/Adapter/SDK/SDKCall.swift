import PosternCore

/// What an SDK asks of the platform, by the path of the request.
enum SDKCall: Equatable, Sendable {
    /// What is stored and answered at once: one message.
    case report(Report)
    /// What is stored and answered at once: a message for each record.
    case batch, offline
    /// What the platform has to be asked for.
    case tags
    /// `start` and `rows` in decimal digits.
    case pushHistory(start: String, rows: String)

    enum Report: String, CaseIterable, Sendable {
        case sessionStart = "visit_create"
        case screenStart = "hit_create"
        case screenEnd = "hit_end"
        case event = "event_create"
        case eventEnd = "event_end"
        case sessionEnd = "visit_end"
        case push
        case location
        case userTags = "tags_set"
        case unregister

        fileprivate var endpoint: Endpoint {
            switch self {
            case .sessionStart: .visitCreate
            case .screenStart: .hitCreate
            case .screenEnd: .hitEnd
            case .event: .eventCreate
            case .eventEnd: .eventEnd
            case .sessionEnd: .visitEnd
            case .push: .push
            case .location: .location
            case .userTags: .userTags
            case .unregister: .unregister
            }
        }
    }

    /// All names, for metrics.
    static let names = Report.allCases.map(\.rawValue) + ["batch", "offline", "tags_get", "push_history"]

    /// The name in metrics and log lines.
    var name: String {
        switch self {
        case .report(let report): report.rawValue
        case .batch: "batch"
        case .offline: "offline"
        case .tags: "tags_get"
        case .pushHistory: "push_history"
        }
    }

    /// Whether the request has to have the API key, and no live session: it begins sessions.
    var needsAPIKey: Bool { self == .report(.sessionStart) || self == .offline }

    /// Whether a session that has timed out does. Its end would be repeated as a record, and nothing is gained by that.
    var needsLiveSession: Bool { !needsAPIKey && self != .report(.sessionEnd) }

    /// - Parameter path: What follows the prefix, with its first slash. Empty segments do not count, but a slash at the end
    ///   does. Nil if the platform has no such path.
    init?(path: String) {
        guard path.utf8.last != UInt8(ascii: "/") else { return nil }
        let segments = path.split(separator: "/")
        if segments.count == 4, segments[..<2] == ["pushHistory", "get"] {
            guard segments[2...].allSatisfy({ $0.utf8.allSatisfy(\.isDigit) }) else { return nil }
            self = .pushHistory(start: String(segments[2]), rows: String(segments[3]))
            return
        }
        let suffix = segments.map { "/" + $0 }.joined()
        if let report = Report.allCases.first(where: { $0.endpoint.rawValue == suffix }) {
            self = .report(report)
            return
        }
        switch suffix {
        case Endpoint.periodic.rawValue: self = .batch
        case Endpoint.offline.rawValue: self = .offline
        case "/visitor/getVisitorProfileTags": self = .tags
        default: return nil
        }
    }
}
