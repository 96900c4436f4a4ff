import PosternSimulatorKit

// Handles a call whose sender is known.
extension StreamOneState {
    /// Responds to a call and determines its entry in `/received`.
    mutating func perform(
        _ call: Call, _ actor: Actor, verifier: Verifier?, poisons: [Faults.Poison],
        at moment: Moment, _ violations: inout [String]
    ) throws(StreamOneError) -> Answer {
        let made = useNextStatus()
        guard made == .ok else { throw .status(made) }
        if settings.readOnly, !call.isRead, call.command != "session" { throw .status(.readOnlyMode) }
        guard call.isTimezoneKnown else { throw .status(.invalidTimezone) }
        try checkScope(call)
        try checkPoisons(call, poisons)
        if let body = settings.answers[call.name] { return .given(body) }
        switch call.name {
        case "session/initialize": return try initialize(call, actor, at: moment, &violations)
        case "session/create":
            return try create(call, actor, verifier: verifier, at: moment, &violations)
        case "session/delete": return try delete(call, actor, &violations)
        case _ where call.command == "session": throw .status(.invalidAction)
        case "api/mytokens": return .list(tokens(of: actor, call).map(phpQuoted))
        case "user/getmyroles": return .roles(try user(actor).roles ?? [])
        case "application/getmyroles":
            guard actor.user == nil else { throw .status(.accessDenied) }
            return .roles(roles(of: actor))
        case "user/viewme": return .user(try user(actor))
        case "application/view":
            let id = call.arguments["application"]
            if let id, settings.application(id) == nil { throw .status(.applicationNotFound) }
            return .applications(
                settings.applications.filter { id == nil || $0.id == id }, timezone: settings.timezone)
        case "item/view" where settings.items != .array([]): return try items(call)
        default:
            if settings.onlyKnownActions { throw .status(.invalidAction) }
            return .echo(call)
        }
    }

    /// The item with the ID of the argument `item`, or else a page of all items by `limit` and `offset`.
    private func items(_ call: Call) throws(StreamOneError) -> Answer {
        let items = settings.items.elements ?? []
        if let id = call.arguments["item"] {
            guard let item = items.first(where: { $0["id"]?.string == id }) else { throw .status(.itemNotFound) }
            return .given(.array([item]))
        }
        let (limit, offset) = (Int(call.arguments["limit"] ?? "") ?? .max, Int(call.arguments["offset"] ?? "") ?? 0)
        guard limit >= 0, offset >= 0 else { throw .status(.inputError) }
        var answer = Answer.given(.array(Array(items.dropFirst(offset).prefix(limit))))
        answer.count = items.count
        return answer
    }

    private func checkScope(_ call: Call) throws(StreamOneError) {
        if !settings.accounts.isEmpty {
            let known = Set(settings.accounts.map(\.id))
            guard known.isSuperset(of: call.accounts) else { throw .status(.accountNotFound) }
        }
        if let customer = call.customer, !settings.customers.isEmpty, !settings.customers.contains(customer) {
            throw .status(.customerNotFound)
        }
    }

    /// A poison's member is one of the item in `/received`, or an argument as `/arguments/name`.
    private func checkPoisons(_ call: Call, _ poisons: [Faults.Poison]) throws(StreamOneError) {
        guard !poisons.isEmpty else { return }
        let item = Array(call.received.utf8)
        let poison = item.withUnsafeBufferPointer { item in poisons.first { $0.matches(item) } }
        switch poison?.answer {
        case nil: return
        case .failure: throw .http(500)
        case .tooLarge: throw .http(413)
        case .refusal, .naming: throw .status(.inputError)
        case .unauthorized, .forbidden, .absent: throw .http(poison?.status ?? 404)
        }
    }

    /// The user of the call; an application alone is not a user.
    private func user(_ actor: Actor) throws(StreamOneError) -> StreamOneSettings.User {
        guard let user = actor.user.flatMap(settings.user(_:)) else { throw .status(.accessDenied) }
        return user
    }

    private func roles(of actor: Actor) -> [StreamOneSettings.Role] {
        if let user = actor.user { return settings.user(user)?.roles ?? [] }
        return actor.application.flatMap(settings.application(_:))?.roles ?? []
    }

    /// The tokens that apply in the scope of the call: to all of its accounts, to its customer, or everywhere.
    private func tokens(of actor: Actor, _ call: Call) -> [String] {
        let roles = roles(of: actor)
        func tokens(customer: String?, account: String?) -> [String] {
            roles.filter { $0.covers(customer: customer, account: account) }.flatMap { $0.tokens ?? [] }
        }
        let accounts = call.accounts.map { account in
            let customer = settings.accounts.first { $0.id == account }?.customer
            return tokens(customer: customer, account: account)
        }
        let everywhere = accounts.first ?? tokens(customer: call.customer, account: nil)
        var seen: Set<String> = []
        return everywhere.filter { token in
            accounts.allSatisfy { $0.contains(token) } && seen.insert(token).inserted
        }
    }
}

extension StreamOneSettings.Role {
    fileprivate func covers(customer: String?, account: String?) -> Bool {
        if let own = self.account { return own == account }
        return self.customer == nil || self.customer == customer
    }
}
