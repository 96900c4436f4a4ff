import PosternCore
import PosternDelivery
import PosternHTTP
import PosternStore
import PosternThreads

/// Reads, cancels, and retries messages.
struct MessageHandler: Sendable {
    let context: APIContext

    // MARK: GET

    func show(_ id: MessageID, _ responder: MeteredResponder) {
        var query = responder.request.query
        let includes = Includes(&query)
        do throws(Problem) { try query.check() } catch { return responder.send(error) }
        context.read(responder) { [context] () throws(StoreError) in
            guard let record = try context.outbox.message(id, payload: includes.payload) else {
                return Self.noSuchMessage.response(to: responder.head)
            }
            let attempts = includes.attempts ? try context.outbox.attempts(of: id) : nil
            return .json(
                200,
                MessageJSON.message(record, context: context, attempts: attempts, showsPayload: includes.payload))
        }
    }

    func list(_ responder: MeteredResponder) {
        let query: ListQuery
        do throws(Problem) { query = try ListQuery(responder, context) } catch { return responder.send(error) }
        let includes = query.includes
        let memory = context.memory
        let pageBytes =
            includes.payload ? min(Self.payloadPageBytes, max(Self.pageBytes, memory.limit / 8)) : Self.pageBytes
        // The rows, and the text that is built from them.
        guard memory.take(2 * pageBytes) else { return responder.send(.overloaded) }
        context.read(responder) { [self] () throws(StoreError) in
            defer { memory.give(2 * pageBytes) }
            let page = try page(of: query, maxBytes: pageBytes)
            var body = Array(#"{"messages":["#.utf8)
            var next = page.next
            var lanes = LaneNames(context)
            for (index, record) in page.messages.enumerated() {
                let attempts =
                    includes.attempts
                    ? try context.outbox.attempts(of: record.id, onPageOf: page.messages.count) : nil
                let text = MessageJSON.message(
                    record, context: context, &lanes, attempts: attempts, showsPayload: includes.payload
                ).utf8
                // Attempts, errors, and escapes can make the text longer than the store estimates. One is always shown.
                if index > 0, body.count + text.count + Self.endBytes > pageBytes {
                    next = page.messages[index - 1].id
                    break
                }
                if index > 0 { body.append(UInt8(ascii: ",")) }
                body.append(contentsOf: text)
            }
            let cursor = next.map { "\"\(MessageCursor($0, in: query.order))\"" } ?? "null"
            body.append(contentsOf: "],\"next\":\(cursor)}\n".utf8)
            return HTTPResponse(status: 200, headers: [("Content-Type", "application/json")], body: body)
        }
    }

    private func page(
        of query: ListQuery, maxBytes: Int
    ) throws(StoreError) -> (messages: [MessageRecord], next: MessageID?) {
        func messages(
            _ filter: MessageFilter, limit: Int
        ) throws(StoreError) -> (messages: [MessageRecord], next: MessageID?) {
            try context.outbox.messages(
                filter, order: query.order, after: query.cursor, limit: limit, maxBytes: maxBytes,
                payload: query.includes.payload)
        }
        guard let reason = query.waitingFor else { return try messages(query.filter, limit: query.limit) }
        // What a message waits for is not stored. This is derived for each queued message that matches otherwise.
        var filter = query.filter
        filter.state = filter.state ?? .queued
        let examined = try messages(filter, limit: Self.maxWaitsPerPage)
        let found = examined.messages.filter { WaitStatus(of: $0, context: context).waitingFor == reason }
        let page = Array(found.prefix(query.limit))
        return (page, found.count > page.count ? page.last?.id : examined.next)
    }

    /// The number of messages whose wait is derived for one page. Each may take a query.
    static let maxWaitsPerPage = 2000
    /// The size that a page has at most, whatever its `limit`, and the response with the results of many messages.
    static let pageBytes = 1 << 20
    /// More than what a page has in addition to its messages.
    static let endBytes = 64
    /// The same as `pageBytes` for a page with payloads.
    private static let payloadPageBytes = 16 << 20

    static let noSuchMessage = Problem(
        slug: .notFound, status: 404,
        detail: "There is no such message: it was never accepted here, or is no longer kept.")

    // MARK: POST, DELETE

    func cancel(_ id: MessageID, _ responder: MeteredResponder) {
        context.outbox.cancel([id]) { result in
            switch result {
            case .success([]) where context.outbox.isInFlight(id):
                responder.send(
                    Problem(
                        slug: .conflict, status: 409,
                        detail: "The message is being sent; try again after the attempt.",
                        headers: [("Retry-After", "1")]))
            case .success([]):
                refuse(id, responder) { "The message is \($0) already; only a queued one can be cancelled." }
            case .success: answer(id, responder)
            case .failure(let error): responder.send(Problem(error))
            }
        }
    }

    private func answer(_ id: MessageID, _ responder: MeteredResponder) {
        context.read(responder) { [context] () throws(StoreError) in
            guard let record = try context.outbox.message(id) else {
                return Self.noSuchMessage.response(to: responder.head)
            }
            return .json(200, MessageJSON.message(record, context: context))
        }
    }

    func retry(_ id: MessageID, _ body: [UInt8], _ responder: MeteredResponder) {
        let request: BulkRequest
        do throws(Problem) { request = try .read(body, .retry, of: id) } catch { return responder.send(error) }
        let detail: @Sendable (String) -> String = {
            "The message is \($0); only failed or dropped ones can be sent again."
        }
        guard !request.isDryRun else {
            var asked = responder
            asked.isPreview = true
            return refuse(
                id, asked, detail, unless: { request.action.states.contains($0.state) ? request.response(1) : nil })
        }
        context.outbox.requeue([id]) { result in
            switch result {
            case .success([]): refuse(id, responder, detail)
            case .success(let ids): responder.send(request.response(ids.count))
            case .failure(let error): responder.send(Problem(error))
            }
        }
    }

    /// The state of the message does not allow what was requested, or there is no such message. `allowed`: the response
    /// to a request that only asks whether it does.
    private func refuse(
        _ id: MessageID, _ responder: MeteredResponder, _ detail: @escaping @Sendable (_ state: String) -> String,
        unless allowed: @escaping @Sendable (MessageRecord) -> HTTPResponse? = { _ in nil }
    ) {
        context.read(responder) { [context] () throws(StoreError) in
            guard let record = try context.outbox.message(id) else {
                return Self.noSuchMessage.response(to: responder.head)
            }
            return allowed(record)
                ?? Problem(slug: .conflict, status: 409, detail: detail(record.state.name)).response(to: responder.head)
        }
    }

    func changeMany(_ action: BulkRequest.Action, _ body: [UInt8], _ responder: MeteredResponder) {
        do throws(Problem) {
            let request = try BulkRequest.read(body, action, context)
            if let caller = responder.caller, let name = request.filter.upstream, !caller.mayUse(name) {
                throw Gatekeeper.foreign(name, to: caller)
            }
            let visible = request.visible(to: responder.caller)
            var asked = responder
            asked.isPreview = request.isDryRun
            context.readers.run { [self, asked] in change(visible, after: nil, count: 0, asked) }
        } catch {
            responder.send(error)
        }
    }

    private func change(_ request: BulkRequest, after cursor: MessageID?, count: Int, _ responder: MeteredResponder) {
        let goOn: @Sendable (MessageID?, Int) -> Void = { [self] next, count in
            guard let next else { return responder.send(request.response(count)) }
            context.readers.run { [self] in change(request, after: next, count: count, responder) }
        }
        let fail: @Sendable (StoreError) -> Void = { error in
            // The messages of earlier pages are changed.
            responder.send(Problem(error), isCarriedOut: count > 0 && !request.isDryRun)
        }
        do throws(StoreError) {
            let (ids, next) = try request.page(of: context.outbox, after: cursor)
            guard !request.isDryRun else { return goOn(next, count + ids.count) }
            let completion: @Sendable (Result<[MessageID], StoreError>) -> Void = { result in
                switch result {
                case .success(let done): goOn(next, count + done.count)
                case .failure(let error): fail(error)
                }
            }
            switch request.action {
            case .retry: context.outbox.requeue(ids, completion: completion)
            case .cancel: context.outbox.cancel(ids, completion: completion)
            }
        } catch {
            fail(error)
        }
    }
}

/// `include=payload,attempts`.
private struct Includes {
    var payload = false
    var attempts = false

    init(_ query: inout QueryReader) {
        for word in (query.text("include") ?? "").split(separator: ",") {
            switch word {
            case "payload": payload = true
            case "attempts": attempts = true
            default:
                query.refuse("include", "must be payload, attempts, or both joined by a comma")
                return
            }
        }
    }
}

/// The query of a list.
private struct ListQuery {
    var filter = MessageFilter()
    let order: MessageOrder
    let limit: Int
    let cursor: MessageID?
    let includes: Includes
    /// Nil means that this does not matter.
    let waitingFor: WaitReason?

    static let most = 1000

    init(_ responder: MeteredResponder, _ context: APIContext) throws(Problem) {
        var query = responder.request.query
        filter.visible = responder.caller?.key.upstreams
        filter.read(MessageFilter.names, from: &query)
        filter.last = query.value("last", "must be the id of a message") { MessageID($0) }
        filter.state = query.value("state", QueryReader.oneOf(MessageState.allCases.map(\.name))) {
            MessageState(name: $0)
        }
        waitingFor = query.value("waitingFor", QueryReader.oneOf(WaitReason.allCases.map(\.rawValue))) {
            WaitReason(rawValue: $0)
        }
        let orders = MessageOrder.allCases.map(\.rawValue)
        let order = query.value("order", QueryReader.oneOf(orders)) { MessageOrder(rawValue: $0) } ?? .oldest
        self.order = order
        limit = query.limit(upTo: Self.most)
        let cursor = query.value("cursor", "must be the `next` of an earlier page") { MessageCursor($0) }
        if let cursor, cursor.order != order {
            query.refuse("cursor", "is from a list in the other order, which begins with the \(cursor.order) messages")
        }
        self.cursor = cursor?.id
        includes = Includes(&query)
        try query.check()
        if let name = query.text("upstream") {
            filter.upstream = try context.knownUpstream(name, for: responder.caller)
        }
    }
}
