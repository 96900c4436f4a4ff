import Logging
import PosternCompression
import PosternCore
import PosternMetrics
import PosternStore

extension WorkerLoop {
    /// False when there was nothing to claim, or no way to.
    func claimAndSend() -> Bool {
        let now = time.now
        let claim: Claim
        do {
            claim = try circuit.state == .closed ? nextClaim(now: now) : claimProbe(now: now)
        } catch {
            logger.error("cannot read the queue", metadata: ["upstream": "\(queue.name)", "error": "\(error)"])
            return false
        }
        if !claim.expired.isEmpty { expire(claim, now: now) }
        if !claim.messages.isEmpty { plan(claim, now: now) }
        return !claim.expired.isEmpty || !claim.messages.isEmpty
    }

    private func nextClaim(now: Timestamp) throws -> Claim {
        let oldest = settings.expireAfter > .zero ? now - settings.expireAfter : nil
        return try queue.claim(limits, now: now, oldest: oldest) { [upstream, settings] in
            upstream.limits(settings.limits, ofLane: $0)
        }
    }

    /// A probe is made with messages that have not failed yet, if there are any: one that fails by its own fault would
    /// else spoil every probe, and the others never had a chance to show that the upstream works.
    private func claimProbe(now: Timestamp) throws -> Claim {
        var passedOver: [Claim] = []
        defer { for claim in passedOver { queue.giveBack(claim, now: now) } }
        while passedOver.count < Self.claimsPerTurn {
            let claim = try nextClaim(now: now)
            if claim.isGroup, claim.expired.isEmpty {
                passedOver.append(claim)
            } else if claim.messages.isEmpty, claim.expired.isEmpty {
                break
            } else {
                return claim
            }
        }
        return passedOver.isEmpty ? try nextClaim(now: now) : passedOver.removeFirst()
    }

    private func expire(_ claim: Claim, now: Timestamp) {
        let batch = Batch(id: outbox.nextBatch(), messages: claim.expired)
        var ruling = Ruling(settlement: Settlement(batch: batch.id, outcome: "expired", endedAt: now))
        ruling.settlement.ended = claim.expired.map { .init($0, as: .expired, error: nil) }
        ruling.released = claim.expired
        settle(unsent: batch, of: claim, ruling)
    }

    private func plan(_ claim: Claim, now: Timestamp) {
        let plan: Plan
        do {
            let token = tokens.token(at: now)
            plan = try outbox.withState(of: queue.number) { state in
                try upstream.plan(for: claim.messages, in: context(now: now, token: token, state))
            }
        } catch {
            logger.error("cannot read the state", metadata: ["upstream": "\(queue.name)", "error": "\(error)"])
            return queue.postpone(claim, until: now + Self.storeRetry)
        }
        switch plan {
        case .send(let request, let count): send(request, carrying: count, of: claim, now: now)
        case .settle(let count, let state, let reason):
            settleUnsent(count, of: claim, as: state, reason: reason, now: now)
        case .wait(let reason, let until):
            // Asked again at once it would say the same.
            queue.postpone(claim, until: until > now ? until : now + .seconds(1), for: reason)
        case .park: queue.park(claim)
        }
    }

    func context(now: Timestamp, token: Token?, _ state: any UpstreamState) -> PlanContext {
        PlanContext(now: now, token: token, state: state, flushedThrough: flushedThrough)
    }

    private func send(_ request: UpstreamRequest, carrying count: Int, of claim: Claim, now: Timestamp) {
        let carried = Array(claim.messages.prefix(count))
        let rest = Array(claim.messages.dropFirst(count))
        if !rest.isEmpty { queue.sendAgain(rest, from: now, history: claim.history) }
        let batch = Batch(id: outbox.nextBatch(), messages: carried, request: request)
        let flight = Flight(
            batch: batch, claim: claim.narrowed(to: carried), startedAt: time.instant, token: tokens.token(at: now),
            generation: tokens.generation)
        unsettled += 1
        inFlight += 1
        circuit.sent(now: now)
        depart(batch, now: now)
        metrics.batchMessages(queue.name.description).observe(Double(carried.count))
        transport.submit(compressed(request), options: settings.transfer) { [inbox] result in
            inbox.put(.answered(flight, result))
        }
    }

    private func depart(_ batch: Batch, now: Timestamp) {
        let departure = Departure(batch: batch.id, startedAt: now, ids: batch.messages.map(\.id).sorted())
        // Fire and forget: if the process stops before the next commit, only a counter is lost.
        outbox.openAttempt(departure, of: queue)
    }

    private func compressed(_ request: UpstreamRequest) -> UpstreamRequest {
        guard request.gzip else { return request }
        var request = request
        request.body = Gzip.compress(request.body)
        request.headers.append(("Content-Encoding", "gzip"))
        return request
    }

    private func settleUnsent(
        _ count: Int, of claim: Claim, as state: MessageState, reason: String, now: Timestamp
    ) {
        let batch = Batch(id: outbox.nextBatch(), messages: Array(claim.messages.prefix(count)))
        var ruling = Ruling(settlement: Settlement(batch: batch.id, outcome: "unsent", detail: reason, endedAt: now))
        ruling.changes = changes(settling: batch.messages, as: state, now: now)
        if state == .delivered {
            ruling.settlement.delivered = batch.messages
        } else {
            let error = AttemptError(.refused, detail: reason, at: now)
            ruling.settlement.ended = batch.messages.map { .init($0, as: state, error: error) }
        }
        ruling.released = batch.messages
        // Its lanes go on only after it, so that the rest is planned by the state it leaves.
        let rest = Array(claim.messages.dropFirst(count))
        if !rest.isEmpty { ruling.again = [.init(messages: rest, dueAt: now, history: claim.history)] }
        settle(unsent: batch, of: claim, ruling)
    }

    private func changes(
        settling messages: [Message], as end: MessageState, now: Timestamp
    ) -> @Sendable (any UpstreamState) throws -> [StateChange] {
        let (token, flushedThrough) = (tokens.token(at: now), flushedThrough)
        return { [upstream] state in
            let context = PlanContext(now: now, token: token, state: state, flushedThrough: flushedThrough)
            return try upstream.changes(settling: messages, as: end, in: context)
        }
    }

    private func settle(unsent batch: Batch, of claim: Claim, _ ruling: Ruling) {
        unsettled += 1
        record(
            ruling,
            of: Flight(batch: batch, claim: claim.narrowed(to: batch.messages), startedAt: time.instant))
    }
}

extension BatchID {
    var number: Int { Int(rawValue) }
}
