import PosternCore
import PosternUpstream

/// `GET /v1/{name}/tokens/{token}` and `GET /v1/{name}/roles`: what an actor may do (the specification's section 6).
struct Permissions: Sendable {
    let client: Client

    var resources: [UpstreamRoute] {
        [
            UpstreamRoute(.get, "tokens/{token}", query: ["account", "accounts", "customer"], .perform(hasToken)),
            UpstreamRoute(.get, "roles", query: ["account", "accounts", "customer"], .perform(roles)),
        ]
    }

    private func roles(
        _ request: UpstreamRouteRequest, _ context: any UpstreamRouteContext
    ) async throws(UpstreamRouteResponse) -> UpstreamRouteResponse {
        let answer = try await fetchRoles(try await question(request, context), context)
        let list = answer.withBody { $0.kind == .array ? String(decoding: $0.bytes, as: UTF8.self) : nil }
        guard let roles = list else { throw .unusableRights }
        return .json(JSONWriter.object { $0.raw("roles", roles) })
    }

    private func hasToken(
        _ request: UpstreamRouteRequest, _ context: any UpstreamRouteContext
    ) async throws(UpstreamRouteResponse) -> UpstreamRouteResponse {
        let token = request.parameters["token"] ?? ""
        let question = try await question(request, context)
        guard let roles = try await fetchRoles(question, context).withBody(Role.list) else {
            throw .unusableRights
        }
        if let known = Role.hasToken(token, roles: roles, scope: question.content.scope) {
            return .hasToken(known)
        }
        let answer = try await fetch("api", "mytokens", question, context)
        guard let tokens = answer.withBody(\.texts) else { throw .unusableRights }
        return .hasToken(tokens.contains(token))
    }

    // MARK: Requests to the platform

    /// A call in the request's scope and session; `fetch` fills in the action.
    private func question(
        _ request: UpstreamRouteRequest, _ context: any UpstreamRouteContext
    ) async throws(UpstreamRouteResponse) -> Client.Call {
        let scope = try request.scope(defaultAccount: client.platform.defaultAccount)
        let deadline = context.time.instant + request.patience
        return Client.Call(
            content: StreamOneCall(command: "", action: "", scope: scope),
            session: try await client.session(of: request, context), isForRights: true, deadline: deadline)
    }

    /// In a session, or signed by a user, the actor is a user.
    private func fetchRoles(
        _ question: Client.Call, _ context: any UpstreamRouteContext
    ) async throws(UpstreamRouteResponse) -> Answer {
        let isUser = question.session != nil || client.platform.actor.kind == .user
        return try await fetch(isUser ? "user" : "application", "getmyroles", question, context)
    }

    /// Only a success is used: a failure is an error, and never "no".
    private func fetch(
        _ command: String, _ action: String, _ question: Client.Call, _ context: any UpstreamRouteContext
    ) async throws(UpstreamRouteResponse) -> Answer {
        var call = question
        (call.content.command, call.content.action) = (command, action)
        let answer = try await client.reply(to: call, context).answer
        guard answer.isSuccess else {
            throw .problem(
                slug: .deliveryFailed, status: 502,
                detail: "The platform did not return the rights of the actor: \(answer.summary)")
        }
        return answer
    }
}

/// A role that an actor has, everywhere or for an account or customer.
struct Role: Sendable, Equatable {
    var account: String?
    var customer: String?
    let tokens: Set<String>

    /// Nil if `body` is not a list of roles. A role that cannot be read makes the whole list unusable, so that it
    /// grants no rights.
    static func list(_ body: JSONValue) -> [Role]? {
        guard body.kind == .array else { return nil }
        var roles: [Role] = []
        for element in body.elements {
            guard let tokens = element["role"]?["tokens"]?.texts, let account = index(element["account"]),
                let customer = index(element["customer"])
            else { return nil }
            roles.append(Role(account: account.id, customer: customer.id, tokens: Set(tokens)))
        }
        return roles
    }

    /// The scope of a role. If it is missing or null, the role applies everywhere.
    private static func index(_ value: JSONValue?) -> (id: String?, Void)? {
        guard let value, value.kind != .null else { return (nil, ()) }
        guard let id = value["id"], id.isFilledString else { return nil }
        return (id.string, ())
    }

    /// Nil if the roles do not decide it, because it is not known which customer an account belongs to.
    static func hasToken(_ token: String, roles: [Role], scope: Scope) -> Bool? {
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

extension JSONValue {
    /// Nil unless it is a list of strings.
    fileprivate var texts: [String]? {
        guard kind == .array, elements.allSatisfy({ $0.kind == .string }) else { return nil }
        return elements.compactMap(\.string)
    }
}

extension UpstreamRouteResponse {
    fileprivate static let unusableRights = Self.problem(
        slug: .deliveryFailed, status: 502, detail: "The platform's roles or tokens cannot be read.")

    fileprivate static func hasToken(_ has: Bool) -> Self { .json(JSONWriter.object { $0.flag("hasToken", has) }) }
}
