import PosternCore
import PosternHTTP
import PosternJSON
import PosternMetrics
import PosternStore
import Synchronization

/// Takes messages: checks them, hands them to the store, and says 202 when they are on disk.
struct IngestHandler: Sendable {
    let gateway: Gateway

    init(_ gateway: Gateway) { self.gateway = gateway }

    // MARK: Before the body

    /// What can be refused by the headers alone.
    func refusal(of head: RequestHead) -> Problem? {
        guard !gateway.isDraining.load(ordering: .acquiring) else {
            return Problem(
                slug: .shuttingDown, status: 503, detail: "The gateway is stopping; send it again elsewhere or soon.",
                headers: [("Retry-After", "5")])
        }
        guard BodyForm(head) != nil else {
            return Problem(
                slug: .unsupportedMediaType, status: 415,
                detail: "Send application/json or application/x-ndjson, in UTF-8.",
                headers: [("Accept-Post", "application/json, application/x-ndjson")])
        }
        guard gateway.memory.bytesInUse < gateway.memory.limit else {
            return Problem(
                slug: .overloaded, status: 503, detail: "More is coming in than the disk takes; try again.",
                headers: [("Retry-After", "1")])
        }
        return nil
    }

    // MARK: The two ways in

    /// `POST /v1/{upstream}/{kind}`
    func payloads(of target: Target, _ kind: Target.Acceptable, _ request: IncomingRequest, _ reply: Reply) {
        take(request, reply) { root, order in
            // What is neither a payload nor a list of them the upstream refuses in its own words.
            if root.kind != .array, order.form == .json {
                order.isSingle = true
                order.admit(root, target, kind, at: 0)
            } else {
                guard order.accepts(list: root) else { return }
                for (index, payload) in root.elements.enumerated() { order.admit(payload, target, kind, at: index) }
            }
        }
    }

    /// `POST /v1/messages`
    func envelopes(_ request: IncomingRequest, _ reply: Reply) {
        take(request, reply) { root, order in
            if root.kind == .object, order.form == .json {
                order.isSingle = true
                order.admit(envelope: root, at: 0)
            } else {
                guard order.accepts(list: root) else { return }
                for (index, envelope) in root.elements.enumerated() { order.admit(envelope: envelope, at: index) }
            }
        }
    }

    private func take(_ request: IncomingRequest, _ reply: Reply, _ read: (JSONValue, Order) -> Void) {
        guard let form = BodyForm(request.head) else { return }
        let order = Order(
            gateway: gateway, head: request.head, caller: reply.caller, form: form, body: request.body)
        let parser = JSONParser.ofThisThread
        let parsed = request.body.withUnsafeBufferPointer { text in
            form == .lines ? parser.parseLines(text) { read($0, order) } : parser.parse(text) { read($0, order) }
        }
        switch parsed {
        case .success: conclude(order, reply)
        case .failure(let fault): reply.send(Self.problem(fault))
        }
    }

    private static func problem(_ fault: JSONFault) -> Problem {
        Problem(
            slug: .invalidJSON, status: 400, detail: "The body is not acceptable JSON: \(fault).",
            members: [("offset", String(fault.offset))])
    }

    // MARK: The answer

    private func conclude(_ order: Order, _ reply: Reply) {
        if let problem = order.problem {
            return reply.send(problem)
        }
        if order.isDryRun { return show(order, reply) }
        if !order.rejected.isEmpty, !order.preferences.isLenient || order.isSingle {
            order.countRefusals()
            return reply.send(order.invalidPayload)
        }
        order.countRefusals()
        if let wait = reply.caller?.takeMessages(order.messages.count, at: gateway.time.instant) {
            return reply.send(Gatekeeper.rateLimited("messages", wait))
        }
        guard !order.messages.isEmpty else { return reply.send(order.accepted(AppendReceipt(ids: [], evicted: []))) }
        store(order, reply)
    }

    /// The requests that would be made: their plans read the store, and their texts are several times as long as the
    /// messages.
    private func show(_ order: Order, _ reply: Reply) {
        let bytes = 8 * order.messages.reduce(0) { $0 + $1.range.count }
        gateway.memory.takeAnyway(bytes)
        gateway.readers.run { [gateway] in
            defer { gateway.memory.give(bytes) }
            reply.send(DryRun(gateway).answer(order))
        }
    }

    /// Hands the messages to the writer. The 202 leaves from its completion: after the commit, and nowhere else.
    private func store(_ order: Order, _ reply: Reply) {
        let messages = order.takeMessages()
        let bytes = messages.reduce(0) { $0 + $1.range.count }
        gateway.memory.takeAnyway(bytes)
        gateway.outbox.append(messages) { [gateway] result in
            gateway.memory.give(bytes)
            switch result {
            case .success(let receipt):
                order.countAcceptances()
                if let seconds = order.preferences.wait {
                    gateway.pendingReplies.hold(SettlementReply(order, receipt, reply, gateway), seconds: seconds)
                } else {
                    reply.send(202) { order.accepted(receipt) }
                }
            case .failure(let refusal):
                order.countRefusal(refusal)
                reply.send(Self.problem(refusal, order))
            }
        }
    }

    private static func problem(_ refusal: AppendRefusal, _ order: Order) -> Problem {
        switch refusal {
        case .queueFull(let name):
            return Problem(
                slug: .outboxFull, status: 503,
                detail: name.map { "The queue of \($0) is at its cap; nothing was stored. Send it again later." }
                    ?? "The outbox is at its cap; nothing was stored. Send it again later.",
                members: order.codes(for: .queueFull), headers: [("Retry-After", "10")])
        case .diskFull:
            return Problem(
                slug: .diskFull, status: 507,
                detail: "There is no room on the disk; nothing was stored. Deliveries go on and may make some.",
                members: order.codes(for: .diskFull), headers: [("Retry-After", "30")])
        case .closed:
            return Problem(
                slug: .shuttingDown, status: 503, detail: "The gateway is stopping; nothing was stored.",
                headers: [("Retry-After", "5")])
        case .store(let error): return Problem(error)
        case .refused(let refused): return order.problem(refused)
        }
    }
}

/// How a body is to be read.
enum BodyForm {
    case json, lines

    /// Nil for a media type we do not take. `charset=utf-8` is what JSON is in anyway (RFC 8259, section 8.1).
    init?(_ head: RequestHead) {
        guard let value = head.header("Content-Type") else { return nil }
        if value == "application/json" {
            self = .json
            return
        }
        let parts = value.split(separator: ";").map { $0.filter { $0 != " " && $0 != "\t" }.lowercased() }
        guard let type = parts.first else { return nil }
        for parameter in parts.dropFirst() where parameter.hasPrefix("charset=") {
            guard ["charset=utf-8", "charset=\"utf-8\"", "charset=us-ascii"].contains(parameter) else { return nil }
        }
        switch type {
        case "application/json": self = .json
        case "application/x-ndjson", "application/ndjson", "application/jsonl": self = .lines
        default: return nil
        }
    }
}
