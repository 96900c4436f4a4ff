import PosternCore
import PosternUpstream

/// What the SDK is checked against.
struct SDKEndpoint: Sendable {
    let organization: String
    let application: String
    let apiKey: String
    let rules: Rules
    /// Whether what breaks a rule of its kind is accepted, to be stored as failed.
    let keepsInvalid: Bool

    init(_ settings: AppServicesSettings) {
        organization = settings.organization
        application = settings.application
        apiKey = settings.apiKey
        // `sdk.maxBodyBytes` bounds the request.
        rules = Rules(
            provider: settings.provider, takesMonitoring: settings.takesMonitoring, maxMonitoringBytes: .max)
        keepsInvalid = settings.sdk.whenInvalid == .deadLetter
    }
}

/// A call that has passed all checks, with what it becomes.
struct IncomingCall {
    let call: SDKCall
    /// The names in the path and the body; empty where the call has none.
    var user = ""
    var device = ""
    var group = ""
    /// What is stored, with `auth` for a call with a token; empty for a call that is not stored.
    var payload = ""
    /// The token that came with it; nil for monitoring.
    var credential: HeldCredential?
    /// Why it is stored as failed. If so, its payload has no `auth`.
    var invalid: InvalidPayload?

    /// A request as it arrived.
    struct Received {
        let method: String
        /// Below the prefix, as sent, without the query.
        let path: String
        let query: String
        let headers: [(name: String, value: String)]
        let body: [UInt8]
        let at: Timestamp

        func header(_ name: String) -> String? { headers.first { $0.name.lowercased() == name }?.value }
    }

    /// Checks in the order of the platform: the application, the key, the presence of a token, the path and the method, and
    /// the body. Throws the refusal of the first that fails.
    static func read(_ received: Received, at endpoint: SDKEndpoint) throws(SDKAnswer) -> Self {
        let head = try Head(received, at: endpoint)
        guard let auth = head.auth else {
            return try monitoring(head.call, file: head.parameters["file"] ?? "", received, endpoint)
        }
        return try head.call.hasBody
            ? data(head.call, head.parameters, auth, received, endpoint)
            : checked(Draft(head.call, head.parameters), auth, received, endpoint)
    }

    /// What is known before the body.
    struct Head {
        let call: SDKCall
        let parameters: [String: String]
        /// Nil for monitoring.
        let auth: HeldCredential?
    }
}

extension IncomingCall.Head {
    /// Throws the refusal of a request that fails one of the checks before the body.
    init(_ received: IncomingCall.Received, at endpoint: SDKEndpoint) throws(SDKAnswer) {
        var segments = received.path.split(separator: "/").map { Self.decoded($0) }
        guard segments.count >= 2, segments[0] == endpoint.organization, segments[1] == endpoint.application else {
            throw .error(.noApplication, at: received.at)
        }
        segments.removeFirst(2)
        if received.path.hasSuffix("/") { segments.append("") }
        var key = received.query.split(separator: "&").last { $0.hasPrefix("api_key=") }?.dropFirst("api_key=".count)
        // Release 2.0.11 and later append the name of a group to the query (quirk 1).
        if received.method == "GET", segments == ["groups"], let found = key, let slash = found.firstIndex(of: "/") {
            segments.append(Self.decoded(found[found.index(after: slash)...]))
            key = found[..<slash]
        }
        let match = SDKCall.match(received.method, segments)
        switch match {
        case .call(let call, let parameters) where call.isMonitoring:
            guard endpoint.rules.takesMonitoring else { throw .error(.noMonitoring, at: received.at) }
            self.init(call: call, parameters: parameters, auth: nil)
            return
        case .wrongMethod(let allowed, isMonitoring: true): throw .wrongMethod(allowed, at: received.at)
        default: break
        }
        // Digests, so that the time of the comparison says nothing about the key.
        guard TextDigest.of([Self.decoded(key ?? "")]) == TextDigest.of([endpoint.apiKey]) else { throw .invalidKey }
        guard let auth = Self.auth(of: received) else { throw .error(.noCredentials, at: received.at) }
        switch match {
        case .nowhere: throw .error(.notFound, at: received.at)
        case .wrongMethod(let allowed, _): throw .wrongMethod(allowed, at: received.at)
        case .noDevice: throw .error(.invalid, at: received.at, "There is no device id")
        case .call(let call, let parameters):
            self.init(call: call, parameters: parameters, auth: auth)
        }
    }

    /// Percent-decoded; as sent if that is not valid, since the SDK encodes nothing.
    private static func decoded(_ text: Substring) -> String {
        guard text.utf8.contains(UInt8(ascii: "%")) else { return String(text) }
        var bytes: [UInt8] = []
        var rest = text.utf8[...]
        while let byte = rest.popFirst() {
            let digits = rest.prefix(2).compactMap(\.hexadecimalValue)
            guard byte == UInt8(ascii: "%"), digits.count == 2 else {
                bytes.append(byte)
                continue
            }
            bytes.append(UInt8(digits[0] << 4 | digits[1]))
            rest = rest.dropFirst(2)
        }
        return String(validating: bytes, as: UTF8.self) ?? String(text)
    }

    /// The token in the headers; nil if there is none that could be one.
    private static func auth(of received: IncomingCall.Received) -> HeldCredential? {
        let provider = received.header("x-auth-provider").flatMap(Provider.init(rawValue:))
        var token: String
        switch provider {
        case .pi:
            token = received.header("authorization") ?? ""
            if token.lowercased().hasPrefix("bearer ") { token.removeFirst("bearer ".count) }
        case .mi: token = received.header("x-authorization") ?? ""
        case nil: return nil
        }
        guard let provider, Auth.isToken(token) else { return nil }
        return HeldCredential(value: Array(token.utf8), note: provider.rawValue)
    }
}

// MARK: - Bodies

extension IncomingCall {
    /// A call with the members of its message: names and JSON texts.
    private struct Draft {
        var request: IncomingCall
        var members: [(String, String)] = []

        init(_ call: SDKCall, _ parameters: [String: String] = [:]) {
            request = IncomingCall(
                call: call, user: parameters["user"] ?? "", device: parameters["device"]?.lowercased() ?? "",
                group: parameters["group"] ?? "")
        }

        func payload(_ auth: HeldCredential?) -> String {
            let names = [("userId", request.user), ("deviceId", request.device), ("group", request.group)]
            var all = names.filter { !$0.1.isEmpty }.map { ($0, JSONEscapes.quoted($1)) } + members
            if let auth {
                let token = JSONEscapes.quoted(String(decoding: auth.value, as: UTF8.self))
                all.append(("auth", #"{"provider":"\#(auth.note)","token":\#(token)}"#))
            }
            return "{" + all.map { "\"\($0)\":\($1)" }.joined(separator: ",") + "}"
        }
    }

    private static func data(
        _ call: SDKCall, _ parameters: [String: String], _ auth: HeldCredential, _ received: Received,
        _ endpoint: SDKEndpoint
    ) throws(SDKAnswer) -> Self {
        let read = JSONParser.ofThisThread.parseWithLoneSurrogates(received.body) { root -> Draft? in
            guard root.kind == .object else { return nil }
            var draft = Draft(call, parameters)
            switch call {
            case .user: draft.request.user = root["username"]?.string ?? ""
            case .createGroup: draft.request.group = root["path"]?.string ?? ""
            default: draft = device(root, parameters)
            }
            return draft
        }
        guard case .success(let draft?) = read else { throw .error(.notJSON, at: received.at) }
        return try checked(draft, auth, received, endpoint)
    }

    private static let suffix = ".notifier.id"

    /// `PUT` of a device: preferences if it has a `mobileplatform`, since the SDK then echoes the whole entity, otherwise a
    /// registration, or the end of one if the push token is empty.
    private static func device(_ root: JSONValue, _ parameters: [String: String]) -> Draft {
        if let platform = root["mobileplatform"] {
            var draft = Draft(.preferences, parameters)
            draft.members = [("userId", "null")]
            if let lists = platform["preferences"] {
                // Both as a whole, never changes of entries.
                let texts = ["blacklist", "whitelist"].map { name in
                    "\"\(name)\":" + (lists[named: name].map { String(decoding: $0.bytes, as: UTF8.self) } ?? "{}")
                }
                let isObject = lists.kind == .object
                draft.members.append(("preferences", isObject ? "{\(texts.joined(separator: ","))}" : "7"))
            }
            return draft
        }
        let notifiers = root.members.compactMap { key, value -> (name: String, token: String)? in
            guard let name = key.string, name.hasSuffix(suffix), let token = value.string else { return nil }
            return (String(name.dropLast(suffix.count)), token)
        }
        let notifier = notifiers.first { !$0.token.isEmpty } ?? notifiers.first
        let isGone = notifier?.token.isEmpty ?? false
        var draft = Draft(isGone ? .unregisterDevice : .device, parameters)
        if let notifier { draft.members.append(("notifier", JSONEscapes.quoted(notifier.name))) }
        guard !isGone else { return draft }
        // As the device prints its bytes: in angle brackets, with spaces.
        let token = (notifier?.token ?? "").filter { !"<> ".contains($0) }
        draft.members.append(("deviceToken", JSONEscapes.quoted(token)))
        for name in ["deviceModel", "devicePlatform", "deviceOSVersion"] {
            if let text = root[named: name], text.isFilledString {
                draft.members.append((name, String(decoding: text.bytes, as: UTF8.self)))
            }
        }
        return draft
    }

    private static func monitoring(
        _ call: SDKCall, file: String, _ received: Received, _ endpoint: SDKEndpoint
    ) throws(SDKAnswer) -> Self {
        var draft = Draft(call)
        switch call {
        case .crash:
            let text = String(decoding: received.body, as: UTF8.self)
            draft.members = [("name", JSONEscapes.quoted(file)), ("text", JSONEscapes.quoted(text))]
            return try checked(draft, nil, received, endpoint)
        case .metrics:
            draft.request.payload = String(decoding: received.body, as: UTF8.self)
            return try checked(draft, nil, received, endpoint)
        default: return draft.request
        }
    }

    /// Builds the payload and checks it by the rules of its kind.
    private static func checked(
        _ draft: Draft, _ auth: HeldCredential?, _ received: Received, _ endpoint: SDKEndpoint
    ) throws(SDKAnswer) -> Self {
        var request = draft.request
        request.credential = auth
        if request.payload.isEmpty { request.payload = draft.payload(auth) }
        // A look-up has the rules of what is created.
        let kind = request.call.kind ?? .createGroup
        let rules = endpoint.rules
        let read = JSONParser.ofThisThread.parseWithLoneSurrogates(Array(request.payload.utf8)) {
            root -> InvalidPayload? in
            do throws(InvalidPayload) {
                _ = try rules.check(root, as: kind, now: received.at, maxFaults: 1)
                return nil
            } catch {
                return error
            }
        }
        switch read {
        case .failure: throw .error(.notJSON, at: received.at)
        case .success(let invalid?):
            if endpoint.keepsInvalid, request.call.kind != nil {
                request.invalid = invalid
                if auth != nil { request.payload = draft.payload(nil) }
                return request
            }
            throw .error(.invalid, at: received.at, invalid.faults.kept.first.map(text))
        case .success(nil): break
        }
        if request.call.kind == nil { request.payload = "" }
        return request
    }

    private static func text(_ fault: PayloadError) -> String {
        let name = fault.pointer.drop { $0 == "/" }
        return name.isEmpty ? "The request \(fault.detail)" : "\(name) \(fault.detail)"
    }
}

extension SDKCall {
    fileprivate var hasBody: Bool { [.device, .user, .createGroup].contains(self) }
}
