import PosternCore

/// What one reading of a response amounts to: the verdict, and the state changes that go with it. `Upstream.judge` and
/// `Upstream.changes` each take their part.
struct Decision: Equatable {
    var judgement: Judgement
    var changes: [StateChange]

    init(
        _ verdict: Verdict, changes: [StateChange] = [], notice: String? = nil, reason: String? = nil,
        tookNothing: Bool = false, refusal: [UInt8]? = nil
    ) {
        judgement = Judgement(verdict, notice: notice, reason: reason, tookNothing: tookNothing, refusal: refusal)
        self.changes = changes
    }
}
