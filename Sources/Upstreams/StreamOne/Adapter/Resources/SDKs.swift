import PosternCore

/// `POST /v1/{name}/api/{command}/{action}`: the platform's API in the protocol of its own SDKs, for backends that use
/// the gateway as their `apiUrl` (the specification's section 10).
///
/// Their calls are verified, then made like any other: cached by the safe key, shared, signed again. Every result has
/// the form of the platform's responses, because the SDKs cannot read any other.
struct SDKs: Sendable {
    let client: Client

    /// Order and duplicates in the query matter, and the body is a form: both are validated here. The SDKs authenticate
    /// by their own signature, not by an API key.
    var resource: UpstreamRoute {
        UpstreamRoute(.post, "api/{command}/{action}", query: nil, access: .open, body: .any, .perform(answer))
    }

    private func answer(
        _ request: UpstreamRouteRequest, _ context: any UpstreamRouteContext
    ) async throws(UpstreamRouteError) -> UpstreamRouteResponse {
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
        guard sent.isSigned(with: client.platform.psk + (session?.key ?? "")) else {
            throw .init(3, "the signature does not match")
        }
        let call = Client.Call(content: sent.call, session: session, deadline: deadline)
        let reply: Client.CallResponse
        do throws(CallFailure) {
            reply = try await client.perform(call, context)
        } catch {
            // It has ended for its SDK, whatever the platform's response is.
            if sent.call.path == "/api/session/delete", let session { await client.forget(session, context) }
            throw error.refusal
        }
        // A new session has to be known before its first call arrives.
        if sent.call.path == "/api/session/create", reply.answer.isSuccess,
            let begun = Session(reply.answer, now: context.time.now)
        {
            _ = await client.sessions.add(begun, context)
        }
        return reply.passedOn(in: session, now: context.time.now)
    }

    private func session(
        of sent: SDKCall, _ context: any UpstreamRouteContext
    ) async throws(RefusedCall) -> Session? {
        guard let id = sent.session else { return nil }
        do throws(StateError) {
            if let session = try await client.sessions.find(id, context) { return session }
        } catch {
            throw .init(1, "\(error)")
        }
        throw .init(282, "the session has ended, or was not started by this gateway")
    }
}
