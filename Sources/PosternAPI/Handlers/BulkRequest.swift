import PosternCore
import PosternHTTP
import PosternStore
import PosternUpstream

/// A request to change many messages: `{"upstream"?,"state"?,"ids"?,"dryRun"?}`, and the other members of a filter.
struct BulkRequest: Sendable {
    let action: MessageAction
    private(set) var filter = MessageFilter()
    /// Ascending. Nil means all messages that match the filter.
    private(set) var ids: [MessageID]?
    /// Whether to count the messages without changing them.
    private(set) var isDryRun = false

    init(_ action: MessageAction) { self.action = action }

    static func read(_ body: [UInt8], _ action: MessageAction, _ context: APIContext) throws(Problem) -> BulkRequest {
        try JSONParser.ofThisThread.parse(body) { (root) throws(Problem) in try parse(root, action, context) }
            .mapError { Problem($0, in: body) }.get()
    }

    /// The body of a request for one message, which may be empty: `{"dryRun"?}`.
    static func read(_ body: [UInt8], _ action: MessageAction, of id: MessageID) throws(Problem) -> BulkRequest {
        var request = BulkRequest(action)
        request.ids = [id]
        if !body.isEmpty {
            request.isDryRun = try JSONParser.ofThisThread.parse(body) { (root) throws(Problem) in try dryRun(root) }
                .mapError { Problem($0, in: body) }.get()
        }
        return request
    }

    private static func dryRun(_ root: JSONValue) throws(Problem) -> Bool {
        var request = BulkRequest(.retry)
        var faults = PayloadErrors()
        if root.kind != .object { faults.add("", "must be an object") }
        for member in root.members {
            if let detail = member.key.string == "dryRun" ? request.takeDryRun(member.value) : "is unknown" {
                faults.add(JSONPointer.member(member.key), detail)
            }
        }
        guard faults.isEmpty else { throw problem(faults) }
        return request.isDryRun
    }

    private static func parse(
        _ root: JSONValue, _ action: MessageAction, _ context: APIContext
    ) throws(Problem) -> BulkRequest {
        var request = BulkRequest(action)
        var faults = PayloadErrors()
        if root.kind != .object { faults.add("", "must be an object") }
        for member in root.members {
            if let detail = request.take(member.key.string ?? "", member.value, context) {
                faults.add(JSONPointer.member(member.key), detail)
            }
        }
        if faults.isEmpty, request.ids == nil, request.filter.upstream == nil {
            faults.add("", "must name an upstream or ids")
        }
        if action != .purge {
            request.filter.state = request.filter.state ?? action.states[0]
        } else if faults.isEmpty, request.ids == nil, request.filter.state == nil {
            faults.add("", "must name the state of the messages, or ids")
        }
        guard faults.isEmpty else { throw problem(faults) }
        return request
    }

    /// Returns what is wrong with a member; nil if nothing is.
    private mutating func take(_ name: String, _ value: JSONValue, _ context: APIContext) -> String? {
        switch name {
        case "upstream":
            guard let name = value.string.flatMap({ context.knownUpstream($0) }) else {
                return "must name an upstream that is configured or has messages here"
            }
            filter.upstream = name
        case "state":
            guard let state = value.string.flatMap({ MessageState(name: $0) }), action.states.contains(state) else {
                let names = action.states.map(\.name)
                return names.count > 2 ? QueryReader.oneOf(names) : "must be \(names.joined(separator: " or "))"
            }
            filter.state = state
        case "ids":
            guard value.kind == .array, let ids = Self.ids(value) else { return "must be an array of message ids" }
            self.ids = ids
        case "dryRun": return takeDryRun(value)
        case let name where MessageFilter.names.contains(name):
            guard let text = value.string else { return "must be a string" }
            return filter.set(name, to: text)
        default: return "is unknown"
        }
        return nil
    }

    private mutating func takeDryRun(_ value: JSONValue) -> String? {
        guard value.kind == .true || value.kind == .false else { return "must be true or false" }
        isDryRun = value.kind == .true
        return nil
    }

    /// Ascending, each once; nil if one of the elements is not an id.
    private static func ids(_ list: JSONValue) -> [MessageID]? {
        var ids: [MessageID] = []
        for element in list.elements {
            guard let id = element.string.flatMap({ MessageID($0) }) else { return nil }
            ids.append(id)
        }
        ids.sort()
        var last: MessageID?
        ids.removeAll { id in
            defer { last = id }
            return id == last
        }
        return ids
    }

    static func problem(_ faults: PayloadErrors) -> Problem {
        Problem(
            slug: .invalidPayload, status: 422,
            detail: "The request body is not valid; nothing was changed. See `errors`.", members: faults.members)
    }

    // MARK: The messages it is about

    /// The most messages that are changed in one commit. The writes of others wait for at most two of these.
    static let messagesPerStep = 50

    /// The messages of one step. `others` are those of `ids` that do not match.
    struct Page {
        var ids: [MessageID] = []
        var others: [MessageID] = []
        var next: MessageID?
    }

    func page(of outbox: Outbox, after cursor: MessageID?) throws(StoreError) -> Page {
        guard let ids else {
            let page = try outbox.messages(filter, after: cursor, limit: Self.messagesPerStep)
            return Page(ids: page.messages.map(\.id), next: page.next)
        }
        let rest = ids.drop { id in cursor.map { id <= $0 } ?? false }
        var page = Page()
        for id in rest.prefix(Self.messagesPerStep) {
            if let record = try outbox.message(id), matches(record) {
                page.ids.append(id)
            } else {
                page.others.append(id)
            }
        }
        if rest.count > Self.messagesPerStep { page.next = rest.prefix(Self.messagesPerStep).last }
        return page
    }

    private func matches(_ record: MessageRecord) -> Bool {
        filter.matches(record) && action.states.contains(record.state)
    }

    /// Why the message of the request was not changed. `record`: what is stored of it.
    func refusal(of record: MessageRecord?) -> String {
        let isVisible = record.flatMap { UpstreamName(stored: $0.upstream) }.map {
            filter.visible?.contains($0) ?? true
        }
        guard let record, isVisible ?? false else { return action.refusal(of: nil) }
        return action.states.contains(record.state) && !filter.matches(record)
            ? "the message does not match the rest of the request" : action.refusal(of: record)
    }

    /// As `caller` may ask for it: ids of messages that it may not see count as unknown. Of an upstream, it is about what
    /// has been accepted until now.
    func bounded(for caller: Caller?, in outbox: Outbox) -> BulkRequest {
        var request = self
        request.filter.visible = caller?.key.upstreams
        if let number = number(in: outbox) {
            request.filter.last = MessageID(rawValue: Int64(outbox.ledger(of: number).lastID))
        }
        return request
    }

    private func number(in outbox: Outbox) -> UpstreamNumber? {
        outbox.names.first { $0.value == filter.upstream }?.key
    }

    /// How many messages match, without reading them; nil if it is not about all of an upstream in one state.
    func countInLedger(of outbox: Outbox) -> Int? {
        guard let number = number(in: outbox), ids == nil, let state = filter.state else { return nil }
        var all = MessageFilter(upstream: filter.upstream, state: state)
        (all.visible, all.last) = (filter.visible, filter.last)
        guard filter == all else { return nil }
        let ledger = outbox.ledger(of: number)
        return ledger.counts[state] - ledger.purged[state]
    }

    /// The upstreams of its messages, those of unknown ones included, as far as its caller may see them.
    func upstreams(in outbox: Outbox) -> Set<UpstreamName> {
        let names = outbox.names
        let all = Set(Set((ids ?? []).map(\.upstream)).compactMap { names[$0] } + [filter.upstream].compactMap { $0 })
        return filter.visible.map(all.intersection) ?? all
    }

    func response(_ count: Int) -> HTTPResponse {
        .json(
            isDryRun || action != .retry ? 200 : 202,
            JSONWriter.object { json in
                json.number(action.past, count)
                if isDryRun { json.flag("dryRun", true) }
            })
    }
}
