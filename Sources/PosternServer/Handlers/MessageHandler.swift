import Logging
import PosternCore
import PosternDelivery
import PosternHTTP
import PosternJSON
import PosternStore

/// Reading messages and steering them.
struct MessageHandler: Sendable {
    private let gateway: Gateway

    init(_ gateway: Gateway) { self.gateway = gateway }

    private func read(_ reply: Reply, _ body: @escaping @Sendable () throws(StoreError) -> HTTPResponse) {
        gateway.readers.run { [gateway] in
            do throws(StoreError) {
                reply.send(try body())
            } catch {
                gateway.logger.error("cannot read the store", metadata: ["error": "\(error)"])
                reply.send(Problem(slug: .internal, status: 500, detail: "The store cannot be read; the log says why."))
            }
        }
    }

    // MARK: GET

    func show(_ id: MessageID, _ reply: Reply) {
        guard let includes = Includes(reply) else { return }
        read(reply) { [gateway] () throws(StoreError) in
            guard let record = try gateway.outbox.message(id, payload: includes.payload) else {
                return Self.noSuchMessage.response(to: reply.head)
            }
            let attempts = includes.attempts ? try gateway.outbox.attempts(of: id) : nil
            return .json(
                200,
                MessageText.message(record, gateway: gateway, attempts: attempts, showsPayload: includes.payload))
        }
    }

    func list(_ reply: Reply) {
        guard let includes = Includes(reply), let query = ListQuery(reply, gateway) else { return }
        read(reply) { [gateway] () throws(StoreError) in
            let page = try gateway.outbox.messages(
                query.filter, after: query.cursor, limit: query.limit, payload: includes.payload)
            var texts: [String] = []
            for record in page.messages {
                let attempts = includes.attempts ? try gateway.outbox.attempts(of: record.id) : nil
                texts.append(
                    MessageText.message(
                        record, gateway: gateway, attempts: attempts, showsPayload: includes.payload))
            }
            return .json(
                200,
                JSONText.object { json in
                    json.raw("messages", JSONText.array(texts))
                    json.string("next", page.next?.description)
                })
        }
    }

    static let noSuchMessage = Problem(
        slug: .notFound, status: 404,
        detail: "There is no such message: never accepted here, or settled longer ago than it is kept.")

    // MARK: POST, DELETE

    func cancel(_ id: MessageID, _ reply: Reply) {
        gateway.outbox.cancel(id) { result in
            switch result {
            case .success(.cancelled): answer(id, reply)
            case .success(.underWay):
                reply.send(
                    Problem(
                        slug: .conflict, status: 409,
                        detail: "The message is being sent right now; ask again when the attempt is over.",
                        headers: [("Retry-After", "1")]))
            case .success(.notQueued): refuseToCancel(id, reply)
            case .failure: reply.send(Self.storeFailed)
            }
        }
    }

    private func answer(_ id: MessageID, _ reply: Reply) {
        read(reply) { [gateway] () throws(StoreError) in
            guard let record = try gateway.outbox.message(id) else {
                return Self.noSuchMessage.response(to: reply.head)
            }
            return .json(200, MessageText.message(record, gateway: gateway))
        }
    }

    private func refuseToCancel(_ id: MessageID, _ reply: Reply) {
        read(reply) { [gateway] () throws(StoreError) in
            guard let record = try gateway.outbox.message(id) else {
                return Self.noSuchMessage.response(to: reply.head)
            }
            return Problem(
                slug: .conflict, status: 409,
                detail: "The message is \(record.state.name) already; only a queued one can be cancelled."
            ).response(to: reply.head)
        }
    }

    private static let storeFailed = Problem(
        slug: .internal, status: 500, detail: "The store cannot be written; the log says why. Nothing was changed.")

    func retry(_ id: MessageID, _ reply: Reply) {
        gateway.outbox.requeue([id]) { result in
            switch result {
            case .success([]): refuseToRetry(id, reply)
            case .success(let ids): reply.send(Self.retried(ids.count))
            case .failure: reply.send(Self.storeFailed)
            }
        }
    }

    private func refuseToRetry(_ id: MessageID, _ reply: Reply) {
        read(reply) { [gateway] () throws(StoreError) in
            guard let record = try gateway.outbox.message(id) else {
                return Self.noSuchMessage.response(to: reply.head)
            }
            return Problem(
                slug: .conflict, status: 409,
                detail: "The message is \(record.state.name); only failed or dropped ones can be sent again."
            ).response(to: reply.head)
        }
    }

    private static func retried(_ count: Int) -> HTTPResponse {
        .json(202, JSONText.object { $0.number("retried", count) })
    }

    /// `{"upstream","state","kind"?,"ids"?}`
    func retryMany(_ request: IncomingRequest, _ reply: Reply) {
        let wish: RetryWish
        switch RetryWish.read(request.body, gateway) {
        case .success(let read): wish = read
        case .failure(let problem): return reply.send(problem.problem)
        }
        gateway.readers.run { [self] in requeue(wish, after: nil, count: 0, reply) }
    }

    /// Page by page, so that no transaction grows with the number of dead letters.
    private func requeue(_ wish: RetryWish, after cursor: MessageID?, count: Int, _ reply: Reply) {
        do throws(StoreError) {
            let (ids, next) = try wish.page(of: gateway.outbox, after: cursor)
            gateway.outbox.requeue(ids) { [self] result in
                guard case .success(let done) = result else { return reply.send(Self.storeFailed) }
                let total = count + done.count
                guard let next else { return reply.send(Self.retried(total)) }
                gateway.readers.run { [self] in requeue(wish, after: next, count: total, reply) }
            }
        } catch {
            reply.send(Self.storeFailed)
        }
    }
}

/// `include=payload,attempts`; answers 400 itself when it holds anything else.
private struct Includes {
    var payload = false
    var attempts = false

    init?(_ reply: Reply) {
        for pair in reply.head.queryPairs where pair.name == "include" {
            for word in pair.value.split(separator: ",") {
                switch word {
                case "payload": payload = true
                case "attempts": attempts = true
                default:
                    reply.send(
                        Problem(
                            slug: .badRequest, status: 400,
                            detail: "The parameter include takes payload and attempts, joined by a comma."))
                    return nil
                }
            }
        }
    }
}

/// The query of a list; answers 400 itself when it makes no sense.
private struct ListQuery {
    var filter = MessageFilter()
    var limit = 100
    var cursor: MessageID?

    static let most = 1000

    init?(_ reply: Reply, _ gateway: Gateway) {
        func refuse(_ detail: String) { reply.send(Problem(slug: .badRequest, status: 400, detail: detail)) }
        for (name, value) in reply.head.queryPairs {
            switch name {
            case "upstream":
                guard let target = gateway.target(named: value) else {
                    reply.send(RoutingProblem.unknownUpstream(value).problem(in: gateway))
                    return nil
                }
                filter.upstream = target.name
            case "kind": filter.kind = Kind(value)
            case "key": filter.key = value
            case "state":
                guard let state = MessageState(name: value) else {
                    let known = MessageState.allCases.map(\.name).joined(separator: ", ")
                    refuse("The parameter state is one of \(known).")
                    return nil
                }
                filter.state = state
            case "limit":
                guard let number = Int(value), (1...Self.most).contains(number) else {
                    refuse("The parameter limit is a number from 1 to \(Self.most).")
                    return nil
                }
                limit = number
            case "cursor":
                guard let id = MessageID(value) else {
                    refuse("The parameter cursor is the `next` of an earlier page.")
                    return nil
                }
                cursor = id
            default: continue
            }
        }
    }
}

/// Which ended messages to send again.
private struct RetryWish: Sendable {
    var filter = MessageFilter()
    /// Ascending; nil means all that the filter lets through.
    var ids: [MessageID]?

    struct Refused: Error { let problem: Problem }

    static func read(_ body: [UInt8], _ gateway: Gateway) -> Result<RetryWish, Refused> {
        let parsed = JSONParser.ofThisThread.parse(body) { root in parse(root, gateway) }
        switch parsed {
        case .success(let wish): return wish
        case .failure(let fault):
            return .failure(
                Refused(
                    problem: Problem(
                        slug: .invalidJSON, status: 400, detail: "The body is not acceptable JSON: \(fault).",
                        members: [("offset", String(fault.offset))])))
        }
    }

    private static func parse(_ root: JSONValue, _ gateway: Gateway) -> Result<RetryWish, Refused> {
        var wish = RetryWish()
        var faults: [PayloadFault] = []
        if root.kind != .object { faults.append(PayloadFault("", "must be an object")) }
        for member in root.members {
            switch member.key.string ?? "" {
            case "upstream":
                let target = member.value.string.flatMap { gateway.target(named: $0) }
                if target == nil { faults.append(PayloadFault("/upstream", "must name a configured upstream")) }
                wish.filter.upstream = target?.name
            case "state":
                let state = member.value.string.flatMap { MessageState(name: $0) }
                if state != .failed, state != .dropped {
                    faults.append(PayloadFault("/state", "must be failed or dropped"))
                }
                wish.filter.state = state
            case "kind":
                guard let kind = member.value.string else {
                    faults.append(PayloadFault("/kind", "must be a string"))
                    continue
                }
                wish.filter.kind = Kind(kind)
            case "ids":
                let ids = member.value.elements.map { $0.string.flatMap { MessageID($0) } }
                if member.value.kind != .array || ids.contains(nil) {
                    faults.append(PayloadFault("/ids", "must be an array of message ids"))
                }
                wish.ids = Set(ids.compactMap { $0 }).sorted()
            case let other: faults.append(PayloadFault(JSONPointer.member(other), "is unknown"))
            }
        }
        if faults.isEmpty, wish.ids == nil, wish.filter.upstream == nil {
            faults.append(PayloadFault("", "must name an upstream or ids"))
        }
        guard faults.isEmpty else {
            let errors = faults.map { fault in
                JSONText.object { json in
                    json.string("pointer", fault.pointer)
                    json.string("detail", fault.detail)
                }
            }
            return .failure(
                Refused(
                    problem: Problem(
                        slug: .invalidPayload, status: 422, detail: "The wish cannot be read; nothing was changed.",
                        members: [("errors", JSONText.array(errors))])))
        }
        if wish.filter.state == nil { wish.filter.state = .failed }
        return .success(wish)
    }

    private static let perPage = 500

    func page(of outbox: Outbox, after cursor: MessageID?) throws(StoreError) -> (ids: [MessageID], next: MessageID?) {
        guard let ids else {
            let page = try outbox.messages(filter, after: cursor, limit: Self.perPage)
            return (page.messages.map(\.id), page.next)
        }
        let rest = ids.drop { id in cursor.map { id <= $0 } ?? false }
        var page: [MessageID] = []
        for id in rest.prefix(Self.perPage) {
            if let record = try outbox.message(id), matches(record) { page.append(id) }
        }
        return (page, rest.count > Self.perPage ? rest.prefix(Self.perPage).last : nil)
    }

    private func matches(_ record: MessageRecord) -> Bool {
        record.state == filter.state && (filter.kind == nil || filter.kind == record.kind)
            && (filter.upstream == nil || filter.upstream?.description == record.upstream)
    }
}
