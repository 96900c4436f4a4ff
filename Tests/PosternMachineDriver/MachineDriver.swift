package import PosternCore
package import PosternUpstream

@testable import PosternDelivery
@testable package import PosternStore

/// The delivery machine without a worker: what it writes for one result.
package enum MachineDriver {
    package static func settlement(
        _ transfer: TransferResult, _ judgement: Judgement?, of batch: Batch, at now: Timestamp
    ) -> Settlement {
        var machine = DeliveryMachine(health: UpstreamHealth(upstream: Circuit(most: 1)))
        let claim = Claim(messages: batch.messages, expired: [], isGroup: false, history: BatchHistory())
        let flight = InFlightBatch(batch: batch, claim: claim, startedAt: MonotonicInstant(nanoseconds: 0))
        machine.began(flight, now: now)
        let actions = machine.answered(
            flight, AttemptResult(transfer, judgement, at: now), others: .later, random: 1)
        for case .record(let settlement) in actions { return settlement }
        preconditionFailure("a result is recorded")
    }
}

extension Message {
    /// Applies the state changes that are stored before `request` is sent.
    package mutating func begin(_ request: UpstreamRequest) {
        guard let next = request.progress, next != progress else { return }
        progress = next
        mayHaveArrived = false
    }

    /// Applies `settlement` to the message that is sent again.
    package mutating func follow(_ settlement: Settlement) {
        if let waiting = settlement.waiting, waiting.messages.contains(where: { $0.id == id }) {
            mayHaveArrived = mayHaveArrived || waiting.mayHaveArrived
            attempts += waiting.counts ? 1 : 0
        }
        for (message, progress) in settlement.progressed where message.id == id { self.progress = progress }
    }
}
