import PosternCore
import PosternHTTP
import PosternMetrics
import PosternStore
import PosternThreads
import PosternUpstream
import Synchronization

/// Accepts messages: validates them, passes them to the store, and responds with 202 when they are on disk.
struct IngestHandler: Sendable {
    let context: APIContext

    // MARK: Before the body

    /// Throws what can be refused before the body is read.
    func checkReadiness(for form: BodyForm?, of body: Route.Body) throws(Problem) {
        try checkReadiness()
        guard form != nil else {
            throw Problem(
                slug: .unsupportedMediaType, status: 415,
                detail: "Send \(body.mediaTypes.joined(separator: " or ")), in UTF-8.",
                headers: [("Accept-Post", body.mediaTypes.joined(separator: ", "))])
        }
    }

    /// The same for a body of any form.
    func checkReadiness() throws(Problem) {
        guard !context.isDraining.load(ordering: .acquiring) else {
            throw Problem(
                slug: .shuttingDown, status: 503, detail: "The gateway is stopping; send the request again later.",
                headers: [("Retry-After", "5")])
        }
        guard context.memory.bytesInUse < context.memory.limit else {
            throw Problem(
                slug: .overloaded, status: 503,
                detail: "The disk cannot keep up with incoming requests. Try again later.",
                headers: [("Retry-After", "1")])
        }
    }

    // MARK: The two ways in

    /// `POST /v1/{upstream}/{kind}`
    func payloads(
        of upstream: ConfiguredUpstream, _ kind: ConfiguredUpstream.KindEndpoint, _ body: [UInt8],
        _ responder: MeteredResponder
    ) {
        if let key = idempotencyKey(responder) {
            return once(key, body, responder) { payloads(of: upstream, kind, body, $0) }
        }
        take(body, responder) { (root, validation) throws(Problem) in try validation.readPayloads(root, upstream, kind)
        }
    }

    /// `POST /v1/messages`
    func envelopes(_ body: [UInt8], _ responder: MeteredResponder) {
        if let key = idempotencyKey(responder) { return once(key, body, responder) { envelopes(body, $0) } }
        take(body, responder) { (root, validation) throws(Problem) in try validation.readEnvelopes(root) }
    }

    /// `POST /v1/cloudevents`
    func events(_ body: [UInt8], _ responder: MeteredResponder) {
        if let key = idempotencyKey(responder) { return once(key, body, responder) { events(body, $0) } }
        let mode = CloudEventMode(responder.head)
        take(body, responder) { (root, validation) throws(Problem) in
            if mode == .binary {
                try validation.readEvent(CloudEventAttributes(responder.head), data: root)
            } else {
                try validation.readEvents(root, isBatch: mode == .batched)
            }
        }
    }

    /// The header, if it applies. A dry run stores nothing, so it ignores the header.
    private func idempotencyKey(_ responder: MeteredResponder) -> String? {
        guard responder.idempotent == nil, let key = responder.head.header("Idempotency-Key") else { return nil }
        return responder.request.isDryRun ? nil : key
    }

    /// Answers a repeat with the stored response, and passes a first request to `accept`. Both on a thread that may
    /// read the store.
    private func once(
        _ key: String, _ body: [UInt8], _ responder: MeteredResponder,
        accept: @escaping @Sendable (MeteredResponder) -> Void
    ) {
        // When the thread that serves the connection returns, its reservation is released.
        let bytes = 8 * body.count
        context.memory.takeAnyway(bytes)
        context.readers.run { [context] in
            defer { context.memory.give(bytes) }
            var responder = responder
            do throws(Problem) {
                let idempotent = try context.idempotentRequests.begin(responder.request, key, body: body)
                responder.idempotent = idempotent
                if let response = try idempotent.response(in: context.outbox) {
                    responder.send(response)
                } else {
                    accept(responder)
                }
            } catch {
                responder.refuse(error)
            }
        }
    }

    private func take(
        _ body: [UInt8], _ responder: MeteredResponder,
        _ read: (JSONValue, inout IngestValidation) throws(Problem) -> Void
    ) {
        do throws(Problem) {
            var validation = IngestValidation(body, responder.request, context)
            let parser = JSONParser.ofThisThread
            let parsed = try body.withUnsafeBufferPointer { text throws(Problem) in
                switch responder.request.form {
                case .lines where validation.request.preferences.isLenient: try validation.readLines(text, read)
                case .lines: try parser.parseLines(text) { root throws(Problem) in try read(root, &validation) }
                case .json, nil: try parser.parse(text) { root throws(Problem) in try read(root, &validation) }
                }
            }
            try parsed.mapError { Problem($0, in: body, form: responder.request.form ?? .json) }.get()
            let request = responder.request
            if !request.isRelayed, !validation.request.isDryRun,
                let queue = context.outbox.needsOwner(validation.request.messages)
            {
                responder.relay(body, to: queue)
            } else {
                conclude(validation.request, responder)
            }
        } catch {
            responder.refuse(error)
        }
    }

    // MARK: The answer

    private func conclude(_ request: IngestRequest, _ responder: MeteredResponder) {
        if request.isDryRun { return show(request, responder) }
        request.countRejections(in: context.metrics)
        guard request.rejected.isEmpty || request.preferences.isLenient && !request.isSingle else {
            return responder.send(IngestResponse(request, context).invalidPayload)
        }
        if let wait = responder.caller?.takeMessages(request.messages.count, at: context.time.instant) {
            request.countRefusal(.rateLimited, in: context.metrics)
            return responder.send(Gatekeeper.rateLimited("messages", wait))
        }
        guard !request.messages.isEmpty || responder.idempotent != nil else {
            return responder.send(IngestResponse(request, context).accepted(AppendReceipt()))
        }
        store(request, responder)
    }

    /// Shows the requests that would be sent. Their plans read the store, and their texts are several times as long as
    /// the messages.
    private func show(_ request: IngestRequest, _ responder: MeteredResponder) {
        let bytes = 8 * request.messages.reduce(0) { $0 + $1.range.count }
        context.memory.takeAnyway(bytes)
        context.readers.run { [context] in
            defer { context.memory.give(bytes) }
            do throws(Problem) { responder.send(try DryRun(context: context).answer(request)) } catch {
                responder.send(error)
            }
        }
    }

    /// Hands the messages to the writer. The 202 leaves from its completion: after the commit, and nowhere else.
    private func store(_ request: IngestRequest, _ responder: MeteredResponder) {
        var request = request
        let messages = request.takeMessages()
        let kept = request.preferences.isLenient ? messages : []
        let response = IngestResponse(request, context)
        let bytes = messages.reduce(0) { $0 + $1.range.count }
        context.memory.takeAnyway(bytes)
        let record =
            responder.idempotent.map { RequestRecord.response($0.record(response.accepted)) } ?? request.identities
        context.outbox.append(messages, recording: record) { [context] result in
            context.memory.give(bytes)
            switch result {
            case .success(let receipt):
                var responder = responder
                responder.ids = receipt.ids
                response.request.countAcceptances(besides: receipt.repeated)
                if let seconds = response.request.preferences.wait, !receipt.ids.isEmpty {
                    hold(SettlementReply(response, receipt, responder, context), receipt, seconds: seconds)
                } else {
                    responder.send(202) { response.accepted(receipt) }
                }
            case .failure(let refusal):
                // Another gateway has stored the request meanwhile.
                if case .recorded(let stored) = refusal, let replay = responder.idempotent?.replay(of: stored) {
                    return responder.send(replay)
                }
                let faults = response.request.faults(in: refusal)
                guard faults.isEmpty else {
                    response.request.countRejections(faults, in: context.metrics)
                    return store(response.request.leavingOut(faults, of: kept), responder)
                }
                let problem = response.problem(refusal)
                response.request.countRefusal(problem.slug, in: context.metrics)
                responder.send(problem)
            }
        }
    }

    /// Holds the reply until its messages are settled. Those of repeated events may be settled already.
    private func hold(_ reply: SettlementReply, _ receipt: AppendReceipt, seconds: Int) {
        context.pendingReplies.hold(reply, ended: receipt.notices, seconds: seconds)
        let repeated = receipt.repeatedIDs
        guard !repeated.isEmpty else { return }
        context.readers.run { [context] in
            for id in repeated {
                // What is no longer kept is never settled.
                guard let record = try? context.outbox.message(id) else { return context.pendingReplies.release(reply) }
                if let notice = SettledNotice(record) { context.pendingReplies.settledBefore(notice, reply) }
            }
        }
    }
}

/// How a body is to be read.
enum BodyForm {
    case json, lines

    /// Nil for a media type that is not supported.
    init?(_ head: RequestHead) {
        // What nearly all requests have.
        if head.hasHeader("content-type", "application/json") {
            self = .json
            return
        }
        switch mediaType(head) {
        case "application/json": self = .json
        case "application/x-ndjson", "application/ndjson", "application/jsonl": self = .lines
        default: return nil
        }
    }
}

/// The media type of a body in lower case, without its parameters. Nil if there is none, or its text is not in UTF-8:
/// `charset=utf-8` is what JSON is in anyway (RFC 8259, section 8.1), and US-ASCII is a part of it. Names that clients
/// use for these, in quotation marks of either kind or without, are accepted.
func mediaType(_ head: RequestHead) -> String? {
    guard let value = head.header("Content-Type") else { return nil }
    if value == "application/json" { return value }
    let parts = value.split(separator: ";").map { $0.filter { $0 != " " && $0 != "\t" }.lowercased() }
    for parameter in parts.dropFirst() where parameter.hasPrefix("charset=") {
        let name = parameter.dropFirst(8).filter { $0 != "\"" && $0 != "'" }
        guard ["utf-8", "utf8", "us-ascii"].contains(name) else { return nil }
    }
    return parts.first
}
