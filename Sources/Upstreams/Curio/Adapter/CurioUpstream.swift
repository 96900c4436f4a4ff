public import PosternCore
import PosternUpstreamKit

/// The analytics backend Curio, to which devices report visits, screens, events, and data about push notifications.
///
/// Each visitor has a lane: strictly one request at a time, in the order of acceptance. A recent action is sent alone,
/// screens and events in periodic batches if so configured, and actions that are late or have failed once in offline
/// batches, which contain times (`Item.way`).
struct CurioUpstream: ConfigurableUpstream, BatchingUpstream, AcceptingUpstream, StatefulUpstream,
    TimedKindsUpstream, RoutingUpstream
{
    static let typeName = "curio"
    static let summary = "The analytics backend Curio: sessions, screens, events, push."

    let name: UpstreamName
    let kinds = CurioKind.allCases.map { Kind($0.rawValue) }
    let timedKinds = Set(CurioKind.allCases.filter(\.isBatchable).map { Kind($0.rawValue) })

    let settings: CurioSettings

    init(_ name: UpstreamName, _ settings: CurioSettings) {
        self.name = name
        self.settings = settings
    }

    func limits(_ configured: BatchLimits) -> BatchLimits {
        BatchLimits(
            maxMessages: min(configured.maxMessages, CurioSettings.maxRecords), maxBytes: configured.maxBytes)
    }

    func admit(_ payload: JSONValue, of kind: Kind, in context: AdmissionContext) throws(InvalidPayload) -> Admission {
        guard let kind = CurioKind(kind) else { throw InvalidPayload([PayloadError("", "is of an unknown kind")]) }
        return try settings.admission.admit(payload, of: kind, in: context)
    }

    func accept(_ candidate: PendingMessage, in state: any UpstreamState) throws -> [StateChange] {
        try Acceptance(settings: settings, candidate: candidate, state: state).changes()
    }

    func plan(for messages: [Message], in context: PlanContext) throws -> Plan {
        try Planner(settings: settings, messages: messages, context: context).plan()
    }

    func judge(_ response: UpstreamResponse, to batch: Batch, in context: PlanContext) throws -> Judgement {
        try decision(on: response, to: batch, in: context).judgement
    }

    func changes(after result: TransferResult, to batch: Batch, in context: PlanContext) throws -> [StateChange] {
        guard case .success(let response) = result else { return [] }
        let changes = try decision(on: response, to: batch, in: context).changes
        return try changes.map { try bounded($0, by: batch, in: context) }
    }

    /// What is stored below a session expires with it. If the session has expired before the response, for example because
    /// a message of it was queued again, it expires when its lane is empty.
    private func bounded(_ change: StateChange, by batch: Batch, in context: PlanContext) throws -> StateChange {
        guard case .set(let key, let value, nil) = change, case .named(let lane, _)? = batch.messages.first?.lane,
            let session = Key.session(above: key), try context.state.value(of: session) == nil
        else { return change }
        return .set(key: key, value: value, expiry: StateExpiry(at: context.now, lane: lane))
    }

    private func decision(
        on response: UpstreamResponse, to batch: Batch, in context: PlanContext
    ) throws -> Decision {
        try Answer(response, to: batch, settings: settings, in: context)?.decision ?? Decision(.retry(after: nil))
    }

    let resources = [SessionView.resource]
}

extension UpstreamType {
    /// For `UpstreamRegistry`.
    public static let curio = UpstreamType(CurioUpstream.self)
}
