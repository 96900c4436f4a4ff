import PosternCore
import PosternUpstream

/// `POST /v1/{name}/api/{command}/{action}`: the platform's API in the protocol of its own SDKs, for backends that use
/// the gateway as their `apiUrl` (the specification's section 10).
///
/// Their calls are verified, then made like any other: cached by the safe key, shared, signed again. Every result has
/// the form of the platform's responses, because the SDKs cannot read any other.
struct SDKEndpoint: Sendable {
    let client: Client

    /// Order and duplicates in the query matter, and the body is a form: both are validated here. The SDKs authenticate
    /// by their own signature, not by an API key.
    var resource: UpstreamRoute {
        UpstreamRoute(.post, "api/{command}/{action}", query: nil, access: .open, body: .any, .perform(answer))
    }

    private func answer(
        _ request: UpstreamRouteRequest, _ context: any UpstreamRouteContext
    ) async throws(UpstreamRouteResponse) -> UpstreamRouteResponse {
        do throws(RefusedCall) {
            return try await call(request, context)
        } catch {
            return error.answer
        }
    }

    private func call(
        _ request: UpstreamRouteRequest, _ context: any UpstreamRouteContext
    ) async throws(RefusedCall) -> UpstreamRouteResponse {
        // An empty key is known to every client.
        guard client.platform.hasCredentials else { throw CallFailure.noCredentials.refusal }
        let sent = try SDKCall(request, by: client.platform.actor)
        let deadline = context.time.instant + request.patience
        let session = try await session(of: sent, context)
        try await check(sent, in: session, bytes: request.body.count, context)
        let content = try sent.whole()
        let call = Client.Call(content: content, session: session, deadline: deadline)
        let reply: Client.CallResponse
        do throws(CallFailure) {
            reply = try await client.perform(call, context)
        } catch {
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
        return reply.passedOn(in: session, now: context.time.now)
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
            throw .init(8, "too many large calls are in progress; repeat this one later")
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
            ? .init(3, "the signature does not match")
            : .init(282, "the session has ended, was not started by this gateway, or did not sign this call")
    }
}
