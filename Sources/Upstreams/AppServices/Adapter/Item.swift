import PosternCore
import PosternUpstream

/// An item that has passed `Rules`, with the values that its requests need.
struct Item {
    let kind: AppServicesKind
    /// The user as given, for use in paths.
    let user: String
    /// The user as AppServices compares names: without regard to case (section 4.2).
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

    init(_ payload: JSONValue, of kind: AppServicesKind) {
        func text(_ name: StaticString) -> String { payload[name]?.string ?? "" }
        self.kind = kind
        user = text("userId")
        owner = user.lowercased()
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
    init?(_ payload: [UInt8], of kind: Kind) {
        guard let kind = AppServicesKind(rawValue: kind.description),
            case .success(let item) = JSONParser.ofThisThread.parse(payload, { Item($0, of: kind) })
        else { return nil }
        self = item
    }

    init?(_ message: Message) { self.init(message.payload, of: message.kind) }

    // MARK: Lanes

    /// Per (user, device), and one for a user's groups; all of a user's are one group, so that they never run
    /// concurrently and are parked together.
    var lane: Lane {
        switch kind {
        case .metrics: .named("metrics")
        case .crash: .named("crashes")
        case .addToGroup, .removeFromGroup: .named(groupsLane, group: owner)
        case .register, .reregister, .unregister, .preferences: .named("\(owner)/\(device)", group: owner)
        }
    }

    /// The id of a device is a UUID, so it is never equal to this name.
    var groupsLane: String { owner + "/groups" }

    /// The device of a lane. Requests for one device are never in flight for two users at once, because the previous
    /// owner's late unregistration could silence the new one (section 5.4).
    static func device(ofLane name: String) -> String? {
        guard let slash = name.lastIndex(of: "/") else { return nil }
        let device = name[name.index(after: slash)...]
        return device == "groups" ? nil : String(device)
    }
}
