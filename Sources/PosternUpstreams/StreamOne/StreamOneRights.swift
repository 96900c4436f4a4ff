import PosternCore

/// `GET /v1/{name}/tokens/{token}` and `GET /v1/{name}/roles`: what an actor may do (the specification's section 6).
struct StreamOneRights: Sendable {
    let desk: StreamOneDesk

    var resources: [Resource] {
        [
            Resource(.get, "tokens/{token}", query: ["account", "accounts", "customer"], .perform(hasToken)),
            Resource(.get, "roles", query: ["account", "accounts", "customer"], .perform(roles)),
        ]
    }

    /// Somebody asks about itself, in a scope.
    private struct Question: Sendable {
        let session: StreamOneSession?
        let scope: StreamOneScope
        let deadline: MonotonicInstant
        let tools: any ResourceTools
        let completion: @Sendable (ResourceAnswer) -> Void
    }

    private func withQuestion(
        _ request: ResourceRequest, _ tools: any ResourceTools,
        _ completion: @escaping @Sendable (ResourceAnswer) -> Void, ask: @escaping @Sendable (Question) -> Void
    ) {
        let scope: StreamOneScope
        do throws(StreamOneRefusal) {
            scope = try request.scope(defaultAccount: desk.platform.defaultAccount)
        } catch {
            return completion(error.answer)
        }
        let deadline = tools.time.instant + request.patience
        desk.findSession(of: request, tools, orAnswer: completion) { session in
            ask(Question(session: session, scope: scope, deadline: deadline, tools: tools, completion: completion))
        }
    }

    private func roles(
        _ request: ResourceRequest, _ tools: any ResourceTools,
        _ completion: @escaping @Sendable (ResourceAnswer) -> Void
    ) {
        withQuestion(request, tools, completion) { question in
            fetchRoles(question) { answer in
                let list = answer.withBody { $0.kind == .array ? String(decoding: $0.bytes, as: UTF8.self) : nil }
                guard let roles = list ?? nil else { return completion(.unusableRights) }
                completion(.json(JSONText.object { $0.raw("roles", roles) }))
            }
        }
    }

    private func hasToken(
        _ request: ResourceRequest, _ tools: any ResourceTools,
        _ completion: @escaping @Sendable (ResourceAnswer) -> Void
    ) {
        let token = request.parameters["token"] ?? ""
        withQuestion(request, tools, completion) { question in
            fetchRoles(question) { answer in
                guard let roles = answer.withBody(StreamOneRole.list) ?? nil else {
                    return completion(.unusableRights)
                }
                guard let known = StreamOneRole.hasToken(token, roles: roles, scope: question.scope) else {
                    return fetchTokens(question) { completion(.hasToken($0.contains(token))) }
                }
                completion(.hasToken(known))
            }
        }
    }

    // MARK: Asking the platform

    /// In a session, or signed by a user, it is a user who acts.
    private func fetchRoles(_ question: Question, then: @escaping @Sendable (StreamOneAnswer) -> Void) {
        let isUser = question.session != nil || desk.platform.actor.kind == .user
        fetch(isUser ? "user" : "application", "getmyroles", question, then: then)
    }

    private func fetchTokens(_ question: Question, then: @escaping @Sendable ([String]) -> Void) {
        fetch("api", "mytokens", question) { answer in
            guard let tokens = answer.withBody(Self.texts) ?? nil else { return question.completion(.unusableRights) }
            then(tokens)
        }
    }

    private static func texts(_ body: JSONValue) -> [String]? {
        guard body.kind == .array, body.elements.allSatisfy({ $0.kind == .string }) else { return nil }
        return body.elements.compactMap(\.string)
    }

    /// Goes on with a success only: a failure is an error, and never "no".
    private func fetch(
        _ command: String, _ action: String, _ question: Question,
        then: @escaping @Sendable (StreamOneAnswer) -> Void
    ) {
        let order = StreamOneDesk.Order(
            call: StreamOneCall(command: command, action: action, scope: question.scope), session: question.session,
            isForRights: true, deadline: question.deadline)
        desk.fetch(order, question.tools) { outcome in
            switch outcome {
            case .problem(let trouble): question.completion(trouble.answer)
            case .answer(let answer, _) where answer.isSuccess: then(answer)
            case .answer(let answer, _):
                question.completion(
                    .problem(
                        slug: .deliveryFailed, status: 502,
                        detail: "The platform does not say what the actor may do: \(answer.summary)"))
            }
        }
    }
}

/// A role that an actor has, everywhere or for an account or customer.
struct StreamOneRole: Sendable, Equatable {
    var account: String?
    var customer: String?
    let tokens: Set<String>

    /// Nil when `body` is no list of roles. One that cannot be read gives no rights away: it spoils the list.
    static func list(_ body: JSONValue) -> [StreamOneRole]? {
        guard body.kind == .array else { return nil }
        var roles: [StreamOneRole] = []
        for element in body.elements {
            guard let tokens = element["role"]?["tokens"], tokens.kind == .array,
                tokens.elements.allSatisfy({ $0.kind == .string }),
                let account = place(element["account"]), let customer = place(element["customer"])
            else { return nil }
            roles.append(
                StreamOneRole(
                    account: account.id, customer: customer.id, tokens: Set(tokens.elements.compactMap(\.string))))
        }
        return roles
    }

    /// Where a role holds. Missing and null are the same: everywhere.
    private static func place(_ value: JSONValue?) -> (id: String?, Void)? {
        guard let value, value.kind != .null else { return (nil, ()) }
        guard let id = value["id"], id.isFilledString else { return nil }
        return (id.string, ())
    }

    /// Nil when the roles cannot tell: which customer an account belongs to is not known.
    static func hasToken(_ token: String, roles: [StreamOneRole], scope: StreamOneScope) -> Bool? {
        func isCovered(customer: String?, account: String?) -> Bool {
            roles.contains { $0.tokens.contains(token) && $0.covers(customer: customer, account: account) }
        }
        guard case .accounts(let accounts) = scope else { return isCovered(customer: scope.customer, account: nil) }
        guard !roles.contains(where: { $0.customer != nil }) else { return nil }
        return accounts.allSatisfy { isCovered(customer: nil, account: $0) }
    }

    private func covers(customer: String?, account: String?) -> Bool {
        if let own = self.account { return own == account }
        if let own = self.customer { return own == customer }
        return true
    }
}

extension ResourceAnswer {
    fileprivate static let unusableRights = ResourceAnswer.problem(
        slug: .deliveryFailed, status: 502, detail: "The platform's roles or tokens cannot be read.")

    fileprivate static func hasToken(_ has: Bool) -> Self { .json(JSONText.object { $0.flag("hasToken", has) }) }
}
