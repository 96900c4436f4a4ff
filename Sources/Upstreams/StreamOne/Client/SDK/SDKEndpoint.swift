package import PosternCore
package import PosternUpstream

/// The platform's API in the protocol of its own SDKs, for what uses the gateway as its `apiUrl` (the specification's
/// section 10): `POST /v1/{name}/api/{command}/{action}`, and the same below the prefix of `sdk`.
///
/// Their calls are verified, then made like any other: cached by the safe key, shared, signed again. Every result has
/// the form of the platform's responses, because the SDKs cannot read any other.
struct SDKEndpoint: Sendable {
    let client: Client

    private static let template = "api/{command}/{action}"

    /// Order and duplicates in the query matter, and the body is a form: both are validated here. The SDKs authenticate
    /// by their own signature, not by an API key.
    var resource: UpstreamRoute {
        UpstreamRoute(.post, Self.template, query: nil, access: .open, body: .any, .perform(answer))
    }

    private func answer(
        _ request: UpstreamRouteRequest, _ context: any UpstreamRouteContext
    ) async throws(UpstreamRouteResponse) -> UpstreamRouteResponse {
        do throws(RefusedCall) {
            return switch try await call(request, context) {
            case .passedOn(let body, let headers): .forwarded(body, headers: headers)
            case .stored(let answer): .forwarded(answer.body)
            }
        } catch {
            // PHP reads nothing but HTTP 200.
            return .json(error.text)
        }
    }

    /// How a call has ended.
    private enum Reply {
        /// The platform has answered it, now or when it was cached.
        case passedOn([UInt8], headers: [String: String])
        /// It was queued, or there was no room for it.
        case stored(SDKAnswer)
    }

    private func call(
        _ request: UpstreamRouteRequest, _ context: any UpstreamRouteContext
    ) async throws(RefusedCall) -> Reply {
        // An empty key is known to every client.
        guard client.platform.hasCredentials else { throw CallFailure.noCredentials.refusal }
        let sent = try SDKCall(request, by: client.platform.actor)
        let deadline = context.time.instant + request.patience
        let session = try await session(of: sent, context)
        try await check(sent, in: session, bytes: request.body.count, context)
        let content = try sent.whole()
        let queue = session == nil && client.actions.mayBeQueued(content) ? context.sdk : nil
        if let queue, try await isQueuing(content, queue) { return try await store(content, in: queue) }
        let call = Client.Call(content: content, session: session, deadline: deadline)
        let reply: Client.CallResponse
        do throws(CallFailure) {
            reply = try await client.perform(call, context)
        } catch {
            if let queue, error.isAway { return try await store(content, in: queue) }
            // It has ended for its SDK, whatever the platform's response is.
            if sent.path == "/api/session/delete", let session { await client.forget(session, context) }
            throw error.refusal
        }
        // A new session has to be known before its first call arrives.
        if sent.path == "/api/session/create", reply.answer.isSuccess,
            let begun = Session(reply.answer, now: context.time.now)
        {
            await client.sessions.add(begun, context)
        }
        let (body, headers) = reply.passedOn(in: session, now: context.time.now)
        return .passedOn(body, headers: headers)
    }

    private func session(
        of sent: SDKCall, _ context: any UpstreamRouteContext
    ) async throws(RefusedCall) -> Session? {
        guard let id = sent.session else { return nil }
        do throws(StateError) {
            return try await client.sessions.find(id, context)
        } catch {
            throw .init(1, "\(error)")
        }
    }

    /// Signs for sessions that do not exist, so that a check of these takes as long as that of others.
    private static let keyOfNoSession = UUIDText.version4(ValidationContext.systemRandom())

    /// Returns if the call is authentic. A stranger does not learn whether there is a session of that id.
    private func check(
        _ sent: SDKCall, in session: Session?, bytes: Int, _ context: any UpstreamRouteContext
    ) async throws(RefusedCall) {
        let isOutside = sent.session == nil
        let sessionKey = session?.key ?? String(decoding: Self.keyOfNoSession, as: UTF8.self)
        let key = client.platform.psk + (isOutside ? "" : sessionKey)
        let proof: SDKCall.Proof
        do throws(OverloadError) {
            proof = try await context.check(bytes) { sent.proof(with: key, isCancelled: $0) }
            if proof == .signed { try context.reserveToParse(bytes) }
        } catch {
            throw .init(8, "too many large calls are in progress; repeat this one later", .noRoom)
        }
        switch proof {
        case .signed where isOutside || session != nil: return
        case .abandoned: throw CallFailure.abandoned.refusal
        case .signed, .unsigned, .isNoForm: break
        }
        // An unknown session was looked up in the store, and a known one may not have been.
        if let session { await client.sessions.readInVain(session.id, context) }
        await context.delayRefusal()
        if proof == .isNoForm { throw SDKCall.isNoForm }
        throw isOutside
            ? .init(3, "the signature does not match", .unauthorized)
            : .init(
                282, "the session has ended, was not started by this gateway, or did not sign this call",
                .unauthorized)
    }
}

// MARK: Queued calls

extension SDKEndpoint {
    /// Whether the call has to be queued at once: the platform is known to be away, or earlier calls of its account or
    /// customer are queued.
    private func isQueuing(_ call: StreamOneCall, _ context: any SDKContext) async throws(RefusedCall) -> Bool {
        if context.isAway { return true }
        let (lane, now) = (call.scope.lane, context.time.now)
        do throws(StateError) {
            return try await context.read { [client] state in
                state.queued(inLane: lane, atMost: 1) > 0
                    || Pause(in: state)?.holds(client.platform, at: now, client.pauses) ?? false
            }
        } catch {
            throw .init(1, "\(error)")
        }
    }

    /// Returns once the call is on disk.
    private func store(_ call: StreamOneCall, in context: any SDKContext) async throws(RefusedCall) -> Reply {
        let payload = call.payload
        // JSON is longer than the form, and what is queued has limits of its own.
        let read = JSONParser.ofThisThread.parse(payload) { try? StreamOneCall($0, defaultAccount: nil, .checked) }
        guard case .success(_?) = read else { throw .init(6, "the call is too large to be queued") }
        let item = SDKItem("call", payload.indices, .success(ValidPayload(lane: .named(call.scope.lane))))
        return .stored(await context.store(SDKSubmission(payload, [item]) { _ in Self.queued }))
    }

    private static let queued = SDKAnswer.json(
        200, .accepted,
        #"{"header":{"status":0,"statusmessage":"OK","apiversion":3,"cacheable":false,"queued":true},"body":null}"#)
}

extension StreamOneCall {
    /// As it is queued. It names its accounts, so that no default account applies.
    fileprivate var payload: [UInt8] {
        let text = JSONWriter.object { json in
            json.string("command", command)
            json.string("action", action)
            if let customer = scope.customer {
                json.string("customer", customer)
            } else {
                json.raw("accounts", JSONWriter.array(scope.accounts.map { JSONEscapes.quoted($0) }))
            }
            if let timezone { json.string("timezone", timezone) }
            let pairs = arguments.map { "\(JSONEscapes.quoted($0.name)):\(JSONEscapes.quoted($0.value))" }
            json.raw("arguments", "{\(pairs.joined(separator: ","))}")
        }
        return Array(text.utf8)
    }
}

// MARK: Below the prefix

extension Client {
    /// The same endpoint, in the place of the platform.
    package func sdkEndpoints(_ settings: SDKSettings, of name: UpstreamName) -> SDKEndpoints {
        SDKEndpoints(
            settings, of: name, [SDKEndpoint(client: self).route],
            warnings: actions.neverQueued.map {
                ("queueActions", "has \($0.name), which \($0.reason): it is never queued")
            },
            refusal: SDKEndpoint.refusal)
    }
}

extension SDKEndpoint {
    fileprivate var route: SDKRoute { SDKRoute("call", .post, Self.template, .body, .perform(answer)) }

    private func answer(_ request: SDKRequest, _ context: any SDKContext) async throws(SDKAnswer) -> SDKAnswer {
        // A slash at the end of the path.
        guard request.parameters["action"] != "" else { throw Self.refusal(.notFound) }
        let headers = ["Content-Type", "Prefer"].compactMap { name in request.header(name).map { (name, $0) } }
        let routed = UpstreamRouteRequest(
            parameters: request.parameters, queryText: request.queryText, headers: headers, body: request.body,
            receivedAt: request.receivedAt)
        do throws(RefusedCall) {
            switch try await call(routed, context) {
            case .passedOn(let body, let headers):
                let all = [("Content-Type", "application/json")] + headers.sorted { $0.key < $1.key }.map { ($0, $1) }
                return SDKAnswer(200, .proxied, headers: all, body: body)
            case .stored(let answer): return answer
            }
        } catch {
            throw Self.answer(error)
        }
    }

    /// A stranger has been made to wait already.
    private static func answer(_ refused: RefusedCall, _ status: Int = 200) -> SDKAnswer {
        var answer = SDKAnswer.json(status, refused.outcome, refused.text)
        answer.isOfStranger = false
        return answer
    }

    fileprivate static func refusal(_ reason: SDKRefusal) -> SDKAnswer {
        func answer(_ number: Int, _ detail: String, status: Int = 200) -> SDKAnswer {
            Self.answer(RefusedCall(number, detail, reason.outcome), status)
        }
        switch reason {
        case .notFound: return answer(5, "there is no such path", status: 404)
        case .methodNotAllowed(let allowed):
            var refused = answer(5, "a call is a POST", status: 405)
            refused.headers.append(("Allow", allowed))
            return refused
        case .unauthorized: return answer(3, "the call is not signed")
        case .forbidden: return answer(4, "the gateway does not take this request")
        case .malformed: return answer(6, "the request cannot be read")
        case .tooLarge: return answer(6, "the request is too large")
        case .noRoom: return answer(1, "the call cannot be answered at the moment")
        }
    }
}
