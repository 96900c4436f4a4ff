import Logging
import PosternCore
import PosternDelivery
import PosternHTTP
import PosternStore

/// How the upstreams are, and steering them.
struct UpstreamHandler: Sendable {
    private let gateway: Gateway

    init(_ gateway: Gateway) { self.gateway = gateway }

    func list(_ reply: Reply) {
        gateway.readers.runSoon { [self] in
            do throws(StoreError) {
                let configured = gateway.targets(for: reply.caller).map { (name: $0.name, text: describe($0)) }
                let disabled = try gateway.outbox.disabledUpstreams()
                    .filter { reply.caller?.mayUse($0.name) ?? true }
                    .map { (name: $0.name, text: describe($0)) }
                let texts = (configured + disabled).sorted { $0.name < $1.name }.map(\.text)
                reply.send(.json(200, JSONText.object { $0.raw("upstreams", JSONText.array(texts)) }))
            } catch {
                gateway.logger.error("cannot read the store", metadata: ["error": "\(error)"])
                reply.send(Problem(slug: .internal, status: 500, detail: "The store cannot be read; the log says why."))
            }
        }
    }

    /// An upstream that is disabled or no longer configured can be looked at, and nothing else.
    func answerForDisabled(_ name: UpstreamName, isRead: Bool, _ reply: Reply) {
        guard isRead else {
            return reply.send(
                Problem(
                    slug: .conflict, status: 409,
                    detail: "\(name) is disabled or no longer configured. Its messages wait until it is enabled again, "
                        + "or can be cancelled; nothing was changed."))
        }
        gateway.readers.runSoon { [self] in
            do throws(StoreError) {
                guard let found = try gateway.outbox.disabledUpstreams().first(where: { $0.name == name }) else {
                    // Its last message has just been settled.
                    return reply.send(
                        RoutingProblem.unknownUpstream(name.description).problem(in: gateway, for: reply.caller))
                }
                reply.send(.json(200, describe(found)))
            } catch {
                gateway.logger.error("cannot read the store", metadata: ["error": "\(error)"])
                reply.send(Problem(slug: .internal, status: 500, detail: "The store cannot be read; the log says why."))
            }
        }
    }

    func show(_ target: Target, _ reply: Reply) {
        gateway.readers.runSoon { [self] in reply.send(.json(200, describe(target))) }
    }

    /// What became of one request to the upstream, and which messages it carried.
    func show(_ batch: BatchID, of target: Target, _ reply: Reply) {
        gateway.readers.run { [gateway] in
            do throws(StoreError) {
                guard let found = try gateway.outbox.batch(batch, of: target.queue.number) else {
                    return reply.send(
                        Problem(
                            slug: .notFound, status: 404,
                            detail: "No such request went to \(target.name), or it is kept no longer."))
                }
                reply.send(.json(200, MessageText.receipt(found.attempt, of: target.name, carrying: found.ids)))
            } catch {
                gateway.logger.error("cannot read the store", metadata: ["error": "\(error)"])
                reply.send(Problem(slug: .internal, status: 500, detail: "The store cannot be read; the log says why."))
            }
        }
    }

    func perform(_ action: UpstreamAction, on target: Target, _ reply: Reply) {
        switch action {
        case .flush:
            if let seconds = Preferences(reply.head).wait { return flush(target, seconds: seconds, reply) }
            target.worker.flush()
        case .pause: target.worker.pause()
        case .resume: target.worker.resume()
        }
        reply.send(
            .json(
                202,
                JSONText.object { json in
                    json.string("upstream", target.name.description)
                    json.string("action", action.rawValue)
                    json.number("queued", gateway.outbox.ledger(of: target.queue.number).queued)
                }))
    }

    /// Holds the answer until the flush is over.
    private func flush(_ target: Target, seconds: Int, _ reply: Reply) {
        let answer = FlushReply(target, seconds: seconds, reply, gateway)
        gateway.pendingReplies.hold(answer, seconds: seconds)
        target.worker.flush { [gateway] report in
            answer.ended(report)
            gateway.pendingReplies.release(answer)
        }
    }

    private func describe(_ target: Target) -> String {
        let snapshot = target.worker.snapshot
        return JSONText.object { json in
            json.string("name", target.name.description)
            json.string("type", target.type)
            json.string("health", snapshot.health.rawValue)
            writeBacklog(of: target.queue.number, to: &json)
            json.number("inFlight", snapshot.inFlight)
            json.object("circuit") { circuit in
                circuit.string("state", snapshot.circuit.name)
                circuit.time("reopensAt", snapshot.reopensAt)
            }
            let mask = target.upstream.mask
            json.raw("endpoints", JSONText.array(snapshot.endpoints.map { Self.describe($0, mask) }))
            if let token = snapshot.token {
                json.object("token") { text in
                    text.flag("valid", token.isValid)
                    text.time("expiresAt", token.expiresAt)
                }
            } else {
                json.raw("token", "null")
            }
            json.time("lastSuccessAt", snapshot.lastSuccessAt)
            json.raw("lastError", snapshot.lastError.map(MessageText.error) ?? "null")
            json.raw("kinds", JSONText.array(target.kinds.map { JSONEscapes.quoted($0.text) }))
        }
    }

    /// A part of the upstream that waits alone.
    private static func describe(_ endpoint: UpstreamSnapshot.EndpointWait, _ mask: SecretMask) -> String {
        JSONText.object { json in
            json.string("name", mask.masked(endpoint.name))
            json.string("waitingFor", endpoint.waitingFor.rawValue)
            json.time("reopensAt", endpoint.until)
            json.raw("lastError", endpoint.lastError.map(MessageText.error) ?? "null")
        }
    }

    /// The same members as of an upstream that is configured.
    private func describe(_ upstream: DisabledUpstream) -> String {
        JSONText.object { json in
            json.string("name", upstream.name.description)
            json.string("type", upstream.type)
            json.string("health", "disabled")
            writeBacklog(of: upstream.number, to: &json)
            json.number("inFlight", 0)
            json.raw("circuit", #"{"state":"closed","reopensAt":null}"#)
            json.raw("endpoints", "[]")
            for member in ["token", "lastSuccessAt", "lastError"] { json.raw(member, "null") }
            json.raw("kinds", "[]")
        }
    }

    private func writeBacklog(of number: UpstreamNumber, to json: inout JSONText) {
        let ledger = gateway.outbox.ledger(of: number)
        let oldest = ledger.queued > 0 ? try? gateway.outbox.oldestQueued(of: number) : nil
        json.number("queued", ledger.queued)
        json.number("queuedBytes", ledger.queuedBytes)
        json.decimal("oldestQueuedSeconds", oldest.map { (gateway.time.now - $0).inSeconds } ?? 0)
    }
}

/// What an operator can do with an upstream.
enum UpstreamAction: String { case flush, pause, resume }

extension Circuit.State {
    var name: String {
        switch self {
        case .closed: "closed"
        case .open: "open"
        case .halfOpen: "half-open"
        }
    }

    /// For the gauge: 0 closed, 1 half-open, 2 open.
    var number: Double {
        switch self {
        case .closed: 0
        case .halfOpen: 1
        case .open: 2
        }
    }
}
