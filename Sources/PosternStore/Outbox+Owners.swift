public import PosternCore

/// Where something has to be done, if several processes share the store. Each adds messages to any queue. What depends on the state
/// of an upstream, or on what is being sent, is done by the process that works on the queue; what concerns no queue, or one
/// on which none works, by the keeper of the store.
extension Outbox {
    /// Whether this process does what concerns no queue. Without others, it does everything. Any thread.
    public var isKeeper: Bool { engine.isKeeper }

    /// How many queues this process works on. Any thread.
    public var ownedQueues: Int { queues.adoptedCount }

    /// The name of the node that works on a queue, if the store is shared and one does. Any thread.
    public func ownerName(of number: UpstreamNumber) -> String? { engine.ownerName(of: number) }

    /// Whether another process works on a queue, or none does. Any thread.
    func isOthers(_ number: UpstreamNumber) -> Bool { engine.isShared && queues.adopted(number) == nil }

    /// Whether what concerns a queue has to be relayed; nil: what concerns none. The keeper relays to itself what concerns a queue
    /// on which no process works: the database knows whether one has begun to meanwhile. Any thread.
    public func mustRelay(_ number: UpstreamNumber?) -> Bool {
        guard engine.isShared else { return false }
        return number.map(isOthers) ?? !isKeeper
    }

    /// Whether this process looks after a queue: it works on it, or it keeps the store and no process was seen to.
    func isResponsible(for number: UpstreamNumber) -> Bool {
        !isOthers(number) || isKeeper && !engine.isOfAnother(number)
    }

    /// The queue to whose owner these messages have to be relayed, because they need a state that it changes; nil if they can be
    /// stored here. Any thread.
    public func needsOwner(_ messages: [NewMessage], after admission: Admission? = nil) -> UpstreamNumber? {
        guard engine.isShared else { return nil }
        return Self.queuesNeeded(by: messages, after: admission).first { mustRelay($0) }
    }

    /// The queues of whose state these messages need, each once, in the order of their numbers.
    static func queuesNeeded(by messages: [NewMessage], after admission: Admission?) -> [UpstreamNumber] {
        var needed: Set<UpstreamNumber> = []
        if let admission { needed.insert(admission.queue.number) }
        for message in messages where !message.needsNoState { needed.insert(message.queue.number) }
        return needed.sorted { $0.rawValue < $1.rawValue }
    }

    // MARK: Which queues this process works on

    /// Shows other processes on which queues this one can work. Any thread.
    public func serve(_ targets: [QueueTarget]) {
        // A request may have messages for several of them, and is stored in one transaction.
        let joint = targets.filter(\.validatesAgainstState)
        engine.serve(Set(targets.map(\.number)), joint: Set(joint.map(\.number)))
    }

    /// Which queues this process is to adopt and to release; nil if it has all of them. Any thread.
    public var assignment: QueueAssignment? { engine.assignment }

    /// Does what the keeper of a shared store does once, when this process has become that. Waits for the writer.
    public func beginKeeping() throws(StoreError) {
        guard engine.isShared else { return }
        let rotation = try writer.changeNow { [vault] transaction in
            try transaction.writer.beginKeeping(in: transaction.sql)
            return try KeyRotationReport.runWithoutOwners(with: transaction.sql, vault: vault)
        }
        rotation.log(to: logger)
        try registerStored()
        try markDisabled()
    }
}

/// Which queues a process is to work on, as it has last seen them.
public struct QueueAssignment: Sendable {
    /// Differs from the former one if it has looked again.
    public let number: Int
    private let view: QueueView

    init(_ view: QueueView) { (number, self.view) = (view.number, view) }

    /// Whether this process is to work on a queue.
    public func includes(_ number: UpstreamNumber) -> Bool { view.wanted.contains(number) }

    /// Why a queue can be adopted now, as `reason` of `postern_queue_moves_total`; nil if it cannot.
    public func reasonToAdopt(_ number: UpstreamNumber) -> String? { view.free[number]?.rawValue }

    /// Whether a queue counts as this process's, although it may not work on it.
    public func isHeld(_ number: UpstreamNumber) -> Bool { view.mine.contains(number) }
}
