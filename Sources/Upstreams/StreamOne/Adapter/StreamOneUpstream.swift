import PosternCore
public import PosternUpstream
import StreamOneClient

/// StreamOne's video platform, version 3 of its API: calls that are queued, and calls that are answered at once.
///
/// Writes of one account or customer keep their order; each is a request of its own, signed when it is sent.
struct StreamOneUpstream: ConfigurableUpstream, ProbingUpstream, SDKServingUpstream {
    static let typeName = "streamone"
    static let summary = "Signed calls of StreamOne's video platform, queued or answered at once."
    static let storesCredentials = true

    let name: UpstreamName
    let kinds: [Kind] = ["call"]
    let traits: Traits
    let settings: StreamOneSettings
    let sdk: SDKEndpoints?

    private let platform: StreamOnePlatform
    private let actions: ActionCatalog
    /// Makes the calls that are answered at once. Its state in memory, which calls of both kinds write, may be lost.
    private let client: Client

    init(_ name: UpstreamName, _ settings: StreamOneSettings) {
        self.name = name
        self.settings = settings
        platform = StreamOnePlatform(
            base: settings.apiURL, actor: StreamOneActor(kind: settings.authentication, id: settings.id),
            psk: settings.psk, defaultAccount: settings.defaultAccount.isEmpty ? nil : settings.defaultAccount)
        actions = ActionCatalog(
            reads: settings.readActions, writes: settings.writeActions, queued: settings.sdkQueueActions)
        client = Client(platform, actions, cache: settings.cache, pauses: settings.pauses)
        traits = Traits { [client] traits in
            traits.hasSessions = true
            traits.routes = client.routes
        }
        sdk = settings.sdk.isEnabled ? client.sdkEndpoints(settings.sdk, of: name) : nil
    }

    func probe(in context: any UpstreamRouteContext) async -> ProbeReport { await client.probe(context) }

    // MARK: Accepting

    func validate(_ payload: JSONValue, of kind: Kind, in context: ValidationContext) throws(InvalidPayload)
        -> ValidPayload
    {
        let call = try StreamOneCall(
            payload, defaultAccount: platform.defaultAccount, maxFaults: context.maxFaults, .checked)
        let direct = "/v1/\(name)/proxy/\(call.command)/\(call.action)"
        switch actions.nature(of: call) {
        case .write: return ValidPayload(lane: .named(call.scope.lane))
        case .read:
            throw InvalidPayload([PayloadError("/action", "only reads, and reads are not queued: use \(direct)")])
        case .session:
            throw InvalidPayload([PayloadError("/command", "is never queued: use /v1/\(name)/sessions")])
        }
    }

    private static func account(ofLane lane: Lane) -> String? {
        guard case .named(let name, _) = lane, name.hasPrefix("account/") else { return nil }
        return String(name.dropFirst("account/".count))
    }

    // MARK: Sending

    func plan(for messages: [Message], in context: PlanContext) -> Plan {
        guard let call = call(of: messages[0], .whole) else {
            // The payload is not the one that was validated: a changed default account or list of actions cannot cause
            // this.
            return .settle(count: 1, as: .failed, reason: "the stored call cannot be read")
        }
        if let wait = wait(of: messages[0], in: context) { return wait }
        var request = platform.request(for: call, at: context.now)
        request.signedAgain = { [platform] in platform.request(for: call, at: $0) }
        return .send(request, count: 1)
    }

    /// Nil unless the actor is held.
    private func wait(of message: Message, in context: PlanContext) -> Plan? {
        guard let pause = Pause(in: context.state), pause.holds(platform, at: context.now, settings.pauses) else {
            return nil
        }
        guard pause.reason == .authentication else { return .wait(.circuit, until: pause.until) }
        // Like a hold of the upstream, a flush tries at once.
        return context.isFlushed(message) ? nil : .wait(.credentials, until: pause.until)
    }

    func judge(_ response: UpstreamResponse, to batch: Batch, in context: PlanContext) -> Decision {
        guard let call = call(of: batch.messages[0]) else { return Decision(.reject(reason: "cannot be read")) }
        let answer = Answer(response)
        let (mayHaveArrived, lengths, now) = (batch.messages[0].mayHaveArrived, settings.pauses, context.now)
        let stale = client.staleCopies(after: answer, to: call)
        var decision = Decision(in: context.state) { state in
            let judge = Judge(
                call: call, mayHaveArrived: mayHaveArrived, pause: Pause(in: state), lengths: lengths, now: now)
            var outcome = judge.outcome(on: response, answer)
            outcome.changes += stale
            return outcome
        }
        decision.afterwards = { [client] in client.settled(answer, to: call, with: $0) }
        return decision
    }

    /// What was accepted is sent unchanged: the lane contains the default account of that time.
    private func call(of message: Message, _ extent: StreamOneCall.Extent = .addressed) -> StreamOneCall? {
        let read = JSONParser.ofThisThread.parse(message.payload) { payload in
            try? StreamOneCall(payload, defaultAccount: Self.account(ofLane: message.lane), extent)
        }
        return (try? read.get()) ?? nil
    }
}

extension UpstreamType {
    /// For `UpstreamRegistry`.
    public static let streamone = UpstreamType(StreamOneUpstream.self)
}
