import PosternCore
import PosternSimulatorKit

/// The commands of a `POST /control`.
struct Commands: ControlCommands {
    struct Token: Codable, Sendable {
        var token: String
        var user: String?
        var provider: String?
        var valid: Bool?
        var expiresInSeconds: Int?
    }

    struct Removal: Codable, Sendable {
        var users: [String]?
        var devices: [String]?
        var groups: [String]?
    }

    var reset: Bool?
    var tokens: [Token]?
    var invalidateToken: [String]?
    var users: [String]?
    /// An object of objects, by UUID.
    var devices: JSONTree?
    var groups: [String: [String]]?
    var connections: [String: [String]]?
    var remove: Removal?

    enum CodingKeys: CodingKey, CaseIterable {
        case reset, tokens, invalidateToken, users, devices, groups, connections, remove
    }

    static let free: Set = ["devices"]

    var problem: String? {
        for token in tokens ?? [] {
            if !AppServicesForm.isToken(token.token) { return "tokens: token must have no spaces and no Bearer" }
            if ![nil, "pi", "mi"].contains(token.provider) { return "tokens: provider must be pi or mi" }
            if let life = token.expiresInSeconds, !(0...1_000_000_000).contains(life) {
                return "tokens: expiresInSeconds must be from 0 to 1000000000"
            }
        }
        if users?.contains("") == true { return "users: none may be empty" }
        let areDevices = devices.map { tree in
            tree.members?.allSatisfy { AppServicesForm.isUUID($0.name) && $0.value.members != nil } ?? false
        }
        return areDevices == false ? "devices: must be an object of objects, by UUID" : nil
    }
}

// Applies a `POST /control` to the platform, completely or not at all.
extension AppServicesState {
    mutating func change(_ body: [UInt8], now: Timestamp, instant: MonotonicInstant) throws(ControlProblem) {
        let request = try ControlRequest<AppServicesSettings, Commands>(body, changing: settings)
        var changed = self
        changed.settings = request.settings
        changed.settings.completeMonitoring()
        if request.names.contains("seed") { changed.reseed() }
        if request.commands.reset == true { changed.reset() }
        changed.changeTokens(request.commands, instant)
        try changed.addEntities(request.commands, now)
        if let removal = request.commands.remove { changed.remove(removal) }
        self = changed
    }

    private mutating func changeTokens(_ commands: Commands, _ instant: MonotonicInstant) {
        for token in commands.tokens ?? [] {
            tokens.declare(
                token.token, provider: token.provider, user: token.user, isValid: token.valid ?? true,
                expiresAt: token.expiresInSeconds.map { instant + .seconds($0) })
        }
        for token in commands.invalidateToken ?? [] { tokens.invalidate(token) }
    }

    private mutating func addEntities(_ commands: Commands, _ now: Timestamp) throws(ControlProblem) {
        for name in commands.users ?? [] where platform.users[name.lowercased()] == nil { platform.addUser(name, now) }
        for member in commands.devices?.members ?? [] {
            let (id, properties) = (member.name.lowercased(), member.value.members ?? [])
            platform.addDevice(id, properties, now)
            let notifier = properties.first { $0.name.hasSuffix(".notifier.id") }?.name.dropLast(12)
            history.know(device: id, notifier: notifier.map(String.init))
        }
        for (group, members) in (commands.groups ?? [:]).sorted(by: { $0.key < $1.key }) {
            try requireUsers(members)
            platform.addGroup(group, members, now)
        }
        for (device, users) in commands.connections ?? [:] {
            guard platform.devices[device.lowercased()] != nil else {
                throw ControlProblem("connections: there is no such device")
            }
            try requireUsers(users)
            platform.setConnections(of: device.lowercased(), to: users)
        }
    }

    private func requireUsers(_ names: [String]) throws(ControlProblem) {
        guard names.allSatisfy({ platform.users[$0.lowercased()] != nil }) else {
            throw ControlProblem("groups and connections must name existing users")
        }
    }

    private mutating func remove(_ removal: Commands.Removal) {
        for name in removal.users ?? [] { platform.removeUser(name) }
        for id in removal.devices ?? [] { platform.removeDevice(id.lowercased()) }
        for path in removal.groups ?? [] { platform.removeGroup(path) }
    }

    /// The response to `GET /control`.
    var shown: [JSONTree.Member] {
        struct Declared: Encodable {
            let token: String
            let valid: Bool
            @OrNull var user: String?
            @OrNull var provider: String?
        }
        let declared = tokens.all.filter(\.value.isDeclared).sorted { $0.value.number < $1.value.number }
            .map { Declared(token: $0, valid: $1.isValid, user: $1.owner, provider: $1.provider) }
        return settings.shown + [.init(name: "tokens", value: tree(of: declared))]
    }
}
