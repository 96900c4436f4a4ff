import PosternCore
import PosternUpstream

/// `POST /v1/{name}/proxy/{command}/{action}`: a call that is made at once and whose response is that of the platform.
struct Proxy: Sendable {
    let client: Client

    var resource: UpstreamRoute {
        UpstreamRoute(
            .post, "proxy/{command}/{action}", query: ["account", "accounts", "customer", "timezone"], .perform(call))
    }

    private func call(
        _ request: UpstreamRouteRequest, _ context: any UpstreamRouteContext
    ) async throws(UpstreamRouteResponse) -> UpstreamRouteResponse {
        let content = try call(request)
        let deadline = context.time.instant + request.patience
        let session = try await client.session(of: request, context)
        let call = Client.Call(content: content, session: session, deadline: deadline)
        var (body, headers) = try await client.reply(to: call, context).passedOn(in: session, now: context.time.now)
        // Confirms a preference of the request (RFC 7240, section 3).
        headers["Preference-Applied"] = request.wait.map { "wait=\($0)" }
        return .forwarded(body, headers: headers)
    }

    private func call(_ request: UpstreamRouteRequest) throws(UpstreamRouteResponse) -> StreamOneCall {
        let command = request.parameters["command"] ?? ""
        let action = request.parameters["action"] ?? ""
        guard StreamOneCall.isName(command), StreamOneCall.isName(action) else {
            throw .notFound("Commands and actions are names of lower-case letters and digits.")
        }
        let scope = try request.scope(defaultAccount: client.platform.defaultAccount)
        let arguments = try request.withObject { body throws(InvalidPayload) in
            var faults = PayloadErrors()
            let arguments = StreamOneCall.arguments(body, at: "", &faults)
            guard faults.isEmpty else { throw InvalidPayload(faults) }
            return arguments
        }
        let timezone = request.query["timezone"].flatMap { $0.isEmpty ? nil : $0 }
        return StreamOneCall(
            command: command, action: action, scope: scope, timezone: timezone, arguments: arguments)
    }
}

extension Client.CallResponse {
    /// The platform's response is passed on unchanged, including rejections. Only in a cached response, the remaining
    /// time of the session is the current one.
    func passedOn(in session: Session?, now: Timestamp) -> (body: [UInt8], headers: [String: String]) {
        guard let age else { return (answer.bytes, ["X-Cache": "miss"]) }
        let left = session.map { max(0, ($0.deadline - now).components.seconds) }
        let shown = left.map { answer.bytes(sessionTimeout: $0) } ?? answer.bytes
        return (shown, ["X-Cache": "hit", "Age": String(age.components.seconds)])
    }
}

extension Client {
    /// The session that the request's `Postern-Session` names; nil without that header.
    func session(
        of request: UpstreamRouteRequest, _ context: any UpstreamRouteContext
    ) async throws(UpstreamRouteResponse) -> Session? {
        guard let id = request.header("Postern-Session") else { return nil }
        guard platform.actor.kind == .application else { throw .needsApplication }
        guard let session = try await session(id, context) else {
            throw .problem(
                slug: .unknownSession, status: 409,
                detail: "There is no such session: it has ended, or was never begun here. Log in again.")
        }
        return session
    }

    func session(_ id: String, _ context: any UpstreamRouteContext) async throws(UpstreamRouteResponse) -> Session? {
        do throws(StateError) {
            return try await sessions.find(id, context)
        } catch {
            throw .problem(slug: .internal, status: 500, detail: "\(error)")
        }
    }

    func reply(to call: Call, _ context: any UpstreamRouteContext) async throws(UpstreamRouteResponse) -> CallResponse {
        do throws(CallFailure) {
            return try await perform(call, context)
        } catch {
            throw error.answer
        }
    }
}

extension UpstreamRouteRequest {
    /// How long the caller waits: its `Prefer: wait=N`, or else 30 s.
    var patience: Duration { .seconds(wait ?? 30) }

    /// From `account`, `accounts` (with commas between) or `customer` of the query.
    func scope(defaultAccount: String?) throws(UpstreamRouteResponse) -> Scope {
        let accounts = query["accounts"].map { text in
            text.isEmpty ? [] : text.split(separator: ",", omittingEmptySubsequences: false).map(String.init)
        }
        guard accounts?.contains("") != true else {
            throw .problem(slug: .badRequest, status: 400, detail: "One of the accounts is empty.")
        }
        let given = Scope.RequestedScope(account: query["account"], accounts: accounts, customer: query["customer"])
        guard let fault = given.faults.first else { return given.scope(defaultAccount: defaultAccount) }
        throw .problem(slug: .badRequest, status: 400, detail: "\(fault.name) \(fault.detail).")
    }

    /// The result of `read` for the JSON object of the body; an empty body is an empty object.
    func withObject<R>(_ read: (JSONValue) throws(InvalidPayload) -> R) throws(UpstreamRouteResponse) -> R {
        let parsed: Result<R, JSONError>
        do throws(InvalidPayload) {
            parsed = try JSONParser.ofThisThread.parse(body.isEmpty ? Array("{}".utf8) : body) {
                value throws(InvalidPayload) in
                guard value.kind == .object else { throw InvalidPayload([PayloadError("", "must be an object")]) }
                return try read(value)
            }
        } catch {
            throw .problem(
                slug: .invalidPayload, status: 422, detail: "The platform would reject this call.",
                faults: error.faults)
        }
        switch parsed {
        case .success(let value): return value
        case .failure(let fault): throw .notJSON(fault, in: body)
        }
    }
}
