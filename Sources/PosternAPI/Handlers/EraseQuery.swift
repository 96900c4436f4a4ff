public import PosternCore
import PosternHTTP
public import PosternStore
import PosternUpstream

/// Whose messages are erased, as a caller says it: `{"upstream"?,"key"}` or `{"upstream"?,"pointer","value"}`, and `"dryRun"?`.
public struct EraseQuery: Sendable {
    private var upstream: UpstreamName?
    private var key: String?
    private var pointer: JSONPointer?
    /// The kind of the value, and its text.
    private var value: (kind: JSONValue.Kind, bytes: [UInt8])?
    private(set) var isDryRun = false

    private init() {}

    /// - Parameter context: Knows the upstreams; nil if that need not be checked.
    static func read(_ body: [UInt8], _ context: APIContext?) throws(Problem) -> EraseQuery {
        try JSONParser.ofThisThread.parse(body) { (root) throws(Problem) -> EraseQuery in
            var query = EraseQuery()
            let faults = query.take(root, context)
            guard faults.isEmpty else {
                throw Problem(
                    slug: .invalidPayload, status: 422,
                    detail: "The request body is not valid; nothing was changed. See `errors`.", members: faults.members
                )
            }
            return query
        }.mapError { Problem($0, in: body) }.get()
    }

    /// For a store that no gateway is using. Nil if `body` is not valid.
    public init?(_ body: String) {
        guard let query = try? Self.read(Array(body.utf8), nil) else { return nil }
        self = query
    }

    private mutating func take(_ root: JSONValue, _ context: APIContext?) -> PayloadErrors {
        var faults = PayloadErrors()
        if root.kind != .object { faults.add("", "must be an object") }
        for member in root.members {
            if let detail = take(member.key.string ?? "", member.value, context) {
                faults.add(JSONPointer.member(member.key), detail)
            }
        }
        guard faults.isEmpty else { return faults }
        if (pointer == nil) != (value == nil) || (key == nil) == (pointer == nil) {
            faults.add("", "must have either key, or pointer and value")
        }
        return faults
    }

    /// Returns what is wrong with a member; nil if nothing is.
    private mutating func take(_ name: String, _ value: JSONValue, _ context: APIContext?) -> String? {
        switch name {
        case "upstream":
            guard let text = value.string, let name = context.map({ $0.knownUpstream(text) }) ?? UpstreamName(text)
            else {
                return "must name an upstream that is configured or has messages here"
            }
            upstream = name
        case "key":
            guard value.isFilledString, let text = value.string else { return "must be a non-empty string" }
            key = text
        case "pointer":
            guard value.isFilledString, let place = value.string.flatMap({ JSONPointer($0) }) else {
                return "must be a JSON Pointer, which begins with a slash"
            }
            pointer = place
        case "value":
            switch value.kind {
            case .string where value.isFilledString: self.value = (.string, value.stringBytes ?? [])
            case .number: self.value = (.number, Array(value.bytes))
            default: return "must be a non-empty string or a number"
            }
        case "dryRun":
            guard value.kind == .true || value.kind == .false else { return "must be true or false" }
            isDryRun = value.kind == .true
        default: return "is unknown"
        }
        return nil
    }

    /// Throws if the caller may not use the upstream.
    func check(for caller: Caller?) throws(Problem) {
        if let caller, let upstream, !caller.mayUse(upstream) { throw Gatekeeper.foreign(upstream, to: caller) }
    }

    /// - Parameter visible: The upstreams that the caller may use; nil means all.
    public func request(visible: Set<UpstreamName>? = nil, by name: String? = nil) -> EraseRequest {
        var request = EraseRequest(selection, neutral: Self.neutral)
        (request.upstream, request.visible, request.isDryRun, request.by) = (upstream, visible, isDryRun, name)
        return request
    }

    private var selection: EraseRequest.Selection {
        guard let pointer, let value else { return .key(key ?? "") }
        return .payload { payload, ofEvent in
            let result = JSONParser.ofThisThread.parse(payload) { root -> Bool in
                guard let root = ofEvent ? root.kind == .object ? root[named: "payload"] : nil : root,
                    let found = pointer.value(in: root), found.kind == value.kind
                else { return false }
                return found.kind == .string ? found.stringBytes == value.bytes : found.bytes.elementsEqual(value.bytes)
            }
            return (try? result.get()) ?? false
        }
    }

    /// A response that only accepts has nothing of its messages. Any other is replaced by such a one.
    private static func neutral(_ response: [UInt8]) -> [UInt8] {
        let accepted = Array("202\n".utf8)
        return response.starts(with: accepted) || response.count == 13
            ? response : accepted + Array("Content-Type: application/json\n\n{}\n".utf8)
    }
}

extension EraseCounts {
    /// As the API shows it.
    public func json(isDryRun: Bool) -> String {
        JSONWriter.object { json in
            for state in MessageState.allCases { json.number(state.name, messages[state] ?? 0) }
            json.number("callbacks", callbacks)
            json.number("idempotencyRecords", idempotencyRecords)
            json.number("events", events)
            if isDryRun { json.flag("dryRun", true) }
            if isKeptByDatabase { json.string("note", Self.note) }
        }
    }
}

extension EraseCounts {
    private static let note =
        "Everything was deleted. PostgreSQL keeps it in dead rows until VACUUM, and in its write-ahead log and archive for as long "
        + "as these are kept."
}

extension EraseFailure {
    /// What happened, and what to do: sentences.
    public var detail: String {
        switch self {
        case .beingSent(let count):
            "\(count) messages are being sent, or were queued again meanwhile; not everything is erased. Repeat the request."
        case .heldUp:
            "The messages are erased, but a long read, such as a backup, keeps the files from being overwritten. Repeat the "
                + "request when it has ended."
        case .store(let error): "\(error)"
        }
    }
}
