import PosternCore
import Synchronization

/// A queue whose batches hold one lane each: of the lane that has been ready longest, the oldest messages.
///
/// One value behind one lock, which is never held while the store is read: a claim reads with a copy, and what the
/// writer removed meanwhile is left out at its end.
final class LaneQueue: QueueDiscipline {
    private let claims = Mutex(LaneClaims())

    // MARK: After the commit

    /// Messages collect in their lane's row: it says when it is due.
    func arrived(_ arrival: Arrival, at instant: MonotonicInstant, limits: BatchLimits) -> Bool {
        arrival.dueAt.map(isDue(at:)) ?? false
    }

    func isDue(at moment: Timestamp) -> Bool { claims.withLock { $0.due.announce(moment) } }

    func tryRemoving(_ id: MessageID) -> Bool { claims.withLock { $0.leases.tryRemoving(id) } }

    func doneRemoving(_ ids: [MessageID], areGone: Bool) -> Bool {
        claims.withLock { claims in
            claims.leases.doneRemoving(ids, areGone: areGone)
            claims.due.mustLook()
        }
        return true
    }

    func cameBack(from id: MessageID) { claims.withLock { $0.due.mustLook() } }

    // MARK: The worker's side

    func adoptLeftovers(of queue: UpstreamQueue) {}

    func readiness(limits: BatchLimits, wait: Duration, now: Timestamp, instant: MonotonicInstant) -> Readiness {
        let due = claims.withLock { $0.due.moment }
        return due <= now ? .now : due == .never ? .nothing : .due(at: due)
    }

    func claim(_ request: ClaimRequest, from queue: UpstreamQueue) throws -> Claim {
        let (view, due) = claims.withLock { claims in
            let due = claims.beginLook()
            return (claims, due)
        }
        var scan = ClaimScan(request, due: due)
        do {
            try queue.read { try view.look(&scan, from: $0) }
        } catch {
            claims.withLock { $0.abandonLook(scan) }
            throw error
        }
        claims.withLock { $0.endLook(&scan) }
        refresh(scan.staleLanes, of: queue)
        return scan.claim
    }

    /// Lanes that were ready and had nothing due: their rows say when they are.
    private func refresh(_ lanes: [Int64], of queue: UpstreamQueue) {
        guard !lanes.isEmpty else { return }
        queue.writer.change { transaction in
            for lane in lanes { transaction.touch(lane, of: queue, isServed: true) }
        }
    }

    func release(_ messages: [Message]) { claims.withLock { $0.release(messages) } }

    func sendAgain(_ messages: [Message], from dueAt: Timestamp, history: BatchHistory, now: Timestamp) {
        claims.withLock { $0.sendAgain(messages, isDueNow: dueAt <= now, history: history) }
    }

    func giveBack(_ claim: Claim, now: Timestamp) {
        claims.withLock { claims in
            if claim.isGroup {
                claims.sendAgain(claim.messages, isDueNow: true, history: claim.history)
            } else {
                claims.release(claim.messages)
            }
        }
    }

    func postpone(_ claim: Claim, until dueAt: Timestamp, for reason: WaitingFor?, of queue: UpstreamQueue) {
        guard let lane = claims.withLock({ $0.lane(of: claim.messages) }) else { return }
        suspend(claim, of: queue) { transaction in
            try transaction.holdLane(lane, of: queue, until: dueAt, for: reason, wakes: claim.wakes)
        }
    }

    func park(_ claim: Claim, of queue: UpstreamQueue) {
        guard let lane = claim.messages.first?.lane else { return }
        suspend(claim, of: queue) { transaction in try transaction.park(lane, of: queue) }
    }

    /// Releases the claim once its lane's row says that it waits.
    private func suspend(
        _ claim: Claim, of queue: UpstreamQueue, _ change: @escaping @Sendable (Transaction) throws -> Void
    ) {
        queue.writer.change(change) { [self] _ in
            claims.withLock { $0.sendAgain(claim.messages, isDueNow: false, history: claim.history) }
            queue.wake()
        }
    }

    func makeDue(at now: Timestamp, of queue: UpstreamQueue, completion: @escaping @Sendable () -> Void) {
        queue.writer.change { transaction in
            try transaction.makeLanesDue(of: queue, at: now)
        } completion: { _ in
            completion()
        }
    }

    // MARK: Any thread

    func isInFlight(_ id: MessageID) -> Bool { claims.withLock { $0.leases.contains(id) } }

    func isHeldUp(_ id: MessageID, lane: Int64, in queue: UpstreamQueue) -> Bool {
        // The answer only explains a wait: without it the message shows none.
        (try? queue.read { try $0.isBehindOthers(id, lane: lane, now: queue.time.now) }) ?? false
    }

    var countInMemory: Int { claims.withLock { $0.count } }
}
