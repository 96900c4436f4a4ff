import PosternCore
import PosternHTTP
import PosternStore
import PosternUpstream

/// A request to change many messages: `{"upstream"?,"state"?,"ids"?,"dryRun"?}`, and the other members of a filter.
struct BulkRequest: Sendable {
    enum Action: String, Sendable {
        case retry, cancel

        /// The states that messages may be in, the default first.
        var states: [MessageState] {
            switch self {
            case .retry: [.failed, .dropped]
            case .cancel: [.queued]
            }
        }
    }

    let action: Action
    private(set) var filter = MessageFilter()
    /// Ascending. Nil means all messages that match the filter.
    private(set) var ids: [MessageID]?
    /// Whether to count the messages without changing them.
    private(set) var isDryRun = false

    init(_ action: Action) { self.action = action }

    static func read(_ body: [UInt8], _ action: Action, _ context: APIContext) throws(Problem) -> BulkRequest {
        try JSONParser.ofThisThread.parse(body) { (root) throws(Problem) in try parse(root, action, context) }
            .mapError { Problem($0, in: body) }.get()
    }

    /// The body of a request for one message, which may be empty: `{"dryRun"?}`.
    static func read(_ body: [UInt8], _ action: Action, of id: MessageID) throws(Problem) -> BulkRequest {
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
        _ root: JSONValue, _ action: Action, _ context: APIContext
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
        guard faults.isEmpty else { throw problem(faults) }
        request.filter.state = request.filter.state ?? action.states[0]
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
                return "must be \(action.states.map(\.name).joined(separator: " or "))"
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

    private static func problem(_ faults: PayloadErrors) -> Problem {
        Problem(
            slug: .invalidPayload, status: 422,
            detail: "The request body is not valid; nothing was changed. See `errors`.", members: faults.members)
    }

    // MARK: The messages it is about

    private static let perPage = 500

    /// Page by page, so that no transaction grows with the number of messages.
    func page(of outbox: Outbox, after cursor: MessageID?) throws(StoreError) -> (ids: [MessageID], next: MessageID?) {
        guard let ids else {
            let page = try outbox.messages(filter, after: cursor, limit: Self.perPage)
            return (page.messages.map(\.id), page.next)
        }
        let rest = ids.drop { id in cursor.map { id <= $0 } ?? false }
        var page: [MessageID] = []
        for id in rest.prefix(Self.perPage) {
            if let record = try outbox.message(id), filter.matches(record) { page.append(id) }
        }
        return (page, rest.count > Self.perPage ? rest.prefix(Self.perPage).last : nil)
    }

    /// Ids of messages that the caller may not see count as unknown.
    func visible(to caller: Caller?) -> BulkRequest {
        var request = self
        request.filter.visible = caller?.key.upstreams
        return request
    }

    func response(_ count: Int) -> HTTPResponse {
        let (member, status) =
            switch action {
            case .retry: ("retried", 202)
            case .cancel: ("cancelled", 200)
            }
        return .json(
            isDryRun ? 200 : status,
            JSONWriter.object { json in
                json.number(member, count)
                if isDryRun { json.flag("dryRun", true) }
            })
    }
}
