import PosternCore

/// The messages of a queue that are being sent, and those that the writer is removing. No message is ever both. A plain
/// value; the mailbox holds it.
///
/// A claim reads the store without a lock. So a removal can begin, and even be committed, between that read and the
/// time at which the claim takes its messages. `lease` rejects such messages.
struct Leases {
    /// The lanes of the messages in flight.
    private(set) var lanes: [MessageID: Int64] = [:]
    private var removing: Set<MessageID> = []
    /// The messages that were removed since the current scan began; nil if there is no scan.
    private var removedMeanwhile: Set<MessageID>?

    func contains(_ id: MessageID) -> Bool { lanes[id] != nil }
    func hasAny(through id: MessageID) -> Bool { lanes.keys.contains { $0 <= id } }

    // MARK: The worker's side

    mutating func beginScan() { removedMeanwhile = [] }

    /// Ends the scan and leases what it found. Returns nil if that is everything; otherwise, the messages that it may not
    /// lease although they are still queued: those that are being removed, and later ones of their lanes, because such a
    /// removal can be undone.
    mutating func endScan(taking found: [Message], lane: (Message) -> Int64) -> [MessageID]? {
        defer { removedMeanwhile = nil }
        if removing.isEmpty, removedMeanwhile?.isEmpty != false {
            for index in found.indices { lanes[found[index].id] = lane(found[index]) }
            return nil
        }
        var refused: [MessageID] = []
        var blocked: Set<Int64> = []
        for message in found.sorted(by: { $0.id < $1.id }) {
            let (id, lane) = (message.id, lane(message))
            if removing.contains(id) || blocked.contains(lane) {
                refused.append(id)
                if lane != 0 { blocked.insert(lane) }
            } else if removedMeanwhile?.contains(id) != true {
                lanes[id] = lane
            }
        }
        return refused
    }

    mutating func abandonScan() { removedMeanwhile = nil }

    /// The message is no longer being sent. Nil if it was not.
    mutating func end(_ id: MessageID) -> Lease? { lanes.removeValue(forKey: id).map { Lease(id: id, lane: $0) } }

    // MARK: The writer's side

    /// Prevents a message from being claimed until `doneRemoving`. Returns false if it is being sent.
    mutating func tryRemoving(_ id: MessageID) -> Bool {
        guard lanes[id] == nil else { return false }
        removing.insert(id)
        return true
    }

    func isRemoving(_ id: MessageID) -> Bool { removing.contains(id) }

    /// The removal is committed (`areGone`) or undone.
    mutating func doneRemoving(_ ids: [MessageID], areGone: Bool) {
        for id in ids {
            removing.remove(id)
            if areGone { removedMeanwhile?.insert(id) }
        }
    }
}

/// A message that is being sent, and its lane.
struct Lease {
    let id: MessageID
    let lane: Int64
}
