import Foundation

/// What the calls of one app leave at a platform that is always there: of a device, and of the group that its users join.
/// After a call that may have been made or not, each is possible; the next one settles it.
struct AppServicesSDKState {
    let device: String
    let group: String
    /// The push token; empty once it is blanked.
    private var pushTokens: Set<String> = [""]
    /// The user who is connected; empty if there is none.
    private var connections: Set<String> = [""]
    private var lists: Set<String> = [""]
    private var users: [String: Set<Bool>] = [:]
    private var members: [String: Set<Bool>] = [:]

    init(device: String, group: String) { (self.device, self.group) = (device, group) }

    mutating func succeed(_ step: AppServicesSDKModel.Step, of user: String) { take(step, of: user, isSure: true) }

    /// - Parameter isStored: Whether the gateway has it, and makes it up for later.
    mutating func fail(_ step: AppServicesSDKModel.Step, of user: String, isStored: Bool) {
        take(step, of: user, isSure: isStored)
    }

    private mutating func take(_ step: AppServicesSDKModel.Step, of user: String, isSure: Bool) {
        func merge<Value>(_ values: inout Set<Value>, _ new: Set<Value>) { values = isSure ? new : values.union(new) }
        switch step {
        case .device(let token): merge(&pushTokens, [token])
        case .blanking: merge(&pushTokens, [""])
        case .user: merge(&users[user, default: [false]], [true])
        case .connect: merge(&connections, [user])
        case .disconnect: merge(&connections, Set(connections.map { $0 == user ? "" : $0 }))
        case .preferences(let list): merge(&lists, [list])
        case .addToGroup(group): merge(&members[user, default: [false]], [true])
        case .removeFromGroup(group): merge(&members[user, default: [false]], [false])
        case .findGroup, .createGroup, .addToGroup, .removeFromGroup, .configuration, .metrics: break
        }
    }

    /// What is not as it should be in the state that the platform shows; nil if nothing is.
    func mismatch(with platform: String) -> String? {
        let state = (try? JSONSerialization.jsonObject(with: Data(platform.utf8)) as? [String: Any]) ?? [:]
        let found = (state["devices"] as? [String: [String: Any]])?[device] ?? [:]
        let pushToken = found["apple.notifier.id"] as? String ?? ""
        guard pushTokens.contains(pushToken) else { return "the push token is \(pushToken), not \(pushTokens)" }
        let connected = (state["connections"] as? [String: [String]])?[device]?.last ?? ""
        guard connections.contains(connected) else { return "\(connected) is connected, not \(connections)" }
        let preferences = (found["mobileplatform"] as? [String: Any])?["preferences"] as? [String: [String: Any]]
        let list = preferences?["whitelist"]?.keys.first ?? ""
        guard lists.contains(list) else { return "the preferences are \(list), not \(lists)" }
        let registered = state["users"] as? [String] ?? []
        for (user, isOne) in users where !isOne.contains(registered.contains(user)) {
            return "\(user) is registered: \(!isOne.contains(true))"
        }
        let joined = (state["groups"] as? [String: [String]])?[group] ?? []
        for (user, isOne) in members where !isOne.contains(joined.contains(user)) {
            return "\(user) belongs to \(group): \(!isOne.contains(true))"
        }
        return nil
    }
}
