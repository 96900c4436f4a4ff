import Logging
import PosternCore
import PosternMetrics
import PosternStore

extension WorkerLoop {
    func answered(_ flight: Flight, _ result: TransferResult) {
        let outcome: AttemptOutcome
        do {
            outcome = try judged(result, of: flight)
        } catch {
            guard !outbox.isClosed else {
                // The next run finds the messages as they were before the attempt.
                inFlight -= 1
                unsettled -= 1
                return
            }
            // Without the state nobody can say what an answer means.
            logger.error(
                "cannot read the state; looking again",
                metadata: ["upstream": "\(queue.name)", "batch.id": "\(flight.batch.id)", "error": "\(error)"])
            return postpone(.answered(flight, result))
        }
        inFlight -= 1
        var ruling = rule(on: outcome, of: flight)
        if !outcome.wasCancelled {
            ruling.changes = changes(after: result, of: flight)
            ruling.result = result
        }
        let duration = time.instant - flight.startedAt
        metrics.attemptDuration(queue.name.description).observe(duration.inSeconds)
        metrics.attempts(queue.name.description, ruling.settlement.outcome).add()
        if outcome.isAmbiguous { metrics.ambiguousSends(queue.name.description).add() }
        log(ruling, of: flight, took: duration)
        record(ruling, of: flight)
    }

    private func judged(_ result: TransferResult, of flight: Flight) throws(StoreError) -> AttemptOutcome {
        let now = time.now
        switch result {
        case .failure(let failure):
            guard failure.reason != .cancelled else { return AttemptOutcome(failure, at: now) }
            let judgement = try outbox.withState(of: queue.number) { state in
                try upstream.judge(failure, to: flight.batch, in: context(now: now, token: flight.token, state))
            }
            return AttemptOutcome(failure, judgement: judgement, at: now)
        case .success(let response):
            let judgement = try outbox.withState(of: queue.number) { state in
                try upstream.judge(
                    response, to: flight.batch, in: context(now: now, token: flight.token, state))
            }
            return AttemptOutcome(judgement, on: response, at: now)
        }
    }

    private func changes(
        after result: TransferResult, of flight: Flight
    ) -> @Sendable (any UpstreamState) throws -> [StateChange] {
        let (now, flushedThrough) = (time.now, flushedThrough)
        return { [upstream] state in
            let context = PlanContext(now: now, token: flight.token, state: state, flushedThrough: flushedThrough)
            return try upstream.changes(after: result, to: flight.batch, in: context)
        }
    }

    // MARK: Bringing it to disk

    /// What the ruling means for the queue follows once it is there.
    func record(_ ruling: Ruling, of flight: Flight) {
        var ruling = ruling
        let record = circuitRecord
        if record != saved {
            ruling.settlement.circuit = record
            saved = record
        }
        outbox.settle(ruling.settlement, of: queue, changes: ruling.changes) { [inbox, ruling] result in
            inbox.put(.recorded(flight, ruling, result))
        }
    }

    func recorded(_ flight: Flight, _ ruling: Ruling, _ result: Result<[StateChange], StoreError>) {
        switch result {
        case .success(let changes):
            if let result = ruling.result { upstream.settled(flight.batch, by: result, with: changes) }
        case .failure(.closed):
            // The next run finds the messages as they were before the attempt.
            unsettled -= 1
            return
        case .failure(let error):
            // What the upstream took must not be forgotten: keep trying as long as there is a store.
            logger.error(
                "cannot record an outcome; trying again",
                metadata: ["upstream": "\(queue.name)", "batch.id": "\(flight.batch.id)", "error": "\(error)"])
            return postpone(.recorded(flight, ruling, result))
        }
        unsettled -= 1
        tellOfEnd(ruling, of: flight)
        queue.release(ruling.released)
        for group in ruling.again { queue.sendAgain(group.messages, from: group.dueAt, history: group.history) }
        if ruling.isGivenBack { queue.giveBack(flight.claim, now: time.now) }
    }

    private func postpone(_ event: WorkerEvent) {
        unfinished.append(event)
        storeRetryAt = storeRetryAt ?? time.instant + Self.storeRetry
    }

    /// Gives what was postponed to the store again.
    func finish(_ event: WorkerEvent) {
        switch event {
        case .answered(let flight, let result): answered(flight, result)
        case .recorded(let flight, var ruling, _):
            // Meanwhile newer than what it would write.
            if ruling.settlement.circuit != nil { ruling.settlement.circuit = saved }
            record(ruling, of: flight)
        case .tokenAnswered, .pause, .resume, .flush, .flushBegan, .stop, .end, .adopt:
            preconditionFailure("only answers and outcomes are postponed")
        }
    }
}
