import PosternCore

/// The kinds of items that apps hand in (the specification's section 1, "Items").
enum AppServicesKind: String, CaseIterable, Sendable {
    case register, reregister, unregister, preferences
    case addToGroup = "group_add"
    case removeFromGroup = "group_remove"
    case metrics, crash

    var kind: Kind { Kind(rawValue) }

    /// That of a message of monitoring; nil for any other.
    init?(monitoring message: Message) {
        guard let kind = Self(rawValue: message.kind.description), kind.isMonitoring else { return nil }
        self = kind
    }

    /// The framework's error code for an item of this kind that is invalid as a whole (section 9).
    var code: Int {
        switch self {
        case .register, .reregister: 9
        case .unregister: 8
        case .preferences, .metrics, .crash: 1
        case .addToGroup: 4
        case .removeFromGroup: 5
        }
    }

    /// Its sequence in order. Steps that are not necessary are skipped.
    var steps: [Step] {
        switch self {
        case .register, .reregister: [.registerDevice, .registerUser, .connect, .savePreferences]
        case .unregister: [.disconnect, .blankToken]
        case .preferences: [.savePreferences]
        case .addToGroup: [.findGroup, .createGroup, .addToGroup]
        case .removeFromGroup: [.findGroup, .removeFromGroup]
        case .metrics: [.fetchConfiguration, .uploadMetrics]
        case .crash: [.fetchConfiguration, .uploadCrashLog, .uploadMetrics]
        }
    }

    /// Whether it belongs to no user, and is accepted only if monitoring is on.
    var isMonitoring: Bool { self == .metrics || self == .crash }

    var isOfDevice: Bool {
        switch self {
        case .register, .reregister, .unregister, .preferences: true
        case .addToGroup, .removeFromGroup, .metrics, .crash: false
        }
    }
}

/// One request of a sequence, by its letter in section 5 if it has one. The names appear in results, attempts, and metrics.
enum Step: String, Sendable, CaseIterable {
    /// A, section 4.1
    case registerDevice
    /// B, section 4.2
    case registerUser
    /// C, section 4.3
    case connect
    /// D, section 4.4
    case savePreferences
    /// E, section 4.5
    case disconnect
    /// F, section 4.6
    case blankToken
    case findGroup
    case createGroup
    case addToGroup
    case removeFromGroup
    case fetchConfiguration
    case uploadCrashLog
    case uploadMetrics

    /// The letter in stored progress.
    var letter: Character {
        switch self {
        case .registerDevice: "A"
        case .registerUser: "B"
        case .connect: "C"
        case .savePreferences: "D"
        case .disconnect: "E"
        case .blankToken: "F"
        case .findGroup: "G"
        case .createGroup: "H"
        case .addToGroup: "I"
        case .removeFromGroup: "J"
        case .fetchConfiguration: "K"
        case .uploadMetrics: "L"
        case .uploadCrashLog: "M"
        }
    }

    init?(letter: Character) {
        guard let step = Self.allCases.first(where: { $0.letter == letter }) else { return nil }
        self = step
    }

    /// The constant by which an app observes the framework's notification of the step (sections 5 and 6); nil if there
    /// is none.
    var event: String? {
        switch self {
        case .registerDevice: "kPN_DeviceRegistrationRequest"
        case .registerUser: "kPN_UserRegistrationRequest"
        case .connect: "kPN_UserDeviceConnectionRequest"
        case .savePreferences: "kPN_DeviceEntityUpdateRequest"
        case .disconnect: "kPN_UserDeviceDisconnectionRequest"
        case .blankToken: "kPN_DeviceUnregistrationRequest"
        case .findGroup: "kPN_GetGroupRequest"
        case .createGroup: "kPN_CreateGroupRequest"
        case .addToGroup: "kPN_AddUserToGroupRequest"
        case .removeFromGroup: "kPN_RemoveUserFromGroupRequest"
        case .fetchConfiguration, .uploadCrashLog, .uploadMetrics: nil
        }
    }
}
