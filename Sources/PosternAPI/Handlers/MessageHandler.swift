import PosternCore
import PosternDelivery
import PosternHTTP
import PosternStore
import PosternThreads
import Synchronization

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

    /// The stored bytes, exactly.
    func payload(of id: MessageID, _ responder: MeteredResponder) {
        var query = responder.request.query
        let isDownload =
            query.value("download", "must be true, false, or empty") { text in
                ["", "true", "false"].contains(text) ? text != "false" : nil
            } ?? false
        do throws(Problem) { try query.check() } catch { return responder.send(error) }
        context.read(responder) { [context] () throws(StoreError) in
            guard let record = try context.outbox.message(id, payload: true) else {
                return Self.noSuchMessage.response(to: responder.head)
            }
            guard let payload = record.payload else { return Self.noPayload.response(to: responder.head) }
            let file = isDownload ? "attachment; filename=\"\(id).json\"" : ""
            return HTTPResponse(
                status: 200, headers: [("Content-Type", "application/json"), ("Content-Disposition", file)],
                body: payload)
        }
    }

    /// The request that would be sent for it now, if nothing had to be waited for.
    func request(for id: MessageID, _ responder: MeteredResponder) {
        context.read(responder) { [context] () throws(StoreError) in
            guard let record = try context.outbox.message(id) else {
                return Self.noSuchMessage.response(to: responder.head)
            }
            guard let message = try context.outbox.unsent(id) else {
                let isSettled = [.cancelled, .expired].contains(record.state)
                let problem =
                    isSettled ? Self.conflict("The message is \(record.state.name); it is not sent.") : Self.noPayload
                return problem.response(to: responder.head)
            }
            guard let upstream = context.upstream(id.upstream) else {
                return Self.conflict("\(record.upstream) is disabled or no longer configured; nothing is sent to it.")
                    .response(to: responder.head)
            }
            return DryRun(context: context).answer(message, of: upstream)
        }
    }

    private static func conflict(_ detail: String) -> Problem {
        Problem(slug: .conflict, status: 409, detail: detail)
    }

    static let noPayload = Problem(
        slug: .notFound, status: 404,
        detail: "The payload of the message is no longer kept: it was delivered, erased, or deleted to make room.")

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
        context.outbox.cancel([id], by: responder.caller?.key.name) { result in
            switch result {
            case .success([]) where context.outbox.isInFlight(id):
                responder.send(
                    Problem(
                        slug: .conflict, status: 409,
                        detail: "The message is being sent; try again after the attempt.",
                        headers: [("Retry-After", "1")]))
            case .success([]):
                refuse(id, responder) { "The message is \($0.state.name) already; only a queued one can be cancelled." }
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
        let detail: @Sendable (MessageRecord) -> String = {
            $0.isErased
                ? "The message was erased; it cannot be sent again."
                : "The message is \($0.state.name); only failed or dropped ones can be sent again."
        }
        guard !request.isDryRun else {
            var asked = responder
            asked.isPreview = true
            return refuse(
                id, asked, detail,
                unless: { request.action.states.contains($0.state) && !$0.isErased ? request.response(1) : nil })
        }
        context.outbox.requeue([id], by: responder.caller?.key.name) { result in
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
        _ id: MessageID, _ responder: MeteredResponder, _ detail: @escaping @Sendable (MessageRecord) -> String,
        unless allowed: @escaping @Sendable (MessageRecord) -> HTTPResponse? = { _ in nil }
    ) {
        context.read(responder) { [context] () throws(StoreError) in
            guard let record = try context.outbox.message(id) else {
                return Self.noSuchMessage.response(to: responder.head)
            }
            return allowed(record)
                ?? Self.conflict(detail(record)).response(to: responder.head)
        }
    }

    /// Erases a person's messages, and responds once nothing of them can be read in the files of the store.
    func erase(_ body: [UInt8], _ responder: MeteredResponder) {
        let query: EraseQuery
        do throws(Problem) {
            query = try EraseQuery.read(body, context)
            try query.check(for: responder.caller)
        } catch {
            return responder.send(error)
        }
        var asked = responder
        asked.isPreview = query.isDryRun
        let executor = EraseExecutor(
            run: { [context] in context.readers.run($0) }, later: { [context] in context.timer.run(after: $0, $1) },
            isStopping: { [context] in context.isDraining.load(ordering: .acquiring) })
        let key = responder.caller?.key
        context.outbox.erase(query.request(visible: key?.upstreams, by: key?.name), on: executor) { [asked] result in
            switch result {
            case .success(let counts): asked.send(.json(200, counts.json(isDryRun: query.isDryRun)))
            case .failure(.store(let error)): asked.send(Problem(error))
            case .failure(let failure): asked.send(Self.conflict(failure.detail), isCarriedOut: true)
            }
        }
    }

    /// Counts, or changes, the messages of a bulk request: until its end, or with `Prefer: respond-async` as an operation
    /// that goes on after the response.
    func changeMany(_ action: MessageAction, _ body: [UInt8], _ responder: MeteredResponder) {
        let request: BulkRequest
        do throws(Problem) {
            request = try BulkRequest.read(body, action, context)
            if let caller = responder.caller, let name = request.filter.upstream, !caller.mayUse(name) {
                throw Gatekeeper.foreign(name, to: caller)
            }
        } catch {
            return responder.send(error)
        }
        let run = BulkRun(request.bounded(for: responder.caller, in: context.outbox), context)
        var asked = responder
        asked.isPreview = request.isDryRun
        if request.isDryRun {
            run.count { [asked] result in
                switch result {
                case .success(let count): asked.send(request.response(count))
                case .failure(let error): asked.send(Problem(error))
                }
            }
        } else if Preferences(responder.head).isAsynchronous {
            run.count { [context] result in
                switch result {
                case .success(let count): context.operations.begin(run, matched: count, responder)
                case .failure(let error): responder.send(Problem(error))
                }
            }
        } else {
            let operation = BulkOperation(request, by: responder.caller?.key.name, at: context.time.now)
            run.change(operation) { error in
                let done = operation.progress.done
                guard let error else { return responder.send(request.response(done)) }
                // The messages of earlier steps are changed.
                responder.send(Problem(error), isCarriedOut: done > 0)
            }
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
