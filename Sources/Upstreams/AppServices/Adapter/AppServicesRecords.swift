import PosternCore
import PosternUpstream

// What is known about users, devices, and their owners: values of the upstream's state, each a text of a few words.

/// What was accepted and done for a user on a device: `pair/<user>/<device>`.
struct Pair: Equatable {
    /// The latest messages that were accepted.
    var register: MessageID?
    var reregister: MessageID?
    var unregister: MessageID?
    /// Requirements 3 and 4 of section 5.1.
    var isDeviceRegistered = false
    var isConnected = false

    static func key(_ owner: String, _ device: String) -> String { "pair/\(owner)/\(device)" }

    /// The latest message that registers, of either kind.
    var latestRegistration: MessageID? { [register, reregister].compactMap { $0 }.max() }

    /// Whether the app was registered with APNs at its last request. An app that registers here has a push token.
    var hasPushToken: Bool { latestRegistration != nil }
}

/// The owner of a device: `device/<device>`.
struct Device: Equatable {
    /// The user who registered it last, and by which message.
    var owner = ""
    var registration: MessageID?
    /// Whether a registration of this owner has reached AppServices since the device changed hands.
    var isOwnerDone = false
    /// Whether a registration of any user has reached it.
    var exists = false
    /// The user whose connection is the latest.
    var connectedUser = ""
    /// The notifier that the device was registered with. Empty if that is not known: earlier versions have recorded it
    /// only if the item named it.
    var notifier = ""
    /// The registration by which its owner took it from another user. Earlier versions have not recorded it.
    var takeover: MessageID?
    /// The latest message of the kind `device` that was accepted, and whose it is.
    var step: MessageID?
    var stepOwner = ""
    /// The first of the latest ones of that kind that have no other message of the device between them. Earlier versions
    /// have not recorded it.
    var firstStep: MessageID?
    /// The latest message by which it was registered, and the latest that has connected it.
    var registered: MessageID?
    var connected: MessageID?
    /// The latest message that later ones of the device are sent after, and its lane (`DeviceOrder`).
    var last: MessageID?
    var lastLane = ""

    static func key(_ device: String) -> String { "device/" + device }

    /// A message of the kind `device` is accepted, before it is the last one of the device.
    mutating func isRegistered(by id: MessageID, of owner: String) {
        if last == nil || last != step { firstStep = id }
        (step, stepOwner) = (id, owner)
    }

    /// A registration by the user is accepted.
    mutating func belongs(to user: String, by id: MessageID) {
        if owner != user {
            owner = user
            isOwnerDone = false
            takeover = id
        }
        registration = id
    }

    /// Whether a registration counts as its owner's: one from before another user had the device does not.
    func isOwners(_ registration: MessageID, of user: String) -> Bool {
        (takeover ?? self.registration).map { owner == user && registration >= $0 } ?? false
    }
}

/// The payload of the latest message of the kind `device`: `registration/<device>`. What registers the device once more.
enum Registration {
    static func key(_ device: String) -> String { "registration/" + device }
}

/// The preferences of a device, for all its users: `prefs/<device>`.
struct Preferences: Equatable {
    /// The message that contained or changed them.
    var revision: MessageID
    /// The latest revision that AppServices has accepted.
    var sent: MessageID?
    /// The canonical text of both lists.
    var lists: String

    static func key(_ device: String) -> String { "prefs/" + device }
    /// The lists that AppServices has accepted last.
    static func deliveredKey(_ device: String) -> String { "prefs-delivered/" + device }

    var isSent: Bool { sent == revision }
}

/// Users who are known to be registered, requirement 2: `user/<user>`. The value is the platform's `uuid` of a user who was
/// created here, and otherwise empty.
enum AppServicesUser {
    static func key(_ owner: String) -> String { "user/" + owner }
}

// MARK: Texts

extension Pair {
    init(_ stored: [UInt8]?) {
        let words = Words(stored)
        register = words.id(0)
        reregister = words.id(1)
        unregister = words.id(2)
        isDeviceRegistered = words[3] == "1"
        isConnected = words[4] == "1"
    }

    var stored: [UInt8] {
        Words.join([
            Words.text(register), Words.text(reregister), Words.text(unregister), isDeviceRegistered ? "1" : "0",
            isConnected ? "1" : "0",
        ])
    }
}

extension Device {
    init(_ stored: [UInt8]?) {
        let words = Words(stored)
        owner = words[0]
        registration = words.id(1)
        isOwnerDone = words[2] == "1"
        exists = words[3] == "1"
        connectedUser = words[4]
        notifier = words[5]
        takeover = words.id(6)
        step = words.id(7)
        stepOwner = words[8]
        registered = words.id(9)
        connected = words.id(10)
        last = words.id(11)
        lastLane = words[12]
        firstStep = words.id(13)
    }

    var stored: [UInt8] {
        Words.join([
            owner, Words.text(registration), isOwnerDone ? "1" : "0", exists ? "1" : "0", connectedUser, notifier,
            Words.text(takeover), Words.text(step), stepOwner, Words.text(registered), Words.text(connected),
            Words.text(last), lastLane, Words.text(firstStep),
        ])
    }
}

extension Preferences {
    init?(_ stored: [UInt8]?) {
        guard let stored, let revision = Words(stored, most: 3).id(0) else { return nil }
        let words = Words(stored, most: 3)
        self.init(revision: revision, sent: words.id(1), lists: words[2])
    }

    var stored: [UInt8] { Words.join([Words.text(revision), Words.text(sent), lists]) }
}

/// Words separated by spaces, including empty ones. Users, devices, and notifiers contain no spaces.
private struct Words {
    private let words: [Substring]

    init(_ stored: [UInt8]?, most: Int = .max) {
        words = String(decoding: stored ?? [], as: UTF8.self)
            .split(separator: " ", maxSplits: most == .max ? most : most - 1, omittingEmptySubsequences: false)
    }

    subscript(index: Int) -> String { index < words.count ? String(words[index]) : "" }

    func id(_ index: Int) -> MessageID? { MessageID(self[index]) }

    static func text(_ id: MessageID?) -> String { id?.description ?? "" }
    static func join(_ words: [String]) -> [UInt8] { Array(words.joined(separator: " ").utf8) }
}

extension UpstreamState {
    func pair(_ owner: String, _ device: String) -> Pair {
        Pair(value(of: Pair.key(owner, device)))
    }
    func device(_ device: String) -> Device {
        Device(value(of: Device.key(device)))
    }
    func preferences(of device: String) -> Preferences? {
        Preferences(value(of: Preferences.key(device)))
    }
    /// What the device is registered with; nil if it was never registered by a message of the kind `device`.
    func registration(of device: String) -> Item? {
        guard let stored = value(of: Registration.key(device)) else { return nil }
        return Item(stored, of: AppServicesKind.device.kind, in: .named("", group: ""))
    }
    func isUserKnown(_ owner: String) -> Bool { value(of: AppServicesUser.key(owner)) != nil }
    /// The platform's `uuid` of the user.
    func userID(_ owner: String) -> String? {
        value(of: AppServicesUser.key(owner)).flatMap { $0.isEmpty ? nil : String(decoding: $0, as: UTF8.self) }
    }
}
