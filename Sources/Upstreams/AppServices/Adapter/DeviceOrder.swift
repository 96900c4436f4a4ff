import PosternCore
import PosternUpstream

/// The order of a device's messages that are single steps. Their lanes are those of users, which wait for the token of one
/// user each, so a message is also sent after the last one that was accepted before it in another lane, unless that one
/// waits for a token. Scheduled preferences delay nothing.
enum DeviceOrder {
    /// The message that another one is sent after, and its owner: `after/<message>`.
    static func afterKey(_ id: MessageID) -> String { "after/\(id)" }
    /// The lanes that wait for a message: `before/<message>/<lane>`. The value has no meaning.
    static func beforeRoot(_ id: MessageID) -> String { "before/\(id)" }

    /// The message is accepted as the next one of its device.
    static func accept(
        _ item: Item, as candidate: PendingMessage, _ device: inout Device, in state: any UpstreamState
    ) -> [StateChange] {
        let (id, now) = (candidate.id, candidate.acceptedAt)
        let lane = item.laneName
        var changes: [StateChange] = []
        if let last = device.last, device.lastLane != lane, state.isQueued(last) {
            let owner = device.lastLane.prefix { $0 != "/" }
            changes = [
                .set(key: afterKey(id), value: Array("\(last) \(owner)".utf8), expiry: .init(at: now, lane: lane)),
                .set(key: "\(beforeRoot(last))/\(lane)", value: [], expiry: .init(at: now, lane: device.lastLane)),
            ]
        }
        if !candidate.isScheduled { (device.last, device.lastLane) = (id, lane) }
        return changes
    }
}

extension UpstreamState {
    /// Whether the message has to wait for one of another lane.
    func isBehind(_ item: Item, _ id: MessageID, at now: Timestamp) -> Bool {
        guard item.isOrderedByDevice, let stored = value(of: DeviceOrder.afterKey(id)) else { return false }
        let words = String(decoding: stored, as: UTF8.self).split(separator: " ", maxSplits: 1).map(String.init)
        guard words.count == 2, let last = MessageID(words[0]), isQueued(last) else { return false }
        return credential(of: words[1])?.isUsable(at: now) ?? false
    }

    /// The lanes that wait for the message are planned again.
    func wakes(behind item: Item, _ id: MessageID) -> [StateChange] {
        guard item.isOrderedByDevice else { return [] }
        let root = DeviceOrder.beforeRoot(id)
        return values(below: root, atMost: 8).map { .wake(lane: String($0.key.dropFirst(root.count + 1))) }
    }
}
