import PosternCore
import PosternJSON

/// StreamOne's video platform, version 3 of its API: calls that are queued, and calls that are answered at once.
///
/// Writes of one account or customer keep their order; each is a request of its own, signed when it is sent.
struct StreamOneUpstream: Upstream {
    let name: UpstreamName
    let kinds: [Kind] = ["call"]
    let laneRule = LaneRule.separate
    let hasSessions = true
    let missingSettings: [String]
    let secrets: [String]
    let resources: [Resource]

    private let platform: StreamOnePlatform
    private let actions: StreamOneActions
    private let lengths: StreamOnePause.Lengths
    // What this run knows: written by calls of both ways, and safe to lose.
    private let cache: StreamOneCache
    private let gate: StreamOneGate

    // MARK: Accepting

    func admit(_ payload: JSONValue, of kind: Kind, in context: AdmissionContext) throws(InvalidPayload) -> Admission {
        let call = try StreamOneCall(payload, defaultAccount: platform.defaultAccount)
        let direct = "/v1/\(name)/proxy/\(call.command)/\(call.action)"
        switch actions.nature(of: call) {
        case .write: return Admission(lane: .named(Self.lane(of: call.scope)))
        case .read:
            throw InvalidPayload([PayloadFault("/action", "only reads, and reads are not queued: use \(direct)")])
        case .session:
            throw InvalidPayload([PayloadFault("/command", "is never queued: use /v1/\(name)/sessions")])
        }
    }

    /// A call about several accounts keeps the order of the first.
    private static func lane(of scope: StreamOneScope) -> String {
        switch scope {
        case .none: "none"
        case .accounts(let accounts): "account/\(accounts[0])"
        case .customer(let customer): "customer/\(customer)"
        }
    }

    private static func account(ofLane lane: Lane) -> String? {
        guard case .named(let name, _) = lane, name.hasPrefix("account/") else { return nil }
        return String(name.dropFirst("account/".count))
    }

    // MARK: Sending

    func limits(_ configured: BatchLimits) -> BatchLimits {
        BatchLimits(maxMessages: 1, maxBytes: configured.maxBytes)
    }

    func plan(for messages: [Message], in context: PlanContext) -> Plan {
        guard let call = call(of: messages[0]) else {
            // Not what was admitted: a default account or a list of actions cannot make it so.
            return .settle(count: 1, as: .failed, reason: "the stored call cannot be read", changes: [])
        }
        if let pause = StreamOnePause(in: context.state), pause.reason == .rateLimited, pause.until > context.now {
            return .wait(.circuit, until: pause.until)
        }
        return .send(platform.request(for: call, at: context.now), count: 1)
    }

    func judge(_ response: UpstreamResponse, to batch: Batch, in context: PlanContext) -> Judgement {
        guard let call = call(of: batch.messages[0]) else { return Judgement(.reject(reason: "cannot be read")) }
        let judgement = StreamOneJudge(
            call: call, wasTried: batch.messages[0].wasTried, pause: StreamOnePause(in: context.state),
            lengths: lengths, now: context.now
        ).judge(response)
        tell(judgement, of: call, response)
        return judgement
    }

    /// What calls that are answered at once have to know of it; to say it twice does no harm.
    private func tell(_ judgement: Judgement, of call: StreamOneCall, _ response: UpstreamResponse) {
        let answer = StreamOneAnswer(response)
        switch answer?.status.meaning {
        case .ok, .fault, .settledBefore, nil: cache.invalidate(call.command, call.scope)
        case .denied: cache.forgetRights(of: nil)
        default: break
        }
        if answer?.isSuccess ?? false { gate.open(.actor) }
        for case .set(StreamOnePause.key, let value, _) in judgement.changes {
            guard let pause = StreamOnePause(stored: value), pause.holdsActor else { continue }
            gate.close(.actor, as: pause)
        }
    }

    /// What was accepted is what is sent: the default account of that time stands in the lane.
    private func call(of message: Message) -> StreamOneCall? {
        let read = JSONParser.ofThisThread.parse(message.payload) { payload in
            try? StreamOneCall(payload, defaultAccount: Self.account(ofLane: message.lane))
        }
        return (try? read.get()) ?? nil
    }
}

extension StreamOneUpstream {
    static let type = UpstreamType(
        name: "streamone",
        settings: [
            .init(
                "apiUrl", .text, default: .text("https://api.streamonecloud.net"),
                "Where the platform is, with its scheme."),
            .init(
                "authenticationType", .choice(["application", "user"]), default: .text("application"),
                "Who signs; only an application has sessions."),
            .init("id", .text, default: .text(""), "The id of that application or user."),
            .init("psk", .text, default: .text(""), secret: true, "Its pre-shared key."),
            .init(
                "defaultAccountId", .text, default: .text(""),
                "Account of the calls that name neither accounts nor a customer; empty: none."),
            .init(
                "requestCacheSeconds", .integer(0...86400), default: .integer(60),
                "How long cacheable answers, roles and tokens are kept; 0: not at all."),
            .init(
                "requestCacheBytes", .integer(65536...1 << 30), default: .integer(16 << 20),
                "Memory for them; the oldest make room."),
            .init(
                "readActions", .list, default: .list([]),
                "Further actions that only read, as command/action; they may be cached and are not queued."),
            .init(
                "writeActions", .list, default: .list([]),
                "Further actions that write, whatever their names say; they are never cached."),
            .init(
                "readOnlyPauseSeconds", .number(0.01...300), default: .number(30),
                "First pause of the queue while the platform only takes reads; doubles up to ten times as much."),
            .init(
                "rateLimitPauseSeconds", .number(0.01...900), default: .number(60),
                "First pause after the platform blocked the actor or a login's address; doubles up to 15 times as much."
            ),
        ],
        addressSetting: "apiUrl",
        simulated: ["id": "9yC-4pQxT_2a", "psk": "ZYXWVUTSRQPONMLKJIHGFEDCBAzyxwvu"],
        make: { name, settings throws(SettingProblems) in try StreamOneUpstream(name, settings) })

    init(_ name: UpstreamName, _ settings: SettingValues) throws(SettingProblems) {
        var problems: [(setting: String, detail: String)] = []
        var base: BaseURL?
        do {
            base = try BaseURL(settings.text("apiUrl"))
        } catch {
            problems.append(("apiUrl", error.detail))
        }
        var actions: StreamOneActions?
        do throws(SettingProblems) {
            actions = try StreamOneActions(
                reads: settings.list("readActions"), writes: settings.list("writeActions"))
        } catch {
            problems += error.problems
        }
        let account = settings.text("defaultAccountId")
        if account.contains(",") { problems.append(("defaultAccountId", "must have no comma: it is one account")) }
        guard problems.isEmpty, let base, let actions else { throw SettingProblems(problems) }

        let kind = StreamOneActor.Kind(rawValue: settings.text("authenticationType")) ?? .application
        let psk = settings.text("psk")
        let platform = StreamOnePlatform(
            base: base, actor: StreamOneActor(kind: kind, id: settings.text("id")), psk: psk,
            defaultAccount: account.isEmpty ? nil : account)
        let lengths = StreamOnePause.Lengths(
            readOnly: .seconds(settings.number("readOnlyPauseSeconds")),
            rateLimited: .seconds(settings.number("rateLimitPauseSeconds")))
        self.name = name
        self.platform = platform
        self.actions = actions
        self.lengths = lengths
        cache = StreamOneCache(maxBytes: settings.integer("requestCacheBytes"))
        gate = StreamOneGate(lengths)
        missingSettings = ["id", "psk"].filter { settings.text($0).isEmpty }
        secrets = [psk].filter { !$0.isEmpty }
        let desk = StreamOneDesk(
            platform: platform, actions: actions, cache: cache, sessions: StreamOneSessions(of: platform), gate: gate,
            lifetime: .seconds(settings.integer("requestCacheSeconds")))
        resources =
            [StreamOneProxy(desk: desk).resource, StreamOneSDKs(desk: desk).resource] + StreamOneLogin(desk).resources
            + StreamOneRights(desk: desk).resources
    }
}
