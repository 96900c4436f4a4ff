import Logging
import PosternCompression
import PosternCore
import PosternEvents
import PosternMetrics
import PosternStore
import PosternThreads
import PosternUpstream

/// From a claim to a request.
extension WorkerLoop {
    /// The number of claims in one turn before events are processed again.
    static let claimsPerTurn = 16
    /// The number of messages among which one is chosen that probes a held upstream.
    private static let probeChoice = 512

    func sendWhatMayBeSent() {
        var claims = 0
        // An empty queue is looked at without a token, too: only after that does the next message wake the worker.
        let isEmpty = outbox.ledger(of: queue.number).queued == 0
        while claims < Self.claimsPerTurn, !claimRetry.isWaiting(at: time.instant), machine.maySend(now: time.now),
            hasToken || isEmpty, readiness() == .now
        {
            claims += 1
            guard let claim = nextClaim() else {
                lastClaimWasEmpty = true
                break
            }
            if !claim.messages.isEmpty { plan(claim) }
        }
        if machine.isHurried, readiness() != .now { machine.isHurried = false }
    }

    /// Nil if there was nothing to claim, or the store could not be read. Expired messages are settled during the
    /// claim, which may hold no others.
    private func nextClaim() -> Claim? {
        let now = time.now
        do {
            let claim = try claim(now: now)
            if !claim.expired.isEmpty { expire(claim, now: now) }
            return claim.messages.isEmpty && claim.expired.isEmpty ? nil : claim
        } catch {
            _ = storeFailed(&claimRetry, "cannot read the queue", error)
            return nil
        }
    }

    /// Lone suspects are sent only if nothing else is ready, one at a time.
    private func claim(now: Timestamp) throws -> Claim {
        let claim = try claim(now: now) { history, count in count > 1 || history.suspectTries == 0 }
        guard claim.messages.isEmpty, claim.expired.isEmpty, machine.suspectsInFlight == 0 else { return claim }
        return try self.claim(now: now) { _, _ in true }
    }

    /// A probe carries messages that have not failed yet, if there are any. Otherwise a poison message could make every
    /// probe fail, although the upstream would accept the others. One that ends a hold is chosen among many.
    private func claim(now: Timestamp, mayRepeat: @escaping (BatchHistory, Int) -> Bool) throws -> Claim {
        var limits = limits
        if let most = Pace.batchLimit(settings.pace) { limits.maxMessages = min(limits.maxMessages, most) }
        if machine.choosesProbe { limits.maxMessages = max(limits.maxMessages, Self.probeChoice) }
        return try queue.claim(
            limits, now: now, oldest: settings.expireAfter > .zero ? now - settings.expireAfter : nil,
            preferring: machine.health.upstream.state == .closed ? .inTurn : .fresh,
            waitingKinds: machine.waitingKinds(now: now),
            maxMessagesOfKind: machine.kindLimits.compactMapValues(Pace.batchLimit),
            limitsOfLane: { [upstream, settings] in upstream.limits(settings.limits, ofLane: $0) },
            mayRepeat: mayRepeat)
    }

    private func expire(_ claim: Claim, now: Timestamp) {
        let batch = Batch(id: outbox.nextBatch(), messages: claim.expired)
        var settlement = Settlement(batch: batch.id, outcome: .expired, endedAt: now)
        settlement.ended = claim.expired.map { .init($0, as: .expired, error: nil) }
        settle(unsent: batch, of: claim, settlement)
    }

    // MARK: Planning

    private func plan(_ claim: Claim) {
        let now = time.now
        let token = machine.tokens.token(at: now)
        // The token may have expired while the store was read.
        if upstream.tokenSource != nil, token == nil { return postpone(claim, until: now) }
        let plan: Plan
        do {
            plan = try outbox.withState(of: queue.number) { state in
                upstream.plan(for: claim.messages, in: context(now: now, token: token, state))
            }
        } catch {
            return postpone(claim, until: now + storeFailed(&claimRetry, "cannot read the state", error))
        }
        switch plan {
        case .send(let request, let count):
            if let wait = machine.health.wait(of: request.endpoint, now: now) {
                postpone(claim, until: spread(wait.until, at: request.endpoint, now: now), for: wait.reason)
            } else if let until = machine.rejectionGuard.wait(of: request.endpoint, now: now) {
                postpone(claim, until: until, for: .guard)
            } else if machine.probeLimit(of: request.endpoint) != nil, claim.messages.count > 1 {
                let chosen = probe(of: claim)
                queue.sendAgain(claim.messages.filter { $0.id != chosen.id }, from: now, history: claim.history)
                self.plan(claim.narrowed(to: [chosen]))
            } else {
                send(request, carrying: count, of: claim, now: now)
            }
        case .settle(let count, let state, let reason, let steps, let changes):
            settleUnsent(count, of: claim, as: state, reason: reason, steps, changes, now: now)
        case .wait(let reason, let until):
            // If it were asked again at once, its plan would be the same.
            postpone(claim, until: until > now ? until : now + .seconds(1), for: reason)
        case .park: queue.park(claim) { [inbox] in inbox.put(.waitNotStored($0)) }
        }
    }

    /// The message of a claim that a probe carries: the first one of any lane. If it were the first of all, a row of
    /// messages that are refused would keep those after it waiting for as many probes, and these become rare. Each lane
    /// counts once: a long one behind a refused message is no reason to try that more often.
    private func probe(of claim: Claim) -> Message {
        var lanes: Set<Lane> = []
        let first = claim.messages.filter { $0.lane == .none || lanes.insert($0.lane).inserted }
        return first[min(Int(random() * Double(first.count)), first.count - 1)]
    }

    /// Messages that wait for a held endpoint become due in any order, for the same reason.
    private func spread(_ until: Timestamp, at endpoint: String, now: Timestamp) -> Timestamp {
        guard machine.health.endpoints[endpoint]?.hold != nil else { return until }
        return until + min(until - now, UpstreamHealth.probePause) * random()
    }

    func postpone(_ claim: Claim, until dueAt: Timestamp, for reason: WaitReason? = nil) {
        queue.postpone(claim, until: dueAt, for: reason) { [inbox] in inbox.put(.waitNotStored($0)) }
    }

    func waitNotStored(_ error: StoreError) {
        if error != .closed { _ = storeFailed(&claimRetry, "cannot store a wait", error) }
    }

    func context(now: Timestamp, token: Token?, _ state: any UpstreamState) -> PlanContext {
        PlanContext(now: now, token: token, state: state, flushedThrough: machine.flushedThrough)
    }

    private func send(_ request: UpstreamRequest, carrying count: Int, of claim: Claim, now: Timestamp) {
        var carried = claim.messages
        if count < carried.count {
            queue.giveBack(claim.narrowed(to: Array(carried.dropFirst(count))), now: now)
            carried.removeSubrange(count...)
        }
        var request = request
        request.add(traceParent: carried.commonTraceParent)
        let batch = Batch(id: outbox.nextBatch(), messages: carried, request: request)
        let flight = InFlightBatch(
            batch: batch, claim: claim.narrowed(to: carried), startedAt: time.instant,
            token: machine.tokens.token(at: now), generation: machine.tokens.generation)
        machine.began(flight, now: now)
        outbox.openAttempt(
            batch.id, carrying: carried.map(\.id).sorted(), step: request.step, progress: request.progress, at: now,
            of: queue
        ) { [inbox] in
            inbox.put(.opened(flight, $0))
        }
    }

    /// The row that records the request is on disk, so the request may be sent.
    func opened(_ flight: InFlightBatch, _ result: Result<Void, StoreError>) {
        if case .success = result { storeSucceeded(&claimRetry) }
        switch result {
        case .success where !machine.isStopping && mayStillSend("a request was not sent"): submit(flight)
        case .success: perform(machine.unsent(flight, now: time.now), for: flight)
        case .failure(.closed): machine.abandoned(flight)
        case .failure(let error):
            let delay = storeFailed(
                &claimRetry, "cannot record a request; it was not sent", error, batch: flight.batch.id)
            _ = machine.unsent(flight, now: time.now)
            machine.ended()
            postpone(flight.claim, until: time.now + delay)
        }
    }

    /// Whether another gateway cannot have taken over the store meanwhile. If it can, nothing is claimed for a while.
    func mayStillSend(_ consequence: Logger.Message) -> Bool {
        guard !outbox.mayStillSend else { return true }
        let error = StoreError.unavailable(detail: "this gateway may not own the store any more")
        _ = storeFailed(&claimRetry, consequence, error)
        return false
    }

    private func submit(_ planned: InFlightBatch) {
        var flight = planned
        flight.batch = currentBatch(of: planned)
        guard let request = flight.batch.request else { return }
        metrics.batchMessages(queue.name.description).observe(Double(flight.batch.messages.count))
        outbox.events.record(Event(.batchSent, queue.name, ids: flight.batch.messages.map(\.id)))
        client.transport.submit(compressed(request), options: client.options) { [inbox, flight] result in
            inbox.put(.answered(flight, result))
        }
    }

    /// Recording the request may have taken a while, and the time in a signature is that of sending.
    private func currentBatch(of flight: InFlightBatch) -> Batch {
        let batch = flight.batch
        guard time.instant - flight.startedAt >= .seconds(1), let sign = batch.request?.signedAgain else {
            return batch
        }
        var request = sign(time.now)
        request.add(traceParent: batch.messages.commonTraceParent)
        return Batch(id: batch.id, messages: batch.messages, request: request)
    }

    private func compressed(_ request: UpstreamRequest) -> UpstreamRequest {
        guard request.gzip else { return request }
        var request = request
        request.body = Gzip.compress(request.body)
        request.headers.append(("Content-Encoding", "gzip"))
        return request
    }

    // MARK: Settling without a request

    private func settleUnsent(
        _ count: Int, of claim: Claim, as state: MessageState, reason: String, _ steps: [StepResult],
        _ changes: StateChanges?, now: Timestamp
    ) {
        let batch = Batch(id: outbox.nextBatch(), messages: Array(claim.messages.prefix(count)))
        var settlement = Settlement(batch: batch.id, outcome: .unsent, detail: reason, endedAt: now)
        settlement.steps = steps
        if state == .delivered {
            settlement.delivered = batch.messages
            settlement.result = steps.result
        } else {
            let error = AttemptError(.refused, detail: reason, at: now)
            settlement.ended = batch.messages.map { .init($0, as: state, error: error, result: steps.result) }
        }
        // Its lanes continue only after the commit, so that the rest is planned by the state that it leaves.
        let rest = Array(claim.messages.dropFirst(count))
        if !rest.isEmpty { settlement.again = [.init(rest, dueAt: now, history: claim.history)] }
        settle(unsent: batch, of: claim, settlement, changes)
    }

    private func settle(
        unsent batch: Batch, of claim: Claim, _ settlement: Settlement, _ changes: StateChanges? = nil
    ) {
        machine.beganUnsent()
        record(
            settlement,
            of: InFlightBatch(
                batch: batch, claim: claim.narrowed(to: batch.messages), startedAt: time.instant, changes: changes))
    }
}

extension [Message] {
    /// The trace that all of them belong to. A request has room for one.
    var commonTraceParent: String? {
        guard let first = first?.traceParent else { return nil }
        return allSatisfy { $0.traceParent == first } ? first : nil
    }
}
