import PosternCore
import PosternUpstream

/// The order of a device's messages that are single steps. Their lanes are those of users, which wait for the token of one
/// user each, so a message is also sent after the last one that was accepted before it in another lane, unless that one
/// waits for a token. Members of a group are sent after its creation in the same way. What is scheduled delays nothing.
enum DeviceOrder {
    /// The message that another one is sent after, and its owner: `after/<message>`.
    static func afterKey(_ id: MessageID) -> String { "after/\(id)" }
    /// The lanes that wait for a message: `before/<message>/<lane>`. The value has no meaning.
    static func beforeRoot(_ id: MessageID) -> String { "before/\(id)" }
    /// The latest message that creates a group, and its lane: `creation/<group>`.
    static func creationKey(_ group: String) -> String { "creation/" + group.lowercased() }
    /// The owners who have messages of a device in their lanes: `owners/<device>/<owner>`. The value has no meaning.
    static func ownersRoot(_ device: String) -> String { "owners/" + device }
    /// Each start of an app whose tokens are refused may be an owner of its own (`TokenAlias`).
    static let mostOwners = 1000

    /// The message is accepted as the next one of its device.
    static func accept(
        _ item: Item, as candidate: PendingMessage, _ device: inout Device, in state: any UpstreamState
    ) -> [StateChange] {
        let changes = device.last.map { after($0, in: device.lastLane, item, candidate, state) } ?? []
        if !candidate.isScheduled { (device.last, device.lastLane) = (candidate.id, item.laneName) }
        return changes
    }

    /// The message creates a group, or changes who belongs to one.
    static func accept(
        ofGroup item: Item, as candidate: PendingMessage, in state: any UpstreamState
    ) -> [StateChange] {
        let lane = item.laneName
        guard item.kind == .createGroup else {
            return state.creation(of: item.group).map { after($0.id, in: $0.lane, item, candidate, state) } ?? []
        }
        guard !candidate.isScheduled else { return [] }
        return [
            .set(
                key: creationKey(item.group), value: Array("\(candidate.id) \(lane)".utf8),
                expiry: .init(at: candidate.acceptedAt, lane: lane))
        ]
    }

    private static func after(
        _ last: MessageID, in lastLane: String, _ item: Item, _ candidate: PendingMessage, _ state: any UpstreamState
    ) -> [StateChange] {
        let (lane, expiry) = (item.laneName, StateChange.Expiry(at: candidate.acceptedAt, lane: item.laneName))
        var predecessor = (id: last, owner: String(lastLane.prefix { $0 != "/" }))
        if lastLane == lane || !state.isQueued(last) {
            // It may leave its place before its turn, or has left it: what it is sent after remains.
            guard let earlier = state.predecessor(of: last), state.isQueued(earlier.id) else { return [] }
            predecessor = earlier
        }
        return [
            .set(
                key: afterKey(candidate.id), value: Array("\(predecessor.id) \(predecessor.owner)".utf8), expiry: expiry
            ),
            .set(key: "\(beforeRoot(predecessor.id))/\(lane)", value: [], expiry: expiry),
        ]
    }
}

extension UpstreamState {
    /// The latest message that creates the group.
    fileprivate func creation(of group: String) -> (id: MessageID, lane: String)? {
        guard let stored = value(of: DeviceOrder.creationKey(group)) else { return nil }
        let words = String(decoding: stored, as: UTF8.self).split(separator: " ", maxSplits: 1)
        guard words.count == 2, let id = MessageID(String(words[0])) else { return nil }
        return (id, String(words[1]))
    }

    /// Whether a message is queued that one which is accepted now would be sent after, in whichever lane.
    func hasPredecessor(_ item: Item) -> Bool {
        let last = item.isOrderedByDevice ? device(item.device).last : creation(of: item.group)?.id
        return item.isOrdered && last.map(isQueued) ?? false
    }

    /// Whether the message has to wait for one of another lane.
    func isBehind(_ item: Item, _ id: MessageID, at now: Timestamp) -> Bool {
        guard item.isOrdered, let predecessor = predecessor(of: id), isQueued(predecessor.id) else { return false }
        return credential(of: predecessor.owner)?.isUsable(at: now) ?? false
    }

    /// What the message was accepted after, whether that is queued still or not, and whose token that needs.
    fileprivate func predecessor(of id: MessageID) -> (id: MessageID, owner: String)? {
        guard let stored = value(of: DeviceOrder.afterKey(id)) else { return nil }
        let words = String(decoding: stored, as: UTF8.self).split(separator: " ", maxSplits: 1).map(String.init)
        guard words.count == 2, let predecessor = MessageID(words[0]) else { return nil }
        return (predecessor, words[1])
    }

    /// The owner has a message in the lane of the device. Nothing if that is recorded.
    func owns(_ item: Item, at now: Timestamp) -> [StateChange] {
        let key = "\(DeviceOrder.ownersRoot(item.device))/\(item.owner)"
        guard value(of: key) == nil else { return [] }
        return [.set(key: key, value: [], expiry: .init(at: now, lane: item.deviceLane))]
    }

    /// What waits for a token of another owner is planned again, since what was done for the device may have made it
    /// pointless.
    func releases(besides item: Item, at now: Timestamp) -> [StateChange] {
        let root = DeviceOrder.ownersRoot(item.device)
        return values(below: root, atMost: DeviceOrder.mostOwners).compactMap { key, _ in
            let owner = String(key.dropFirst(root.count + 1))
            guard owner != item.owner, credential(of: owner)?.isUsable(at: now) != true else { return nil }
            return .release(group: owner)
        }
    }

    /// The lanes that wait for the message are planned again.
    func wakes(behind item: Item, _ id: MessageID) -> [StateChange] {
        guard item.isOrdered else { return [] }
        let root = DeviceOrder.beforeRoot(id)
        return values(below: root, atMost: 8).map { .wake(lane: String($0.key.dropFirst(root.count + 1))) }
    }
}
