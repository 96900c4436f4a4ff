import PosternCore

/// What a response means in one state of the upstream: the judgement, and the changes that follow.
package struct Outcome: Equatable {
    package var judgement: Judgement
    package var changes: [StateChange]

    package init(
        _ verdict: Verdict, holdsAll: Bool = false, changes: [StateChange] = [], notice: UpstreamNotice? = nil,
        reason: String? = nil, tookNothing: Bool = false, refusal: [UInt8]? = nil, steps: [StepResult] = []
    ) {
        judgement = Judgement(
            verdict, holdsAll: holdsAll, notice: notice, reason: reason, tookNothing: tookNothing, refusal: refusal,
            steps: steps)
        self.changes = changes
    }
}

extension Decision {
    /// One that no state has a part in.
    package init(fixed outcome: Outcome) {
        self.init(outcome.judgement, changes: outcome.changes.isEmpty ? nil : { @Sendable _ in outcome.changes })
    }

    /// The judgement follows from `state`, a snapshot, and the changes from the state at the commit.
    package init(in state: any UpstreamState, _ outcome: @escaping @Sendable (any UpstreamState) -> Outcome) {
        self.init(outcome(state).judgement) { outcome($0).changes }
    }
}
