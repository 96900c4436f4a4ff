import PosternCore
import PosternJSON

/// `POST /v1/{name}/proxy/{command}/{action}`: a call that is made at once and answered with the platform's answer.
struct StreamOneProxy: Sendable {
    let desk: StreamOneDesk

    var resource: Resource {
        Resource(
            .post, "proxy/{command}/{action}", query: ["account", "accounts", "customer", "timezone"], .perform(call))
    }

    private func call(
        _ request: ResourceRequest, _ tools: any ResourceTools,
        _ completion: @escaping @Sendable (ResourceAnswer) -> Void
    ) {
        let call: StreamOneCall
        do throws(StreamOneRefusal) {
            call = try self.call(request)
        } catch {
            return completion(error.answer)
        }
        let deadline = tools.time.instant + request.patience
        desk.findSession(of: request, tools, orAnswer: completion) { session in
            desk.fetch(.init(call: call, session: session, deadline: deadline), tools) { outcome in
                let shown = Self.shown(outcome, in: session, now: tools.time.now)
                completion(request.wait.map { shown.applying("wait=\($0)") } ?? shown)
            }
        }
    }

    private func call(_ request: ResourceRequest) throws(StreamOneRefusal) -> StreamOneCall {
        let command = request.parameters["command"] ?? ""
        let action = request.parameters["action"] ?? ""
        guard StreamOneCall.isName(command), StreamOneCall.isName(action) else {
            throw StreamOneRefusal(.notFound("Commands and actions are names of lower-case letters and digits."))
        }
        let scope = try request.scope(defaultAccount: desk.platform.defaultAccount)
        let arguments = try request.withObject { body throws(InvalidPayload) in
            var faults: [PayloadFault] = []
            let arguments = StreamOneCall.arguments(body, at: "", &faults)
            guard faults.isEmpty else { throw InvalidPayload(faults) }
            return arguments
        }.get()
        let timezone = request.query["timezone"].flatMap { $0.isEmpty ? nil : $0 }
        return StreamOneCall(
            command: command, action: action, scope: scope, timezone: timezone, arguments: arguments)
    }

    private static func shown(
        _ outcome: StreamOneDesk.Outcome, in session: StreamOneSession?, now: Timestamp
    ) -> ResourceAnswer {
        switch outcome {
        case .problem(let trouble): trouble.answer
        case .answer(let answer, let age): answer.passedOn(age: age, in: session, now: now)
        }
    }
}

extension StreamOneAnswer {
    /// The platform's words are passed on as they came, refusals too. Only what a session has left is the present
    /// number where the answer was kept.
    func passedOn(age: Duration?, in session: StreamOneSession?, now: Timestamp) -> ResourceAnswer {
        guard let age else { return .json(String(decoding: bytes, as: UTF8.self), headers: ["X-Cache": "miss"]) }
        let left = session.map { max(0, ($0.deadline - now).components.seconds) }
        let shown = left.map { bytes(sessionTimeout: $0) } ?? bytes
        return .json(
            String(decoding: shown, as: UTF8.self),
            headers: ["X-Cache": "hit", "Age": String(age.components.seconds)])
    }
}

/// Why a request is answered without asking the platform.
struct StreamOneRefusal: Error {
    let answer: ResourceAnswer
    init(_ answer: ResourceAnswer) { self.answer = answer }
}

extension StreamOneDesk {
    /// Goes on with the session that the request's `Postern-Session` names, with nil without that header; if there is no
    /// such session the caller is told.
    func findSession(
        of request: ResourceRequest, _ tools: any ResourceTools,
        orAnswer refuse: @escaping @Sendable (ResourceAnswer) -> Void,
        then: @escaping @Sendable (StreamOneSession?) -> Void
    ) {
        guard let id = request.header("Postern-Session") else { return then(nil) }
        guard platform.actor.kind == .application else { return refuse(.needsApplication) }
        sessions.find(id, tools) { session in
            guard let session else { return refuse(.unknownSession) }
            then(session)
        }
    }
}

extension ResourceAnswer {
    /// Says that a preference of the request was heeded (RFC 7240, section 3).
    fileprivate func applying(_ preference: String) -> Self {
        guard case .json(let text, let status, var headers) = self else { return self }
        headers["Preference-Applied"] = preference
        return .json(text, status: status, headers: headers)
    }

    fileprivate static let unknownSession = ResourceAnswer.problem(
        slug: .unknownSession, status: 409,
        detail: "There is no such session: it has ended, or was never begun here. Log in again.")
}

extension ResourceRequest {
    /// How long the caller waits: its `Prefer: wait=N`, else 30 s.
    var patience: Duration { .seconds(wait ?? 30) }

    /// The seconds of `Prefer: wait=N` (RFC 7240), 1 to 60.
    var wait: Int? {
        for (name, value) in headers where name.lowercased() == "prefer" {
            for preference in value.split(whereSeparator: { $0 == "," || $0 == ";" }) {
                let parts = preference.split(separator: "=").map { $0.filter { $0 != " " && $0 != "\"" } }
                guard parts.count == 2, parts[0].lowercased() == "wait", let seconds = Int(parts[1]), seconds > 0 else {
                    continue
                }
                return min(seconds, 60)
            }
        }
        return nil
    }

    /// From `account`, `accounts` (with commas between) or `customer` of the query.
    func scope(defaultAccount: String?) throws(StreamOneRefusal) -> StreamOneScope {
        let accounts = query["accounts"].map { text in
            text.isEmpty ? [] : text.split(separator: ",", omittingEmptySubsequences: false).map(String.init)
        }
        guard accounts?.contains("") != true else {
            throw StreamOneRefusal(
                .problem(slug: .badRequest, status: 400, detail: "One of the accounts is empty."))
        }
        let given = StreamOneScope.Given(account: query["account"], accounts: accounts, customer: query["customer"])
        guard let fault = given.faults.first else { return given.scope(defaultAccount: defaultAccount) }
        throw StreamOneRefusal(
            .problem(slug: .badRequest, status: 400, detail: "\(fault.name) \(fault.detail)."))
    }

    /// Gives `read` the JSON object of the body; an empty body is an empty object.
    func withObject<R>(
        _ read: (JSONValue) throws(InvalidPayload) -> R
    ) -> Result<R, StreamOneRefusal> {
        do throws(InvalidPayload) {
            let parsed = try JSONParser.ofThisThread.parse(body.isEmpty ? Array("{}".utf8) : body) {
                value throws(InvalidPayload) in
                guard value.kind == .object else { throw InvalidPayload([PayloadFault("", "must be an object")]) }
                return try read(value)
            }
            return parsed.mapError {
                StreamOneRefusal(.problem(slug: .invalidJSON, status: 400, detail: "The body is no JSON: \($0)."))
            }
        } catch {
            let faults = error.faults
            return .failure(
                StreamOneRefusal(
                    .problem(
                        slug: .invalidPayload, status: 422, detail: "The platform would not take this.",
                        faults: faults)))
        }
    }
}
