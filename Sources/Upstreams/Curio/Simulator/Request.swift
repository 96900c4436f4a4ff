import PosternSimulatorKit

/// A request as far as it can be understood without the requests before it.
struct Request {
    let endpoint: Endpoint
    let form: CurioForm
    /// Empty if `findings` reject the request.
    private(set) var actions: [Action] = []
    /// Set by this request, with their values.
    private(set) var tags: [String: String] = [:]
    private(set) var findings: Findings

    var visitor: String { form["visitorCode"] }
    /// The code at the top level; empty if the endpoint has none.
    var session: String { form["sessionCode"] }
    /// Nil if the endpoint has none.
    var timeoutMinutes: Int? { Int(form["sessionTimeout"]) }
    /// Nil for a request without a device block.
    let device: UInt64?

    enum Mode: String { case online, pdr, ocr }
    var mode: Mode {
        switch endpoint {
        case .batch: .pdr
        case .offline: .ocr
        case .visitCreate, .hitCreate, .hitEnd, .eventCreate, .eventEnd, .visitEnd, .pushData, .location, .userTag,
            .unregister, .profileTags, .pushHistory:
            .online
        }
    }

    init(_ endpoint: Endpoint, _ request: SimulatedRequest, nowMs: Int64) {
        var findings = Findings()
        Self.checkHeaders(of: request, &findings)
        let form = CurioForm(request.body, &findings)
        self.form = form
        self.endpoint = endpoint
        let block = (Endpoint.device + Endpoint.deviceExtras).compactMap { name in
            form.values[name].map { (name, $0) }
        }
        let hasBlock = endpoint == .visitCreate || endpoint == .offline
        device = hasBlock ? digest(of: block.map { "\($0)=\(quoted($1))" }.joined(separator: ",")) : nil
        self.findings = findings
        checkParameters()
        actions = endpoint == .batch || endpoint == .offline ? records(nowMs: nowMs, block) : single(block)
        if self.findings.isRefused { actions = [] }
    }

    // MARK: Headers

    /// Headers that clients or their platforms send.
    private static let usualHeaders: Set = [
        "host", "user-agent", "content-type", "content-length", "connection", "accept", "accept-language",
        "accept-encoding",
    ]

    private static func checkHeaders(of request: SimulatedRequest, _ findings: inout Findings) {
        if request.query != nil { findings.record("a query string") }
        switch request.header("Content-Type") {
        case nil: findings.record("no Content-Type")
        case "application/x-www-form-urlencoded": break
        case _?: findings.record("a Content-Type other than application/x-www-form-urlencoded")
        }
        if !isUserAgent(request.header("User-Agent") ?? "") {
            findings.record("a User-Agent that is not of the form IOS CurioSDK v1.2.4")
        }
        if request.header("Content-Length") == nil { findings.record("no Content-Length") }
        for name in Set(request.headers.map { $0.name.lowercased() }).subtracting(usualHeaders).sorted() {
            let isPlain = name.utf8.count <= 40 && name.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7f }
            findings.record("a header that no client sends\(isPlain ? ": \(name)" : "")")
        }
    }

    private static func isUserAgent(_ value: String) -> Bool {
        let prefix = "IOS CurioSDK v"
        guard value.hasPrefix(prefix) else { return false }
        return value.dropFirst(prefix.count).split(separator: ".", omittingEmptySubsequences: false)
            .allSatisfy { isDigits($0) }
    }

    // MARK: Parameters

    private mutating func checkParameters() {
        let known = Set(endpoint.required + endpoint.optional)
        for name in endpoint.required where form.values[name] == nil {
            findings.refuse("\(endpoint.rawValue) without \(name)")
        }
        if form.values.keys.contains(where: { !known.contains($0) }) {
            findings.record("\(endpoint.rawValue) with a parameter that does not belong there")
        }
        let elsewhere = Values.twiceEncoded.union(["data", "userTags"])
        for name in known.subtracting(elsewhere).sorted() {
            guard let value = form.values[name] else { continue }
            Values.check(name, value, &findings)
        }
    }

    // MARK: Actions

    private mutating func records(nowMs: Int64, _ block: [(name: String, value: String)]) -> [Action] {
        var actions = CurioData.actions(in: form["data"], visitor: visitor, nowMs: nowMs, &findings)
        for index in actions.indices where actions[index].kind == .sessionStart || actions[index].kind == .sessionEnd {
            if mode == .pdr { findings.record("a session's start or end in /batch/create") }
            if actions[index].kind == .sessionStart { actions[index].texts = block }
        }
        return actions
    }

    private mutating func single(_ block: [(name: String, value: String)]) -> [Action] {
        guard let kind = singleKind else { return [] }
        var action = Action(kind: kind, visitor: visitor, session: session)
        action.texts = kind == .sessionStart ? block : texts(of: kind)
        if kind.opening != nil { action.code = kind.codeName.map { form[$0] } }
        if kind == .userTags { tags = CurioData.tags(in: form["userTags"], &findings) }
        return [action]
    }

    private mutating func texts(of kind: Action.Kind) -> [(name: String, value: String)] {
        var texts: [(name: String, value: String)] = []
        for name in kind.fields {
            guard let value = form.values[name] else { continue }
            let isInner = Values.twiceEncoded.contains(name)
            texts.append((name, isInner ? CurioData.checked(name, value, of: kind, &findings) : value))
        }
        return texts
    }

    /// Nil for the two queries. A token's registration with a custom id and a custom id look the same.
    private var singleKind: Action.Kind? {
        switch endpoint {
        case .visitCreate: .sessionStart
        case .visitEnd: .sessionEnd
        case .hitCreate: .screenStart
        case .hitEnd: .screenEnd
        case .eventCreate: .event
        case .eventEnd: .eventEnd
        case .pushData:
            !form["pushId"].isEmpty ? .notificationRead : form.values["customId"] != nil ? .customID : .pushToken
        case .location: .location
        case .userTag: .userTags
        case .unregister: .unregister
        case .batch, .offline, .profileTags, .pushHistory: nil
        }
    }
}
