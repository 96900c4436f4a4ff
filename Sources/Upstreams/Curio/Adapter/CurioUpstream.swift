import PosternCore
public import PosternUpstream

/// The analytics backend Curio, to which devices report visits, screens, events, and data about push notifications.
///
/// Each visitor has a lane: strictly one request at a time, in the order of acceptance. A recent action is sent alone,
/// screens and events in periodic batches if so configured, and actions that are late or have failed once in offline
/// batches, which contain times (`Item.route`).
struct CurioUpstream: ConfigurableUpstream, BatchingUpstream, StateValidatingUpstream, SDKServingUpstream {
    static let typeName = "curio"
    static let summary = "The analytics backend Curio: sessions, screens, events, push."

    let name: UpstreamName
    let kinds = CurioKind.allCases.map { Kind($0.rawValue) }
    let traits = Traits { traits in
        traits.timedKinds = Set(CurioKind.allCases.filter(\.isBatchable).map { Kind($0.rawValue) })
        traits.routes = [SessionView.resource]
    }

    let settings: CurioSettings

    init(_ name: UpstreamName, _ settings: CurioSettings) {
        self.name = name
        self.settings = settings
    }

    var sdk: SDKEndpoints? { settings.sdk.isEnabled ? CurioSDK(self).endpoints : nil }

    func limits(_ configured: BatchLimits) -> BatchLimits {
        BatchLimits(
            maxMessages: min(configured.maxMessages, CurioSettings.maxRecords), maxBytes: configured.maxBytes)
    }

    func validate(_ payload: JSONValue, of kind: Kind, in context: ValidationContext) throws(InvalidPayload)
        -> ValidPayload
    {
        guard let kind = CurioKind(kind) else { throw InvalidPayload([PayloadError("", "is of an unknown kind")]) }
        return try settings.validation.validate(payload, of: kind, kind.fields, in: context)
    }

    func validate(
        _ candidate: PendingMessage, against state: any UpstreamState
    ) throws(AcceptanceError) -> [StateChange] {
        try Acceptance(settings: settings, candidate: candidate, state: state).changes()
    }

    func plan(for messages: [Message], in context: PlanContext) -> Plan {
        Planner(settings: settings, messages: messages, context: context).plan()
    }

    func judge(_ response: UpstreamResponse, to batch: Batch, in context: PlanContext) -> Decision {
        var request = batch.request
        if request == nil, case .send(let planned, _) = plan(for: batch.messages, in: context) { request = planned }
        let actions = batch.messages.compactMap { Action($0) }
        guard let endpoint = request.flatMap(Endpoint.init(of:)), actions.count == batch.messages.count else {
            return Decision(.retry(after: nil))
        }
        let (now, lane) = (context.now, batch.messages[0].lane)
        return Decision(in: context.state) { [settings] state in
            let items = Item.items(batch.messages, actions, in: state)
            var outcome = Answer(response, from: endpoint, to: items, settings: settings, at: now).outcome
            outcome.changes = outcome.changes.map { Self.bounded($0, by: lane, at: now, in: state) }
            return outcome
        }
    }

    /// What is stored below a session expires with it. If the session has expired before the response, for example because
    /// a message of it was queued again, it expires when its lane is empty.
    private static func bounded(
        _ change: StateChange, by lane: Lane, at now: Timestamp, in state: any UpstreamState
    ) -> StateChange {
        guard case .set(let key, let value, nil) = change, case .named(let lane, _) = lane,
            let session = Key.session(above: key), state.value(of: session) == nil
        else { return change }
        return .set(key: key, value: value, expiry: StateChange.Expiry(at: now, lane: lane))
    }

}

extension UpstreamType {
    /// For `UpstreamRegistry`.
    public static let curio = UpstreamType(CurioUpstream.self)
}
