import PosternCore

/// What an SDK asks of the platform, by the path of the request.
enum SDKCall: Equatable, Sendable {
    /// What is stored and answered at once: one message.
    case report(Report)
    /// What is stored and answered at once: a message for each record.
    case batch, offline
    /// What the platform has to be asked for.
    case tags, pushHistory

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

    static let all = Report.allCases.map { Self.report($0) } + [.batch, .offline, .tags, .pushHistory]

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

    /// What follows the prefix and a slash.
    var template: String {
        switch self {
        case .report(let report): String(report.endpoint.rawValue.dropFirst())
        case .batch: String(Endpoint.periodic.rawValue.dropFirst())
        case .offline: String(Endpoint.offline.rawValue.dropFirst())
        case .tags: "visitor/getVisitorProfileTags"
        case .pushHistory: "pushHistory/get/{start}/{rows}"
        }
    }

    /// Whether the request has to have the API key, and no live session: it begins sessions.
    var needsAPIKey: Bool { self == .report(.sessionStart) || self == .offline }

    /// Whether a session that has timed out does. Its end would be repeated as a record, and nothing is gained by that.
    var needsLiveSession: Bool { !needsAPIKey && self != .report(.sessionEnd) }
}
