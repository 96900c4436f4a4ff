import PosternCore

/// `POST /v1/{name}/api/{command}/{action}`: the platform's API as its own SDKs speak it, for backends that set the
/// gateway as their `apiUrl` (the specification's section 10).
///
/// Their calls are verified, then made like any other: cached by the safe key, shared, signed anew. Every outcome is an
/// answer of the platform's kind, since the SDKs can read no other.
struct StreamOneSDKs: Sendable {
    let desk: StreamOneDesk

    /// Order and duplicates in the query matter, and the body is a form: both are judged here.
    /// The SDKs authenticate by their own signature, not by an API key.
    var resource: Resource {
        Resource(.post, "api/{command}/{action}", query: nil, access: .open, body: .any, .perform(call))
    }

    private func call(
        _ request: ResourceRequest, _ tools: any ResourceTools,
        _ completion: @escaping @Sendable (ResourceAnswer) -> Void
    ) {
        // An empty key is one that everybody knows.
        guard desk.platform.hasCredentials else {
            return completion(StreamOneTrouble.noCredentials.refusal.answer)
        }
        let sent: StreamOneSDKCall
        do throws(StreamOneRefusedCall) {
            sent = try StreamOneSDKCall(request, by: desk.platform.actor)
        } catch {
            return completion(error.answer)
        }
        let deadline = tools.time.instant + request.patience
        guard let id = sent.session else { return make(sent, in: nil, deadline, tools, completion) }
        desk.sessions.find(id, tools) { session in
            guard let session else {
                let refusal = StreamOneRefusedCall(282, "the session has ended, or was not begun by this gateway")
                return completion(refusal.answer)
            }
            make(sent, in: session, deadline, tools, completion)
        }
    }

    private func make(
        _ sent: StreamOneSDKCall, in session: StreamOneSession?, _ deadline: MonotonicInstant,
        _ tools: any ResourceTools, _ completion: @escaping @Sendable (ResourceAnswer) -> Void
    ) {
        guard sent.isSigned(with: desk.platform.psk + (session?.key ?? "")) else {
            return completion(StreamOneRefusedCall(3, "the signature does not match").answer)
        }
        let order = StreamOneDesk.Order(call: sent.call, session: session, deadline: deadline)
        desk.fetch(order, tools) { outcome in conclude(outcome, order, tools, completion) }
    }

    /// A session that begins has to be known before its first call comes; one that ends is over for its SDK, whatever
    /// the platform says.
    private func conclude(
        _ outcome: StreamOneDesk.Outcome, _ order: StreamOneDesk.Order, _ tools: any ResourceTools,
        _ completion: @escaping @Sendable (ResourceAnswer) -> Void
    ) {
        let now = tools.time.now
        switch (order.call.path, outcome) {
        case ("/api/session/create", .answer(let answer, nil)) where answer.isSuccess:
            let shown = answer.passedOn(age: nil, in: nil, now: now)
            guard let session = StreamOneSession(answer, now: now) else { return completion(shown) }
            desk.sessions.add(session, tools) { _ in completion(shown) }
        case (let path, .problem(let trouble)):
            if path == "/api/session/delete", let session = order.session { desk.forget(session, tools) }
            completion(trouble.refusal.answer)
        case (_, .answer(let answer, let age)):
            completion(answer.passedOn(age: age, in: order.session, now: now))
        }
    }
}
