import PosternCore
import PosternDelivery
import PosternScenarios

@testable import PosternGateway
@testable import PosternStore

/// What holds at the end, when the faults are over and everything has become quiet.
extension Promises {
    func atTheEnd(isQuiet: Bool) {
        guard let run = world.run else { return }
        audit()
        checkSize()
        world.replays.look()
        let entries = world.expectations.entries.lazy.filter { !$0.isWaived }
        let record = records(entries, run)
        for entry in entries {
            for id in entry.ids { check(entry, id, record(id)) }
            checkRepeats(entry)
        }
        checkForgottenBySDKs()
        world.alerts.atTheEnd()
        if !isQuiet { fail("everything is settled once the faults have ended", rest(run)) }
        checkOrder()
        world.massRejections.judge { record($0)?.state }
        checkLostOutcomes(run)
        world.callbacks.atTheEnd()
        world.replays.atTheEnd()
    }

    /// What still goes on: a message that no caller waits for, or an SDK that is not empty.
    private func rest(_ run: World.Run) -> String {
        let queued = try? run.gateway.outbox.messages(MessageFilter(state: .queued), after: nil, limit: 1)
        if let message = queued?.messages.first {
            let place = (message.laneName ?? "no lane") + (message.facts.isParked ? ", and waits for a token" : "")
            return "\(message.id), \(message.kind) of \(message.upstream), is queued in \(place)"
        }
        return world.devices?.descriptionOfRest ?? "something still goes on"
    }

    private func check(_ entry: Expectations.Entry, _ id: MessageID, _ record: MessageRecord?) {
        guard let record else {
            if isRemoved(entry) { return }
            return fail("nothing accepted is lost", "\(entry.mark), \(id), is gone")
        }
        checkOrigin(of: record, entry)
        if record.state != .queued { coverage.visit("message: queued → \(record.state.name)") }
        switch record.state {
        case .queued:
            fail(
                "everything is settled once the faults have ended",
                "\(entry.mark), \(id), of \(entry.upstream) is queued; attempts \(record.attempts), next "
                    + "\(record.facts.nextAttemptAt?.description ?? "never"), lane waits for "
                    + "\(record.facts.laneWaitsFor?.rawValue ?? "nothing"), error \(record.lastError?.detail ?? "none")"
            )
        case .delivered:
            if entry.leavesMark, entry.arrivals == 0 {
                fail("what is delivered has arrived", "\(entry.mark), \(id), counts as delivered to \(entry.upstream)")
            }
            let mayBeRetried = entry.isExempt || world.plan.settings.dropsOldest(of: entry.upstream)
            if record.attempts > 1 + entry.doubts + (mayBeRetried ? 1000 : 0) {
                fail(
                    "outages cost no attempts", "\(entry.mark), \(id), was delivered after \(record.attempts) attempts")
            }
        case .failed:
            // The second of two equal ones is refused.
            let mayExist =
                entry.isTakenOnce
                && (entry.ids.count > 1 || entry.unanswered > 0 || world.restores > 0 && entry.unknownOutcomes > 0)
            if !entry.isPoison, !mayExist, !entry.wasRejected, !entry.isRejected, !mayHaveArrived(entry) {
                fail(
                    "only poison messages fail",
                    "\(entry.mark), \(id), of \(entry.upstream): \(record.lastError?.detail ?? "no error")")
            }
        case .cancelled, .expired:
            if !entry.isExempt { fail("nothing ends by itself", "\(entry.mark), \(id), is \(record.state.name)") }
            if record.state == .expired, let end = entry.expiresAt, let at = record.settledAt, at < end {
                fail("nothing expires before its time", "\(entry.mark), \(id), expired \(end - at) too early")
            }
        case .dropped:
            // A process that was killed may have recorded a request, and not sent it.
            if !world.plan.settings.dropsOldest(of: entry.upstream), !mayHaveArrived(entry),
                !entry.isSentOnce || !world.wasTakenOver
            {
                fail("nothing is dropped unless a queue is full", "\(entry.mark), \(id)")
            }
        }
    }

    /// Whether it is not sent again because it may have arrived. Requests before that one may be refused, too.
    private func mayHaveArrived(_ entry: Expectations.Entry) -> Bool {
        guard entry.isSentOnce else { return false }
        return entry.unclear > 0
            || world.plan.faults.contains { $0.type.name == entry.upstream && $0.kind == .unauthorized }
    }

    private func checkRepeats(_ entry: Expectations.Entry) {
        let whole = entry.whole ?? entry
        let posts = whole.isKnownAgain ? 1 : max(1, whole.ids.count + whole.unanswered)
        let allowed = posts + entry.copies + entry.unknownOutcomes
        guard entry.arrivals > allowed, !entry.mayRepeat else { return }
        fail(
            "a message arrives twice only if an outcome was unknown",
            "\(entry.mark) arrived \(entry.arrivals) times at \(entry.upstream); \(entry.unknownOutcomes) outcomes were unknown"
        )
    }

    /// Of each lane, what was accepted earlier arrived earlier. What failed holds nothing up any more.
    private func checkOrder() {
        var lanes: [String: [(id: MessageID, entry: Expectations.Entry)]] = [:]
        for entry in world.expectations.entries
        where !entry.isExempt && !entry.isPoison && entry.unanswered == 0 && !entry.isWaived && !entry.wasRequeued {
            guard !world.plan.settings.dropsOldest(of: entry.upstream), let lane = entry.lane, entry.ids.count == 1,
                entry.firstArrival != nil
            else { continue }
            lanes["\(entry.upstream) \(lane)", default: []].append((entry.ids[0], entry))
        }
        for (lane, messages) in lanes.sorted(by: { $0.key < $1.key }) {
            let sorted = messages.sorted { $0.id < $1.id }
            for (earlier, later) in zip(sorted, sorted.dropFirst())
            where (earlier.entry.firstArrival ?? 0) > (later.entry.firstArrival ?? 0) {
                return fail("lanes keep their order", "\(later.entry.mark) overtook \(earlier.entry.mark) in \(lane)")
            }
        }
    }

    private func checkLostOutcomes(_ run: World.Run) {
        for upstream in run.gateway.upstreams.map(\.name) {
            let counted = run.gateway.ambiguousSends(upstream)
            let lost = lostOutcomes[upstream.description, default: 0]
            if counted < lost {
                fail("unknown outcomes are counted", "\(upstream): \(lost) were lost, \(counted) counted")
            }
        }
    }
}

extension Services {
    fileprivate func ambiguousSends(_ name: UpstreamName) -> Int {
        let number = outbox.names.first { $0.value == name }?.key
        return number.map { outbox.ledger(of: $0).ambiguousSends } ?? 0
    }
}
