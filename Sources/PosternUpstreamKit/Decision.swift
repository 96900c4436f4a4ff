package import PosternCore

/// The interpretation of a response: the verdict, and the state changes that follow. `Upstream.judge` and
/// `Upstream.changes` each return one of the two.
package struct Decision: Equatable {
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
