import Logging
import PosternCore
import PosternMetrics
import PosternStore
import PosternThreads
import PosternUpstream

/// From a response to its result on disk.
extension WorkerLoop {
    /// Returns whether the response was processed. If the state cannot be read, it is processed again later.
    func answered(_ flight: InFlightBatch, _ transfer: TransferResult) {
        let decision: Decision?
        do {
            decision = try judged(transfer, of: flight)
        } catch {
            // After the next start, the messages are as they were before the attempt.
            guard !outbox.isClosed else { return machine.abandoned(flight) }
            _ = storeFailed(&recordRetry, "cannot read the state; retrying", error, batch: flight.batch.id)
            return unfinished.append { [unowned self] in answered(flight, transfer) }
        }
        let result = AttemptResult(transfer, decision?.judgement, at: time.now)
        var flight = flight
        (flight.changes, flight.afterwards) = (decision?.changes, decision?.afterwards)
        let duration = time.instant - flight.startedAt
        let actions = machine.answered(
            flight, result, took: duration, others: others(besides: flight), random: random())
        metrics.attemptDuration(queue.name.description).observe(duration.inSeconds)
        if result.isAmbiguous { metrics.ambiguousSends(queue.name.description).add() }
        for case .record(let settlement) in actions {
            metrics.attempts(queue.name.description, settlement.outcome.rawValue).add()
            log(settlement, after: transfer, of: flight, took: duration)
        }
        perform(actions, for: flight)
    }

    /// Nil if the gateway cancelled the request.
    private func judged(_ transfer: TransferResult, of flight: InFlightBatch) throws(StoreError) -> Decision? {
        if case .failure(let failure) = transfer, failure.reason == .cancelled { return nil }
        return try outbox.withState(of: queue.number) { state in
            upstream.judge(
                transfer, to: flight.batch, in: context(now: time.now, token: flight.token, state))
        }
    }

    /// What is queued in addition to a batch in flight.
    private func others(besides flight: InFlightBatch) -> DeliveryMachine.OtherMessages {
        let hasMore = outbox.ledger(of: queue.number).queued > flight.batch.messages.count
        guard hasMore else { return .none }
        switch readiness(collecting: false) {
        case .now, .collecting: return .ready
        case .due(let at): return at - time.now <= settings.retry.longest ? .later : .blocked
        case .nothing: return machine.inFlight > 1 ? .later : .blocked
        }
    }

    // MARK: Writing it to disk

    /// Stores the settlement. What it means for the queue follows once it is on disk.
    func record(_ settlement: Settlement, of flight: InFlightBatch) {
        var settlement = settlement
        let record = persistedHealth
        if record != saved {
            settlement.circuit = record
            saved = record
        }
        outbox.settle(settlement, of: queue, changes: flight.changes) { [inbox, settlement] result in
            inbox.put(.recorded(flight, settlement, result))
        }
    }

    func recorded(
        _ flight: InFlightBatch, _ settlement: Settlement, _ result: Result<[StateChange], StoreError>
    ) {
        switch result {
        case .success(let changes):
            if unfinished.isEmpty { storeSucceeded(&recordRetry) }
            if let cached = flight.afterwards?(changes), !cached.isEmpty {
                outbox.change(of: queue.target, { _ in (cached, ()) }, completion: { _ in })
            }
        case .failure(.closed):
            // After the next start, the messages are as they were before the attempt.
            return machine.ended()
        case .failure(let error):
            // What the upstream accepted must not be lost: retry as long as the store is open.
            _ = storeFailed(
                &recordRetry, "cannot store the result of an attempt; retrying", error, batch: flight.batch.id)
            return unfinished.append { [unowned self] in
                var settlement = settlement
                // The current state is newer than what it would write.
                if settlement.circuit != nil { settlement.circuit = saved }
                record(settlement, of: flight)
            }
        }
        machine.ended()
        machine.count(settlement)
        observeWaits(of: settlement)
        for step in settlement.steps {
            metrics.steps(queue.name.description, step.step, step.outcome.rawValue).add()
        }
        recordEnd(of: settlement, flight)
        log(deadLettersOf: settlement)
        follow(settlement, of: flight)
    }

    private func follow(_ settlement: Settlement, of flight: InFlightBatch) {
        queue.release(settlement.delivered)
        queue.release(settlement.ended.map(\.message))
        for group in settlement.again { queue.sendAgain(group.messages, from: group.dueAt, history: group.history) }
        if let postponed = settlement.postponed {
            // The endpoint may have recovered meanwhile, or the hold was shortened.
            let stillWaits =
                postponed.reason == .guard
                ? machine.rejectionGuard.isHolding(flight.endpoint)
                : machine.health.endpoints[flight.endpoint]?.repeatsAt != nil
            postpone(
                flight.claim.narrowed(to: postponed.messages, history: postponed.history),
                until: stillWaits ? postponed.until : time.now, for: postponed.reason)
        } else if settlement.isGivenBack {
            // Any response that is not doubtful resets the count of a message.
            let claim = flight.claim.narrowed(to: flight.batch.messages, history: flight.claim.history.cleared)
            queue.giveBack(claim, now: time.now)
        }
    }
}
