public import PosternCore
public import PosternUpstream

/// The queues of the upstreams: which there are, and which of them this process sends from.
extension Outbox {
    /// Creates the queue of a configured upstream, or continues that of an earlier run. Messages can be stored in it from
    /// now on; they are sent once it is adopted. Waits for the writer.
    public func register(_ upstream: any Upstream, type: String, cap: QueueCap) throws(StoreError) -> QueueTarget {
        let isDisabled = upstream is StoredUpstream
        let upstream = AnyUpstream(upstream)
        let (number, hasTurns) =
            isKeeper
            ? try writer.changeNow { try $0.register(upstream, type: type) } : try find(upstream, type: type)
        let target = QueueTarget(upstream, number: number, cap: cap, isDisabled: isDisabled, hasTurns: hasTurns)
        named(upstream.name, number)
        queues.register(target)
        setCap(cap, of: target)
        return target
    }

    /// The queue of an upstream that the keeper has registered. Throws `notOwner` if it has not, with this type and these kinds.
    private func find(_ upstream: AnyUpstream, type: String) throws(StoreError) -> (UpstreamNumber, hasTurns: Bool) {
        let found = try read { sql in
            try sql.all("SELECT name, number FROM kinds") { (Kind($0[0]), $0[1] as Int) }
                .forEach { [kinds] in kinds.learn($0, number: $1) }
            return try UpstreamSummary.all(with: sql).first { $0.name == upstream.name && $0.type == type }
                .map { ($0.number, try Migrations.hasTurns(of: $0.number, with: sql)) }
        }
        guard let found, upstream.kinds.allSatisfy({ kinds.number(of: $0) != 0 }) else { throw .notOwner }
        return found
    }

    /// Nil for an upstream that is not registered in this run.
    func target(_ number: UpstreamNumber) -> QueueTarget? { queues.target(number) }

    /// Replaces the upstream of a queue by one of the same name and type with other settings, and perhaps other kinds.
    /// Waits for the writer. Call it before messages of the new kinds are accepted. If it throws, nothing has changed.
    public func replace(_ upstream: any Upstream, of target: QueueTarget) throws(StoreError) {
        precondition(upstream.name == target.name, "a queue stays with its upstream")
        let new = AnyUpstream(upstream)
        if new.kinds.contains(where: { kinds.number(of: $0) == 0 }) {
            try writer.changeNow { try $0.enter(new.kinds) }
        }
        target.upstream = new
    }

    /// Changes the limits of a queue, from the next request on. Messages that are beyond them stay queued.
    public func setCap(_ cap: QueueCap, of target: QueueTarget) {
        target.cap = cap
        if cap != QueueCap() || maxBytes > 0 { mayBeFull() }
    }

    /// Has the messages of a queue take turns; nil ends that. Waits for the writer if it begins or ends: indexes are made
    /// of all that is queued. If it throws, messages do not take turns. Only the owner of a queue begins and ends that, or the
    /// keeper if none works on it.
    public func share(_ target: QueueTarget, by fairness: Fairness?) throws(StoreError) {
        guard isResponsible(for: target.number) else {
            target.hasTurns = try read { try Migrations.hasTurns(of: target.number, with: $0) }
            return target.fairness = target.hasTurns ? fairness : nil
        }
        guard target.fairness != fairness || target.hasTurns != (fairness != nil) else { return }
        let hasTurns = fairness != nil
        if !hasTurns || !target.hasTurns {
            // Before the writer lets messages of one lane have several turns.
            target.fairness = nil
            queues.adopted(target.number)?.share(by: nil)
        }
        if target.hasTurns != hasTurns {
            try writer.changeNow { transaction in
                try transaction.setTurns(hasTurns, of: target)
            } then: {
                target.hasTurns = hasTurns
            }
        }
        target.fairness = fairness
        queues.adopted(target.number)?.share(by: fairness?.weights)
    }

    // MARK: Sending from a queue

    /// Takes a queue over, so that a worker of this process can send from it. No other one may: the caller makes sure of
    /// that. What its former owner left open is closed: those requests may have arrived. Waits for the writer.
    ///
    /// Messages may be stored, cancelled, and expire meanwhile. The queue becomes known on the writer's thread, between
    /// two transactions: what was stored or removed before that, the first scan sees in the rows, and what comes later is
    /// announced to the queue.
    public func adopt(_ target: QueueTarget) throws(StoreError) -> UpstreamQueue {
        if engine.isShared { try own(target) }
        do throws(StoreError) {
            try closeOpenAttempts(of: target.number)
            let queue = UpstreamQueue(target, of: self)
            // No owner has heard of what was stored while the queue had none.
            try writer.changeNow { transaction in
                if transaction.sql.admitsLate { try transaction.admitLanes(of: target) }
                try transaction.updateParkedLanes(of: target.number)
            } then: { [self] in
                queues.adopt(queue)
                queueHasMoved()
            }
            do {
                try queue.adoptLeftovers()
            } catch {
                queues.drop(queue)
                throw engine.error(error)
            }
            return queue
        } catch {
            disown(target)
            throw error
        }
    }

    /// Makes this process the owner of a queue of a shared store, and reads its figures: other processes change them no more.
    private func own(_ target: QueueTarget) throws(StoreError) {
        let number = target.number
        let rotation = try writer.changeNow { [vault] transaction in
            try transaction.writer.own(number, in: transaction.sql)
            return try KeyRotationReport.run(with: transaction.sql, of: [number], vault: vault)
        }
        rotation.log(of: target.name, to: logger)
    }

    /// Ends that, also if it is only in the database. Other processes may adopt the queue at once.
    public func disown(_ target: QueueTarget) {
        guard engine.isShared else { return }
        // If the database cannot be reached, this is done again when it is found out.
        try? writer.changeNow { try $0.writer.disown(target.number, in: $0.sql) }
    }

    /// Ends the sending from a queue. Its worker must have ended, and its requests must have been answered or given up:
    /// the next owner sends again what was not settled. Messages are still accepted. Waits until the writer has done what
    /// the worker has submitted.
    public func drop(_ queue: UpstreamQueue) {
        // If the store fails, what was submitted has failed, too.
        try? writer.changeNow { transaction in
            try transaction.writer.disown(queue.number, in: transaction.sql)
        } then: { [queues] in
            queues.drop(queue)
        }
        queues.drop(queue)
        queueHasMoved()
    }

    /// Whether this process is sending the message.
    public func isInFlight(_ id: MessageID) -> Bool { queues.adopted(id.upstream)?.isInFlight(id) ?? false }

    /// Whether an earlier message of its lane keeps it waiting, as far as this process sends from its queue. May read the
    /// store.
    public func isHeldUp(_ id: MessageID, lane: Int64) -> Bool {
        queues.adopted(id.upstream)?.isHeldUp(id, lane: lane) ?? false
    }

    /// Closes the attempts that were open when the former owner of a queue ended, of all queues if it is nil. Their
    /// outcome is unknown, so they count as ambiguous, and their messages, which are still queued, may have arrived.
    ///
    /// The messages of a batch can be on as many pages as there are messages. On a full disk the log has no room for that
    /// many in one commit.
    func closeOpenAttempts(of number: UpstreamNumber? = nil) throws(StoreError) {
        for attempt in try read({ try LeftAttempt.all(of: number, with: $0) }) {
            var ids = attempt.ids[...]
            while !ids.isEmpty {
                let wasFull = isFull
                let part = Array(ids.prefix(wasFull ? engine.messagesPerCommitWhenFull : 512))
                do throws(StoreError) {
                    try writer.changeNow { try $0.markInterrupted(part, of: attempt) }
                    ids.removeFirst(part.count)
                } catch {
                    guard error.isFull, !wasFull else { throw error }
                }
            }
            try writer.changeNow { try $0.close(attempt) }
        }
    }
}
