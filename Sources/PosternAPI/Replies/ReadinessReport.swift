import PosternCore
import PosternStore
import Synchronization

/// Whether the gateway accepts messages, and what an operator should know in either case.
struct ReadinessReport: Equatable {
    /// Why the gateway is not ready; empty if it is.
    private(set) var reasons: [String] = []
    /// What deserves attention although messages are accepted.
    private(set) var notes: [String] = []

    var isReady: Bool { reasons.isEmpty }

    /// Of a gateway that does not own its store.
    init(reason: String) { reasons = [reason] }

    /// `makesRoom`: whether every queue drops its oldest messages for new ones, so that a full disk rejects none.
    init(isDraining: Bool, failure: StoreError?, makesRoom: Bool, stalledWorkers: [String]) {
        if isDraining { reasons.append("draining") }
        switch failure {
        case .full where makesRoom: notes.append("the disk is full; the oldest messages are dropped for new ones")
        case let failure?: reasons.append("store: \(failure)")
        case nil: break
        }
        reasons += stalledWorkers.map { "worker \($0) is stalled" }
    }

    /// - Parameter caller: Is told that a worker of an upstream is stalled that it may not use, and not of which one.
    init(_ context: APIContext, for caller: Caller? = nil) {
        let hidden = Set(context.upstreams.map(\.name).filter { caller?.mayUse($0) == false }.map(\.description))
        self.init(
            isDraining: context.isDraining.load(ordering: .acquiring), failure: context.outbox.failure,
            makesRoom: context.upstreams.allSatisfy { $0.queue.cap.whenFull == .dropOldest },
            stalledWorkers: context.stalledWorkers().map { hidden.contains($0) ? "of another upstream" : $0 })
    }

    private var status: String { isReady ? "ready" : "unready" }

    /// Without reasons and notes, which name upstreams and files.
    var statusJSON: String { JSONWriter.object { $0.string("status", status) } }

    var json: String {
        JSONWriter.object { json in
            json.string("status", status)
            if !isReady { json.raw("reasons", JSONWriter.array(reasons.map(JSONEscapes.quoted))) }
            if !notes.isEmpty { json.raw("notes", JSONWriter.array(notes.map(JSONEscapes.quoted))) }
        }
    }
}
