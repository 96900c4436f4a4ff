import PosternCore
import PosternDelivery
import PosternEvents
import PosternHTTP
import PosternStore
import PosternThreads
import PosternUpstream

/// Shows upstreams and changes their state.
struct UpstreamHandler: Sendable {
    let context: APIContext

    func list(_ responder: MeteredResponder) {
        guard let query = readQuery(responder) else { return }
        context.read(responder, isQuick: true) { [self] () throws(StoreError) in
            let upstreams = context.upstreams
            // As of one commit, so that the counts of several upstreams belong together.
            let ledgers = context.outbox.ledgers
            func isVisible(_ name: UpstreamName) -> Bool { responder.caller?.mayUse(name) ?? true }
            let configured = upstreams.filter { isVisible($0.name) }
                .map { (name: $0.name, text: describe($0, ledgers[$0.queue.number], query: nil)) }
            let disabled = try context.disabledUpstreams(besides: upstreams).filter { isVisible($0.name) }
                .map { (name: $0.name, text: describe($0, ledgers[$0.number], query: nil)) }
            let texts = (configured + disabled).sorted { $0.name < $1.name }.map(\.text)
            return .json(
                200,
                JSONWriter.object { json in
                    json.raw("upstreams", JSONWriter.array(texts))
                    if query.includesHistory {
                        json.raw("history", context.history.json(since: query.since, isShown: isVisible))
                    }
                })
        }
    }

    /// What happened to the upstreams in the last hour.
    func history(_ responder: MeteredResponder) {
        guard let query = readQuery(responder) else { return }
        context.readers.runSoon { [context] in
            let text = context.history.json(since: query.since) { responder.caller?.mayUse($0) ?? true }
            responder.send(.json(200, text))
        }
    }

    /// Nil if the query is not valid; the response says so.
    private func readQuery(_ responder: MeteredResponder) -> HistoryQuery? {
        do throws(Problem) {
            return try HistoryQuery(responder.request.query)
        } catch {
            responder.send(error)
            return nil
        }
    }

    /// An upstream that is disabled or no longer configured can be read and not changed.
    func answerForDisabled(_ name: UpstreamName, isRead: Bool, _ responder: MeteredResponder) {
        guard isRead else {
            return responder.send(
                Problem(
                    slug: .conflict, status: 409,
                    detail: "\(name) is disabled or no longer configured. Its messages wait until it is enabled again, "
                        + "or can be cancelled; nothing was changed."))
        }
        guard let query = readQuery(responder) else { return }
        context.read(responder, isQuick: true) { [self] () throws(StoreError) in
            guard let found = try context.outbox.disabledUpstreams(besides: []).first(where: { $0.name == name }) else {
                // The upstream's last message has just been settled.
                return RoutingProblem.unknownUpstream(name.description).problem(in: context, for: responder.caller)
                    .response(to: responder.head)
            }
            return .json(200, describe(found, found.ledger, query: query))
        }
    }

    func show(_ upstream: ConfiguredUpstream, _ responder: MeteredResponder) {
        guard let query = readQuery(responder) else { return }
        context.readers.runSoon { [self] in
            let ledger = context.outbox.ledger(of: upstream.queue.number)
            responder.send(.json(200, describe(upstream, ledger, query: query)))
        }
    }

    /// The result of one request to the upstream, and the messages that it carried.
    func show(_ batch: BatchID, of upstream: ConfiguredUpstream, _ responder: MeteredResponder) {
        context.read(responder) { [context] () throws(StoreError) in
            guard let found = try context.outbox.batch(batch, of: upstream.queue.number) else {
                return Problem(
                    slug: .notFound, status: 404,
                    detail: "No such request went to \(upstream.name), or it is kept no longer."
                ).response(to: responder.head)
            }
            return .json(200, MessageJSON.receipt(found, of: upstream.adapter))
        }
    }

    func perform(_ action: UpstreamAction, on upstream: ConfiguredUpstream, _ responder: MeteredResponder) {
        if action == .flush, let seconds = Preferences(responder.head).wait {
            return flush(upstream, seconds: seconds, responder)
        }
        let key = responder.caller?.key.name
        upstream.served.steer(action, in: context.outbox, by: key, at: context.time.now)
        let event: EventType? =
            switch action {
            case .pause: .upstreamPaused
            case .resume: .upstreamResumed
            // Its end is told.
            case .flush: nil
            }
        if let event {
            context.outbox.events.record(Event(event, upstream.name, by: key), isOrdered: true)
        }
        responder.send(
            .json(
                202,
                JSONWriter.object { json in
                    json.string("upstream", upstream.name.description)
                    json.string("action", action.rawValue)
                    json.number("queued", context.outbox.ledger(of: upstream.queue.number).queued)
                }))
    }

    /// Holds the response until the flush is over.
    private func flush(_ upstream: ConfiguredUpstream, seconds: Int, _ responder: MeteredResponder) {
        let answer = FlushReply(upstream, seconds: seconds, responder, context)
        context.pendingReplies.hold(answer, seconds: seconds)
        upstream.served.steer(.flush, in: context.outbox, at: context.time.now) { [context] report in
            // Without a report it goes on, and this process does not know until when.
            if let report { answer.ended(report) }
            context.pendingReplies.release(answer)
        }
    }

    private func describe(_ upstream: ConfiguredUpstream, _ ledger: Ledger?, query: HistoryQuery?) -> String {
        describe(
            upstream.name, type: upstream.type, upstream.queue.number, ledger ?? .empty,
            upstream.snapshot(in: context), kinds: upstream.kinds.map(\.text), mask: upstream.adapter.mask, query)
    }

    private func describe(_ upstream: UpstreamSummary, _ ledger: Ledger?, query: HistoryQuery?) -> String {
        describe(
            upstream.name, type: upstream.type, upstream.number, ledger ?? .empty, .disabled, kinds: [], mask: nil,
            query)
    }

    private func describe(
        _ name: UpstreamName, type: String, _ number: UpstreamNumber, _ ledger: Ledger, _ snapshot: UpstreamSnapshot,
        kinds: [String], mask: SecretMask?, _ query: HistoryQuery?
    ) -> String {
        JSONWriter.object { json in
            json.string("name", name.description)
            json.string("type", type)
            json.string("health", snapshot.health.rawValue)
            if let owner = context.outbox.ownerName(of: number) { json.string("owner", owner) }
            writeBacklog(of: number, ledger, to: &json)
            json.decimal("drainSeconds", context.drainSeconds(of: name, ledger, snapshot))
            json.number("inFlight", snapshot.inFlight)
            json.object("circuit") { circuit in
                circuit.string("state", snapshot.circuit.name)
                circuit.time("reopensAt", snapshot.reopensAt)
            }
            json.raw("endpoints", JSONWriter.array(snapshot.endpoints.map { Self.describe($0, mask) }))
            if let token = snapshot.token {
                json.object("token") { text in
                    text.flag("valid", token.isValid)
                    text.time("expiresAt", token.expiresAt)
                }
            } else {
                json.raw("token", "null")
            }
            json.time("lastSuccessAt", snapshot.lastSuccessAt)
            json.raw("lastError", snapshot.lastError.map(MessageJSON.error) ?? "null")
            json.raw("kinds", JSONWriter.array(kinds.map(JSONEscapes.quoted)))
            LedgerJSON.writeCounts(ledger, into: &json)
            LedgerJSON.writeKept(ledger, into: &json)
            json.raw("pausedBy", snapshot.pause.flatMap { Self.describe($0) } ?? "null")
            if let query, query.includesHistory {
                json.raw("history", context.history.json(since: query.since) { $0 == name })
            }
        }
    }

    /// Nil if it is not known who has paused the upstream.
    private static func describe(_ pause: Pause) -> String? {
        pause.at.map { at in
            JSONWriter.object { json in
                json.string("key", pause.key)
                json.time("at", at)
            }
        }
    }

    /// An endpoint of the upstream that waits alone.
    private static func describe(_ endpoint: UpstreamSnapshot.EndpointWait, _ mask: SecretMask?) -> String {
        JSONWriter.object { json in
            json.string("name", mask?.masked(endpoint.name) ?? endpoint.name)
            json.string("waitingFor", endpoint.waitingFor.rawValue)
            json.time("reopensAt", endpoint.until)
            json.raw("lastError", endpoint.lastError.map(MessageJSON.error) ?? "null")
        }
    }

    private func writeBacklog(of number: UpstreamNumber, _ ledger: Ledger, to json: inout JSONWriter) {
        let oldest = ledger.queued > 0 ? try? context.outbox.oldestQueued(of: number) : nil
        json.number("queued", ledger.queued)
        json.number("queuedBytes", ledger.queuedBytes)
        json.decimal("oldestQueuedSeconds", oldest.map { (context.time.now - $0).inSeconds } ?? 0)
    }
}

/// `include=history` and `since`.
private struct HistoryQuery {
    let includesHistory: Bool
    /// Nil means all that is known.
    let since: Timestamp?

    init(_ query: QueryReader) throws(Problem) {
        var query = query
        includesHistory = query.value("include", "must be history") { $0 == "history" ? true : nil } ?? false
        since = query.value("since", MessageFilter.timeRule) { Timestamp(rfc3339: $0) }
        try query.check()
    }
}

extension Circuit.State {
    var name: String {
        switch self {
        case .closed: "closed"
        case .open: "open"
        case .halfOpen: "half-open"
        }
    }

    /// The names of all states.
    static let names = ["closed", "open", "half-open"]
}
