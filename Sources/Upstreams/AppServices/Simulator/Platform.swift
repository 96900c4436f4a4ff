import PosternCore
import PosternSimulatorKit

/// What the platform holds: users, devices, groups, and who is tied to what. Names are compared without regard to case.
struct Platform: Sendable {
    struct Entity: Sendable {
        var uuid: String
        var name: String
        var created: Int64
        /// In lower case; for a group, its members.
        var members: Set<String> = []
    }
    struct Device: Sendable {
        /// Without `type` and `uuid`.
        var properties: [JSONTree.Member]
        var created: Int64
        var modified: Int64
        /// In lower case, the last one to be connected at the end.
        var users: [String] = []
    }

    private(set) var users: [String: Entity] = [:]
    private(set) var devices: [String: Device] = [:]
    private(set) var groups: [String: Entity] = [:]
    private(set) var metrics = 0
    private(set) var crashLogs: Set<String> = []
    private var random: SplitMix64

    init(seed: UInt64) { random = SplitMix64(state: seed) }

    typealias Result = Answer.Result

    /// Names that the platform treats as a group's own collections: such a group is created and never found again.
    private static let collections: Set<String> = [
        "users", "activities", "feed", "roles", "rolenames", "permissions", "connections", "credentials", "indexes",
    ]

    mutating func perform(
        _ step: Call.Step, _ call: Call, exclusiveDevices: Bool, now: Timestamp
    ) -> Result {
        let (user, device, group) = (call.user ?? "", call.device ?? "", call.group ?? "")
        switch step {
        case .registerDevice, .savePreferences, .unregisterDevice, .updateDevice:
            return put(device, call.json?.members ?? [], now)
        case .registerUser: return registerUser(call.json?["username"]?.string, now)
        case .updateUser:
            if users[user.lowercased()] == nil { addUser(user, now) }
            return userEntity(user)
        case .connect: return connect(user, device, exclusive: exclusiveDevices)
        case .disconnect: return disconnect(user, device)
        case .disconnectAll:
            guard users[user.lowercased()] != nil else { return .notFound }
            for id in devices.keys { devices[id]?.users.removeAll { $0 == user.lowercased() } }
            return userEntity(user)
        case .getGroup: return known(group) == nil ? .notFound : groupEntity(group)
        case .createGroup: return createGroup(call.json?["path"]?.string, now)
        case .addUser, .removeUser:
            guard let key = known(group), users[user.lowercased()] != nil else { return .notFound }
            if step == .addUser {
                groups[key]?.members.insert(user.lowercased())
            } else {
                groups[key]?.members.remove(user.lowercased())
            }
            return userEntity(user)
        case .metrics, .crashLog, .monitoringConfiguration: return .notFound
        }
    }

    // MARK: Operations

    private mutating func put(_ id: String, _ members: [JSONTree.Member], _ now: Timestamp) -> Result {
        guard AppServicesForm.isUUID(id) else {
            return .error("illegal_argument", status: 400, description: "A device is named by a UUID")
        }
        var device = devices[id] ?? Device(properties: [], created: now.milliseconds, modified: 0)
        let sent = members.filter { $0.name != "uuid" && $0.name != "type" }
        device.properties = JSONTree.object(of: device.properties + sent).members ?? []
        device.modified = now.milliseconds
        devices[id] = device
        return deviceEntity(id)
    }

    private mutating func registerUser(_ name: String?, _ now: Timestamp) -> Result {
        guard let name, !name.isEmpty else {
            return .error(
                "required_property_not_found", status: 400, description: "Entity user requires a property username")
        }
        guard users[name.lowercased()] == nil else { return Self.duplicate("user", "username", name) }
        addUser(name, now)
        return userEntity(name)
    }

    private mutating func createGroup(_ path: String?, _ now: Timestamp) -> Result {
        guard let path, !path.isEmpty else {
            return .error(
                "required_property_not_found", status: 400, description: "Entity group requires a property path")
        }
        let isTaken = path.utf8.allSatisfy { $0.isAlphanumeric || "-./".utf8.contains($0) }
        guard isTaken else {
            return .error("illegal_argument", status: 400, description: "A group's path has letters, digits, - . /")
        }
        guard groups[path.lowercased()] == nil else { return Self.duplicate("group", "path", path) }
        addGroup(path, [], now)
        return groupEntity(path)
    }

    private mutating func connect(_ user: String, _ device: String, exclusive: Bool) -> Result {
        guard users[user.lowercased()] != nil, devices[device] != nil else { return .notFound }
        devices[device]?.users.removeAll { exclusive || $0 == user.lowercased() }
        devices[device]?.users.append(user.lowercased())
        return deviceEntity(device, below: user)
    }

    private mutating func disconnect(_ user: String, _ device: String) -> Result {
        guard users[user.lowercased()] != nil, devices[device] != nil else { return .notFound }
        devices[device]?.users.removeAll { $0 == user.lowercased() }
        return deviceEntity(device, below: user)
    }

    private func known(_ group: String) -> String? {
        let key = group.lowercased()
        return groups[key] != nil && !Self.collections.contains(key) ? key : nil
    }

    private static func duplicate(_ type: String, _ property: String, _ value: String) -> Result {
        .error(
            "duplicate_unique_property_exists", status: 400,
            description: "Entity \(type) requires that property named \(property) be unique, value of \(value) exists")
    }

    // MARK: Changes from outside

    mutating func seed(_ seed: UInt64) { random = SplitMix64(state: seed) }

    mutating func addUser(_ name: String, _ now: Timestamp) {
        users[name.lowercased()] = Entity(uuid: uuid(), name: name, created: now.milliseconds)
    }

    mutating func addDevice(_ id: String, _ properties: [JSONTree.Member], _ now: Timestamp) {
        devices[id] = Device(properties: properties, created: now.milliseconds, modified: now.milliseconds)
    }

    mutating func addGroup(_ path: String, _ members: [String], _ now: Timestamp) {
        groups[path.lowercased()] = Entity(
            uuid: uuid(), name: path, created: now.milliseconds, members: Set(members.map { $0.lowercased() }))
    }

    mutating func setConnections(of device: String, to users: [String]) {
        devices[device]?.users = users.map { $0.lowercased() }
    }

    mutating func removeUser(_ name: String) {
        let key = name.lowercased()
        users[key] = nil
        for id in devices.keys { devices[id]?.users.removeAll { $0 == key } }
        for path in groups.keys { groups[path]?.members.remove(key) }
    }

    mutating func removeDevice(_ id: String) { devices[id] = nil }
    mutating func removeGroup(_ path: String) { groups[path.lowercased()] = nil }

    mutating func takeMetrics() { metrics += 1 }
    mutating func takeCrashLog(_ file: String) { crashLogs.insert(file) }

    private mutating func uuid() -> String {
        let (head, tail) = (hexDigits(random.next()), hexDigits(random.next()))
        return
            "\(head.prefix(8))-\(head.dropFirst(8).prefix(4))-4\(head.suffix(3))-a\(tail.prefix(3))-\(tail.suffix(12))"
    }

    // MARK: Texts

    private func deviceEntity(_ id: String, below user: String? = nil) -> Result {
        guard let device = devices[id] else { return .notFound }
        let head = """
            "uuid":\(quoted(id)),"type":"device","created":\(device.created),"modified":\(device.modified)
            """
        let properties = device.properties.map { ",\(quoted($0.name)):\($0.value.canonical)" }.joined()
        let path = user.flatMap { users[$0.lowercased()] }.map { "/users/\($0.uuid)/devices" } ?? "/devices"
        return .entity("{\(head)\(properties),\(Self.metadata("/devices/\(id)"))}", path: path)
    }

    private func userEntity(_ name: String) -> Result {
        guard let user = users[name.lowercased()] else { return .notFound }
        return .entity(
            """
            {"uuid":"\(user.uuid)","type":"user","created":\(user.created),"modified":\(user.created),\
            "username":\(quoted(user.name)),"activated":true,\(Self.metadata("/users/\(user.uuid)"))}
            """, path: "/users")
    }

    private func groupEntity(_ path: String) -> Result {
        guard let group = groups[path.lowercased()] else { return .notFound }
        return .entity(
            """
            {"uuid":"\(group.uuid)","type":"group","created":\(group.created),"modified":\(group.created),\
            "path":\(quoted(group.name)),"title":\(quoted(group.name)),\(Self.metadata("/groups/\(group.uuid)"))}
            """, path: "/groups")
    }

    private static func metadata(_ path: String) -> String { #""metadata":{"path":\#(quoted(path))}"# }

    /// All of it in one line, members sorted; without ids and times of the platform's own making, so that it can be
    /// compared as text.
    var canonical: String {
        func array(_ names: some Sequence<String>) -> JSONTree {
            .array(names.sorted { $0.utf8.lexicographicallyPrecedes($1.utf8) }.map { .string($0) })
        }
        func object(_ pairs: some Sequence<(String, JSONTree)>) -> JSONTree {
            .object(of: pairs.map { .init(name: $0, value: $1) })
        }
        func names(_ keys: some Sequence<String>) -> JSONTree { array(keys.map { users[$0]?.name ?? $0 }) }
        return object([
            ("connections", object(devices.filter { !$0.value.users.isEmpty }.map { ($0, names($1.users)) })),
            ("crashLogs", array(crashLogs)),
            ("devices", object(devices.map { ($0, JSONTree.object(of: $1.properties)) })),
            ("groups", object(groups.values.map { ($0.name, names($0.members)) })),
            ("metrics", .number("\(metrics)")),
            ("users", array(users.values.map(\.name))),
        ]).canonical
    }
}
