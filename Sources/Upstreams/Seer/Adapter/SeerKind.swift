import PosternCore

/// What Seer collects (the specification's "Overview").
enum SeerKind: Sendable, Equatable {
    case activity, instrumentation, tincan
    /// Any payload, at an endpoint of the configuration (Assumption 6).
    case custom(String)

    static let presets: [SeerKind] = [.activity, .instrumentation, .tincan]

    init(_ kind: Kind) {
        let name = kind.description
        self = Self.presets.first { $0.name == name } ?? .custom(name)
    }

    var name: String {
        switch self {
        case .activity: "activity"
        case .instrumentation: "instrumentation"
        case .tincan: "tincan"
        case .custom(let name): name
        }
    }

    var kind: Kind { Kind(name) }

    /// The SDK's name for the endpoint that accepts a single payload; also its name for reports of that kind.
    var endpoint: String {
        switch self {
        case .activity: Endpoints.Preset.activity.rawValue
        case .instrumentation: Endpoints.Preset.instrumentation.rawValue
        case .tincan: Endpoints.Preset.tincan.rawValue
        case .custom(let name): name
        }
    }

    /// The endpoint for several payloads, which only two kinds have (Assumption 7).
    var batchEndpoint: Endpoints.Preset? {
        switch self {
        case .activity: .activityBatch
        case .tincan: .tincanBatch
        case .instrumentation, .custom: nil
        }
    }

    /// The SDK's error code for an invalid payload; custom kinds have none of their own.
    var errorCode: Int? {
        switch self {
        case .activity: 3
        case .instrumentation: 4
        case .tincan: 5
        case .custom: nil
        }
    }
}
