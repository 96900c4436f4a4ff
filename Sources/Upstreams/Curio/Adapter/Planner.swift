import PosternCore
import PosternUpstream

/// What to do with the oldest messages of a visitor (the specification's 5.2 to 5.4).
struct Planner {
    let settings: CurioSettings
    let messages: [Message]
    let context: PlanContext

    func plan() -> Plan {
        guard let first = item(0) else {
            return .settle(count: 1, as: .failed, reason: "the payload is none that this version knows")
        }
        switch route(first) {
        case .never(let reason):
            let count = run { route($0) == .never(reason: reason) }.count
            return .settle(count: count, as: .failed, reason: reason)
        case .online:
            let mustBeCreated = first.action.kind != .sessionStart && first.remote.mustBeCreated
            let request = mustBeCreated ? first.creation(settings.requests) : first.request(settings.requests)
            return send(request, count: 1)
        case .periodic: return periodic(first)
        case .offline:
            let batch = OfflineBatch(run { route($0) == .offline })
            return send(batch.request(settings.requests), count: batch.count)
        }
    }

    // MARK: Screens and events of one session, once in a period

    private func periodic(_ first: Item) -> Plan {
        let run = run { route($0) == .periodic && $0.action.session == first.action.session }
        if let until = wait(for: run) { return .wait(.schedule, until: until) }
        guard !first.remote.mustBeCreated else { return send(first.creation(settings.requests), count: run.count) }
        let records = run.flatMap { item in
            item.records(session: first.remote.recordCode(of: first.action.session, for: item.message.id))
        }
        return send(settings.requests.periodic(records, at: first.reference), count: run.count)
    }

    /// The end of the oldest one's period; nil if they are sent at once, because a batch is full, a later action does
    /// not wait, an operator has requested it, or the clock was set back since the oldest one was accepted.
    private func wait(for run: [Item]) -> Timestamp? {
        guard let first = run.first, let period = settings.dispatchPeriod,
            // An SDK has collected these.
            !run.contains(where: { $0.action.sentIn != nil })
        else { return nil }
        // A session whose own timeout is shorter would die before.
        let end = first.message.acceptedAt + min(period, first.session.map(settings.timeout) ?? period)
        guard first.message.acceptedAt <= context.now, context.now < end, run.count < CurioSettings.maxRecords,
            run.count == messages.count,
            !context.isFlushed(first.message)
        else { return nil }
        // What did not fit into the claim may not wait either.
        let queued = context.state.queued(inLane: first.action.visitor, atMost: messages.count + 1)
        return queued > messages.count ? nil : end
    }

    // MARK: Parts

    private func item(_ index: Int) -> Item? { Item(messages[index], in: context.state) }

    private func route(_ item: Item) -> Item.Route { item.route(settings, now: context.now) }

    /// The first messages, as long as they are sent together.
    private func run(while belongs: (Item) -> Bool) -> [Item] {
        var run: [Item] = []
        var opens: Set<MessageID> = []
        for message in messages.prefix(CurioSettings.maxRecords) {
            guard let item = Item(message, after: run.last, behind: opens, in: context.state), belongs(item)
            else { break }
            if case .open = item.action.content { opens.insert(message.id) }
            run.append(item)
        }
        return run
    }

    private func send(_ request: UpstreamRequest?, count: Int) -> Plan {
        guard let request else {
            return .settle(count: 1, as: .failed, reason: "what it needs of its session is forgotten")
        }
        return .send(request, count: count)
    }
}

/// Actions of one visitor that are sent together, with their own times, whether or not their sessions are alive.
struct OfflineBatch {
    /// How many messages it carries.
    let count: Int
    /// Sessions whose start it contains, by the caller's code, with the code that they get.
    let started: [String: String]
    private let records: [Record]
    private let items: [Item]

    /// As many of `items` as fit in one request: with one device block and timeout, and at most 250 records.
    init(_ items: [Item]) {
        var records: [Record] = []
        var started: [String: String] = [:]
        var taken: [Item] = []
        for item in items {
            guard item.device == items[0].device, item.timeoutMinutes == items[0].timeoutMinutes else { break }
            let (own, code) = Self.records(of: item, started[item.action.session])
            guard taken.isEmpty || records.count + own.count <= CurioSettings.maxRecords else { break }
            records += own
            started[item.action.session] = code
            taken.append(item)
        }
        count = taken.count
        self.started = started
        self.records = records
        self.items = taken
    }

    func request(_ requests: Requests) -> UpstreamRequest? {
        guard let first = items.first, let device = first.device else { return nil }
        return requests.offline(
            records, of: first.action.visitor, device, timeoutMinutes: first.timeoutMinutes)
    }

    /// The session that the last record leaves open, if any, and its code there.
    var openSession: (caller: String, code: String)? {
        guard let last = items.last, last.action.kind != .sessionEnd, let record = records.last else { return nil }
        return (last.action.session, record.session)
    }

    /// The start of a session that is new to the upstream precedes its actions.
    private static func records(of item: Item, _ started: String?) -> (records: [Record], code: String?) {
        if let started, item.action.kind != .sessionStart { return (item.records(session: started), started) }
        if item.action.kind == .sessionStart {
            let code = item.remote.codeToCreate(item.action.session)
            return (item.records(session: code), code)
        }
        guard !item.remote.isStarted, let session = item.session else {
            let code = item.remote.recordCode(of: item.action.session, for: item.message.id)
            return (item.records(session: code), nil)
        }
        let code = item.remote.codeToCreate(item.action.session)
        let start = Record(step: .sessionStart, timestamp: session.startedAt, session: code)
        return ([start] + item.records(session: code), code)
    }
}
