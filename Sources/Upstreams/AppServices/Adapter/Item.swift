import PosternCore
import PosternUpstream

/// An item that has passed `Rules`, with the values that its requests need.
struct Item {
    let kind: AppServicesKind
    /// The user as given, for use in paths. Empty if the item names none.
    let user: String
    /// Whose token it waits for: the user as AppServices compares names, without regard to case (section 4.2), or the
    /// `TokenAlias` of an item that names no user.
    let owner: String
    /// In lower case.
    let device: String
    let deviceToken: String
    let notifier: String?
    let deviceModel: String?
    let devicePlatform: String?
    let deviceOSVersion: String?
    /// Nil if the item has none.
    let preferences: PreferencesChange?
    let group: String

    /// `alias`: its owner if it names no user.
    init(_ payload: JSONValue, of kind: AppServicesKind, alias: @autoclosure () -> String) {
        func text(_ name: StaticString) -> String { payload[name]?.string ?? "" }
        self.kind = kind
        user = text("userId")
        owner = user.isEmpty && !kind.isMonitoring ? alias() : user.lowercased()
        device = text("deviceId").lowercased()
        deviceToken = text("deviceToken").lowercased()
        notifier = payload["notifier"]?.string
        deviceModel = payload["deviceModel"]?.string
        devicePlatform = payload["devicePlatform"]?.string
        deviceOSVersion = payload["deviceOSVersion"]?.string
        preferences = payload["preferences"].flatMap(PreferencesChange.init)
        group = text("group")
    }

    /// Nil for a message of another kind, or if its payload cannot be read.
    init?(_ payload: [UInt8], of kind: Kind, in lane: Lane) {
        guard let kind = AppServicesKind(rawValue: kind.description), case .named(_, let group) = lane,
            case .success(let item) = JSONParser.ofThisThread.parseWithLoneSurrogates(
                payload, { Item($0, of: kind, alias: group ?? "") })
        else { return nil }
        self = item
    }

    init?(_ message: Message) { self.init(message.payload, of: message.kind, in: message.lane) }

    init?(_ candidate: PendingMessage) { self.init(candidate.payload, of: candidate.kind, in: candidate.lane) }

    // MARK: Lanes

    /// Per (user, device), one for a user's groups, and one for registrations of the user alone; all of a user's are one
    /// group, so that they never run concurrently and are parked together.
    var lane: Lane {
        switch kind {
        case .metrics: .named("metrics")
        case .crash: .named("crashes")
        case .addToGroup, .removeFromGroup, .createGroup: .named(groupsLane, group: owner)
        case .user: .named(userLane, group: owner)
        case .register, .reregister, .unregister, .preferences, .device, .connect, .disconnect, .unregisterDevice:
            .named(deviceLane, group: owner)
        }
    }

    var laneName: String { if case .named(let name, _) = lane { name } else { "" } }
    var deviceLane: String { Self.lane(of: owner, on: device) }
    /// The id of a device is a UUID, so it is never equal to these names.
    var groupsLane: String { owner + "/groups" }
    var userLane: String { owner + "/user" }

    static func lane(of owner: String, on device: String) -> String { "\(owner)/\(device)" }

    /// Whether it is sent after what was accepted before it for its device, also one of another user (`DeviceOrder`).
    var isOrderedByDevice: Bool { kind.isStep && kind.isOfDevice || kind == .preferences }

    /// Whether it is sent after something of another lane, or something of another lane after it.
    var isOrdered: Bool {
        isOrderedByDevice || kind == .createGroup || kind == .addToGroup || kind == .removeFromGroup
    }

    /// The device of a lane. Requests for one device are never in flight for two users at once, because the previous
    /// owner's late unregistration could silence the new one (section 5.4).
    static func device(ofLane name: String) -> String? {
        guard let slash = name.lastIndex(of: "/") else { return nil }
        let device = name[name.index(after: slash)...]
        return device == "groups" || device == "user" ? nil : String(device)
    }
}
