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
        context.read(responder, isQuick: true) { [self] () throws(StoreError) in
            let upstreams = context.upstreams
            func isVisible(_ name: UpstreamName) -> Bool { responder.caller?.mayUse(name) ?? true }
            let configured = upstreams.filter { isVisible($0.name) }.map { (name: $0.name, text: describe($0)) }
            let disabled = try context.disabledUpstreams(besides: upstreams).filter { isVisible($0.name) }
                .map { (name: $0.name, text: describe($0)) }
            let texts = (configured + disabled).sorted { $0.name < $1.name }.map(\.text)
            return .json(200, JSONWriter.object { $0.raw("upstreams", JSONWriter.array(texts)) })
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
        context.read(responder, isQuick: true) { [self] () throws(StoreError) in
            guard let found = try context.outbox.disabledUpstreams(besides: []).first(where: { $0.name == name }) else {
                // The upstream's last message has just been settled.
                return RoutingProblem.unknownUpstream(name.description).problem(in: context, for: responder.caller)
                    .response(to: responder.head)
            }
            return .json(200, describe(found))
        }
    }

    func show(_ upstream: ConfiguredUpstream, _ responder: MeteredResponder) {
        context.readers.runSoon { [self] in responder.send(.json(200, describe(upstream))) }
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
            answer.ended(report)
            context.pendingReplies.release(answer)
        }
    }

    private func describe(_ upstream: ConfiguredUpstream) -> String {
        describe(
            upstream.name, type: upstream.type, number: upstream.queue.number, upstream.snapshot(in: context),
            kinds: upstream.kinds.map(\.text), mask: upstream.adapter.mask)
    }

    private func describe(_ upstream: UpstreamSummary) -> String {
        describe(upstream.name, type: upstream.type, number: upstream.number, .disabled, kinds: [])
    }

    private func describe(
        _ name: UpstreamName, type: String, number: UpstreamNumber, _ snapshot: UpstreamSnapshot, kinds: [String],
        mask: SecretMask? = nil
    ) -> String {
        JSONWriter.object { json in
            json.string("name", name.description)
            json.string("type", type)
            json.string("health", snapshot.health.rawValue)
            writeBacklog(of: number, to: &json)
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

    private func writeBacklog(of number: UpstreamNumber, to json: inout JSONWriter) {
        let ledger = context.outbox.ledger(of: number)
        let oldest = ledger.queued > 0 ? try? context.outbox.oldestQueued(of: number) : nil
        json.number("queued", ledger.queued)
        json.number("queuedBytes", ledger.queuedBytes)
        json.decimal("oldestQueuedSeconds", oldest.map { (context.time.now - $0).inSeconds } ?? 0)
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
