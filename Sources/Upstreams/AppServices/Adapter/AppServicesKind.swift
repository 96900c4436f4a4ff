import PosternCore

/// The kinds of items that apps hand in (the specification's section 1, "Items").
enum AppServicesKind: String, CaseIterable, Sendable {
    case register, reregister, unregister, preferences
    case addToGroup = "group_add"
    case removeFromGroup = "group_remove"
    case metrics, crash
    /// The steps of the Apigee SDK, a message each.
    case device, user, connect, disconnect
    case unregisterDevice = "device_unregister"
    case createGroup = "group"

    var kind: Kind { Kind(rawValue) }

    /// That of a message of monitoring; nil for any other.
    init?(monitoring message: Message) {
        guard let kind = Self(rawValue: message.kind.description), kind.isMonitoring else { return nil }
        self = kind
    }

    /// The framework's error code for an item of this kind that is invalid as a whole (section 9).
    var code: Int {
        switch self {
        case .register, .reregister, .device: 9
        case .unregister, .unregisterDevice: 8
        case .user: 7
        case .preferences, .metrics, .crash, .connect, .disconnect: 1
        case .createGroup: 3
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
        case .device: [.registerDevice]
        case .user: [.registerUser]
        case .connect: [.connect]
        case .disconnect: [.disconnect]
        case .unregisterDevice: [.blankToken]
        case .createGroup: [.createGroup]
        }
    }

    /// Whether it is one step of the Apigee SDK. Its result has that step only, although others may be necessary for it.
    var isStep: Bool {
        switch self {
        case .device, .user, .connect, .disconnect, .unregisterDevice, .createGroup: true
        case .register, .reregister, .unregister, .preferences, .addToGroup, .removeFromGroup, .metrics, .crash: false
        }
    }

    /// Whether the SDK sends it, whose other items name no user and have the same token.
    var isOfSDK: Bool { isStep || self == .addToGroup || self == .removeFromGroup }

    /// Whether it belongs to no user, and is accepted only if monitoring is on.
    var isMonitoring: Bool { self == .metrics || self == .crash }

    var isOfDevice: Bool {
        switch self {
        case .register, .reregister, .unregister, .preferences, .device, .connect, .disconnect, .unregisterDevice:
            true
        case .addToGroup, .removeFromGroup, .metrics, .crash, .user, .createGroup: false
        }
    }

    var hasPreferences: Bool { self == .register || self == .reregister || self == .preferences }

    /// Whether an item need not name its user. It then belongs to the one whose token it comes with.
    var mayOmitUser: Bool { self == .device || self == .unregisterDevice || self == .createGroup }

    /// Whether an item may have null for its user, which means the same.
    var mayBeOfAnyUser: Bool { mayOmitUser || self == .preferences }

    /// Whether it stops notifications for a user who has logged out. Such items are kept longer than others.
    var silences: Bool { self == .unregister || self == .disconnect || self == .unregisterDevice }
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
