import PosternCore

/// The kinds of items that apps hand in (the specification's section 1, "Items").
enum AppServicesKind: String, CaseIterable, Sendable {
    case register, reregister, unregister, preferences
    case addToGroup = "group_add"
    case removeFromGroup = "group_remove"
    case metrics

    var kind: Kind { Kind(rawValue) }

    /// The framework's error code for an item of this kind that is invalid as a whole (section 9).
    var code: Int {
        switch self {
        case .register, .reregister: 9
        case .unregister: 8
        case .preferences, .metrics: 1
        case .addToGroup: 4
        case .removeFromGroup: 5
        }
    }

    var isOfDevice: Bool {
        switch self {
        case .register, .reregister, .unregister, .preferences: true
        case .addToGroup, .removeFromGroup, .metrics: false
        }
    }
}

/// One request of a sequence, by its letter in section 5 if it has one. The names appear in logs and attempts.
enum Step: String, Sendable, CaseIterable {
    /// A, section 4.1
    case registerDevice = "register_device"
    /// B, section 4.2
    case registerUser = "register_user"
    /// C, section 4.3
    case connect
    /// D, section 4.4
    case savePreferences = "save_preferences"
    /// E, section 4.5
    case disconnect
    /// F, section 4.6
    case blankToken = "blank_token"
    case findGroup = "find_group"
    case createGroup = "create_group"
    case addToGroup = "add_to_group"
    case removeFromGroup = "remove_from_group"
    case fetchConfiguration = "fetch_configuration"
    case uploadMetrics = "upload_metrics"

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
        }
    }

    init?(letter: Character) {
        guard let step = Self.allCases.first(where: { $0.letter == letter }) else { return nil }
        self = step
    }
}

/// The progress of a message's sequence, stored with the message.
struct AppServicesProgress: Equatable {
    private(set) var done: Set<Step> = []
    /// Whether the sequence was restarted, because something that had existed was not found.
    private(set) var isSecondRound = false
    /// Whether the group was looked up and is missing.
    private(set) var lacksGroup = false
    /// Why E was rejected. F follows all the same, and the message fails after it.
    private(set) var disconnectRefusal: String?

    init() {}

    /// The letters of the completed steps, `2` for the second round, `0` for a missing group, `!` and a reason.
    init(_ stored: [UInt8]?) {
        let text = String(decoding: stored ?? [], as: UTF8.self)
        let parts = text.split(separator: "!", maxSplits: 1, omittingEmptySubsequences: false)
        for letter in parts.first ?? "" {
            switch letter {
            case "2": isSecondRound = true
            case "0": lacksGroup = true
            default: if let step = Step(letter: letter) { done.insert(step) }
            }
        }
        if parts.count > 1 { disconnectRefusal = String(parts[1]) }
    }

    var stored: [UInt8] {
        let letters = String(done.map(\.letter).sorted())
        return Array(
            (letters + (isSecondRound ? "2" : "") + (lacksGroup ? "0" : "") + (disconnectRefusal.map { "!" + $0 } ?? ""))
                .utf8)
    }

    func adding(_ step: Step) -> Self {
        var next = self
        next.done.insert(step)
        return next
    }

    func lackingGroup() -> Self {
        var next = self
        next.lacksGroup = true
        return next
    }

    func refusingDisconnect(_ reason: String) -> Self {
        var next = self
        next.disconnectRefusal = reason
        return next
    }

    /// Restarts the sequence, once.
    static var secondRound: Self {
        var next = Self()
        next.isSecondRound = true
        return next
    }
}
