import PosternCore
import PosternHTTP
import PosternStore
import PosternUpstream

/// The body of a request to replay: `{"id"?,"upstream","to"?,"kind"?,"key"?,"settledAfter"?,"settledBefore"?,"dryRun"?}`.
struct ReplayRequest: Sendable {
    /// Nil if it names none.
    private(set) var id: String?
    private(set) var upstream: UpstreamName?
    private(set) var to: UpstreamName?
    /// Which of its messages.
    private(set) var filter = MessageFilter()
    /// Whether to count the messages without queuing any.
    private(set) var isDryRun = false

    static func read(_ body: [UInt8], _ context: APIContext) throws(Problem) -> ReplayRequest {
        try JSONParser.ofThisThread.parse(body) { (root) throws(Problem) in try parse(root, context) }
            .mapError { Problem($0, in: body) }.get()
    }

    private static func parse(_ root: JSONValue, _ context: APIContext) throws(Problem) -> ReplayRequest {
        var request = ReplayRequest()
        var faults = PayloadErrors()
        if root.kind != .object { faults.add("", "must be an object") }
        for member in root.members {
            if let detail = request.take(member.key.string ?? "", member.value, context) {
                faults.add(JSONPointer.member(member.key), detail)
            }
        }
        if faults.isEmpty, request.upstream == nil { faults.add("/upstream", "is required") }
        guard faults.isEmpty else { throw BulkRequest.problem(faults) }
        return request
    }

    /// Returns what is wrong with a member; nil if nothing is.
    private mutating func take(_ name: String, _ value: JSONValue, _ context: APIContext) -> String? {
        if name == "dryRun" {
            guard value.kind == .true || value.kind == .false else { return "must be true or false" }
            isDryRun = value.kind == .true
            return nil
        }
        guard let text = value.string else {
            return ["id", "upstream", "to", "kind", "key", "settledAfter", "settledBefore"].contains(name)
                ? "must be a string" : "is unknown"
        }
        switch name {
        case "id":
            guard Self.isID(text) else { return Self.idRule }
            id = text
        case "upstream":
            upstream = context.knownUpstream(text)
            if upstream == nil { return "must name an upstream that is configured or has messages here" }
        case "to":
            to = context.upstream(named: text)?.name
            if to == nil { return "must name a configured upstream" }
        case "kind", "key", "settledBefore": return filter.set(name, to: text)
        case "settledAfter":
            filter.settledAfter = Timestamp(rfc3339: text)
            if filter.settledAfter == nil { return MessageFilter.timeRule }
        default: return "is unknown"
        }
        return nil
    }

    private static let idRule = "must have 1 to 64 letters, digits, `-`, and `_`"

    private static func isID(_ text: String) -> Bool {
        (1...64).contains(text.utf8.count)
            && text.utf8.allSatisfy { $0.isAlphanumeric || "-_".utf8.contains($0) }
    }

    /// What is stored of it. The messages go to the same upstream unless it names another one.
    func replay(_ id: String, by key: String?, in outbox: Outbox, at now: Timestamp) -> Replay? {
        guard let upstream else { return nil }
        var request = Replay.Request(upstream: upstream, to: to ?? upstream)
        (request.kind, request.key) = (filter.kind?.description, filter.key)
        request.settledAfterMs = filter.settledAfter?.milliseconds
        request.settledBeforeMs = filter.settledBefore?.milliseconds
        let number = outbox.names.first { $0.value == upstream }?.key
        let newest = MessageID(rawValue: Int64(number.map { outbox.ledger(of: $0).lastID } ?? 0))
        return Replay(id: id, request, by: key, newest: newest, at: now)
    }
}
