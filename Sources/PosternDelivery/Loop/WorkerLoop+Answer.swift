import Logging
import PosternCore
import PosternMetrics
import PosternStore

/// From a response to its result on disk.
extension WorkerLoop {
    /// Returns whether the response was processed. If the state cannot be read, it is processed again later.
    func answered(_ flight: InFlightBatch, _ transfer: TransferResult) {
        let result: AttemptResult
        do {
            result = try judged(transfer, of: flight)
        } catch {
            // After the next start, the messages are as they were before the attempt.
            guard !outbox.isClosed else { return machine.abandoned(flight) }
            _ = storeFailed(&recordRetry, "cannot read the state; retrying", error, batch: flight.batch.id)
            return unfinished.append { [unowned self] in answered(flight, transfer) }
        }
        var flight = flight
        if !result.wasCancelled { (flight.result, flight.judgedAt) = (transfer, result.at) }
        let actions = machine.answered(flight, result, others: others(besides: flight), random: random())
        let duration = time.instant - flight.startedAt
        metrics.attemptDuration(queue.name.description).observe(duration.inSeconds)
        if result.isAmbiguous { metrics.ambiguousSends(queue.name.description).add() }
        for case .record(let settlement) in actions {
            metrics.attempts(queue.name.description, settlement.outcome.rawValue).add()
            log(settlement, of: flight, took: duration)
        }
        perform(actions, for: flight)
    }

    private func judged(_ transfer: TransferResult, of flight: InFlightBatch) throws(StoreError) -> AttemptResult {
        let now = time.now
        if case .failure(let failure) = transfer, failure.reason == .cancelled {
            return AttemptResult(transfer, nil, at: now)
        }
        let judgement = try outbox.withState(of: queue.number) { state in
            let context = context(now: now, token: flight.token, state)
            return switch transfer {
            case .failure(let failure): try upstream.judge(failure, to: flight.batch, in: context)
            case .success(let response): try upstream.judge(response, to: flight.batch, in: context)
            }
        }
        return AttemptResult(transfer, judgement, at: now)
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
        outbox.settle(settlement, of: queue, changes: changes(with: settlement, of: flight)) {
            [inbox, settlement] result in
            inbox.put(.recorded(flight, settlement, result))
        }
    }

    private func changes(
        with settlement: Settlement, of flight: InFlightBatch
    ) -> @Sendable (any UpstreamState) throws -> [StateChange] {
        let (now, flushedThrough) = (flight.judgedAt ?? settlement.endedAt, machine.flushedThrough)
        return { [upstream] state in
            let context = PlanContext(now: now, token: flight.token, state: state, flushedThrough: flushedThrough)
            if let result = flight.result {
                return try upstream.changes(after: result, to: flight.batch, in: context)
            }
            guard settlement.outcome == .unsent else { return [] }
            let end = settlement.ended.first?.state ?? .delivered
            return try upstream.changes(settling: flight.batch.messages, as: end, in: context)
        }
    }

    func recorded(
        _ flight: InFlightBatch, _ settlement: Settlement, _ result: Result<[StateChange], StoreError>
    ) {
        switch result {
        case .success(let changes):
            if unfinished.isEmpty { storeSucceeded(&recordRetry) }
            if let result = flight.result {
                let cached = upstream.settled(flight.batch, by: result, with: changes)
                if !cached.isEmpty { outbox.change(of: queue, { _ in (cached, ()) }, completion: { _ in }) }
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
        for step in settlement.steps {
            metrics.steps(queue.name.description, step.step, step.outcome.rawValue).add()
        }
        tell(of: settlement, flight)
        log(deadLettersOf: settlement)
        follow(settlement, of: flight)
    }

    private func follow(_ settlement: Settlement, of flight: InFlightBatch) {
        queue.release(settlement.delivered)
        queue.release(settlement.ended.map(\.message))
        for group in settlement.again { queue.sendAgain(group.messages, from: group.dueAt, history: group.history) }
        if let postponed = settlement.postponed {
            // The endpoint may have recovered meanwhile, or the hold was shortened.
            let stillWaits = machine.health.endpoints[flight.endpoint]?.repeatsAt != nil
            postpone(
                flight.claim.narrowed(to: flight.batch.messages, history: postponed.history),
                until: stillWaits ? postponed.until : time.now, for: postponed.reason)
        } else if settlement.isGivenBack {
            // Any response that is not doubtful resets the count of a message.
            let claim = flight.claim.narrowed(to: flight.batch.messages, history: flight.claim.history.cleared)
            queue.giveBack(claim, now: time.now)
        }
    }
}
