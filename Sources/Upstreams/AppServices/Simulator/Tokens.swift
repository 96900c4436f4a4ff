import PosternCore

/// The tokens that were declared or seen, by their text.
struct Tokens: Sendable {
    struct Token: Sendable {
        /// Different tokens are numbered from 1, in the order of their first use.
        let number: Int
        var isDeclared = false
        /// Nil for any provider.
        var provider: String?
        /// In lower case; nil for any user.
        var owner: String?
        var isValid = true
        var expiresAt: MonotonicInstant?
        /// In lower case: the users for whom it was used so far, at most two.
        var users: [String] = []
        /// When and in which lane the gateway was notified that the token is refused.
        var refusal: (at: MonotonicInstant, lane: String)?
        /// The device it was last used for, for requests that name none.
        var lastDevice: String?

        /// Its user, if that is clear.
        var user: String? { owner ?? (users.count == 1 ? users.first : nil) }
    }

    private(set) var all: [String: Token] = [:]

    subscript(_ text: String) -> Token? { all[text] }

    /// Counts the token of a call among those that were seen.
    mutating func see(_ call: Call, _ settings: AppServicesSettings, now: MonotonicInstant) {
        guard let auth = call.auth else { return }
        var token = all[auth.token] ?? fresh(auth, settings, now)
        let user = call.user?.lowercased()
        if let user, token.users.count < 2, !token.users.contains(user) { token.users.append(user) }
        if settings.bindTokens, token.owner == nil { token.owner = user }
        if let device = call.device { token.lastDevice = device }
        all[auth.token] = token
    }

    private func fresh(
        _ auth: Call.Auth, _ settings: AppServicesSettings, _ now: MonotonicInstant
    ) -> Token {
        let lives = settings.tokenLifeSeconds > 0 && auth.provider == "pi"
        return Token(
            number: all.count + 1, isValid: !settings.onlyDeclaredTokens,
            expiresAt: lives ? now + .seconds(settings.tokenLifeSeconds) : nil)
    }

    func refusal(of call: Call, now: MonotonicInstant) -> Answer.Rejection? {
        guard let auth = call.auth, let token = all[auth.token] else { return .missing }
        if let provider = token.provider, provider != auth.provider { return .invalid }
        guard token.isValid else { return .invalid }
        if let end = token.expiresAt, now >= end { return .expired }
        if let owner = token.owner, let user = call.user?.lowercased(), user != owner { return .ofAnotherUser }
        return nil
    }

    mutating func declare(
        _ text: String, provider: String?, user: String?, isValid: Bool, expiresAt: MonotonicInstant?
    ) {
        var token = Token(number: all[text]?.number ?? all.count + 1)
        (token.isDeclared, token.provider, token.owner) = (true, provider, user?.lowercased())
        (token.isValid, token.expiresAt) = (isValid, expiresAt)
        all[text] = token
    }

    mutating func invalidate(_ text: String) {
        if all[text] == nil { all[text] = Token(number: all.count + 1) }
        all[text]?.isValid = false
    }

    /// Records that the gateway was notified. Only the first notification counts.
    mutating func recordRefusal(of text: String, at now: MonotonicInstant, lane: String) {
        if all[text]?.refusal == nil { all[text]?.refusal = (now, lane) }
    }
}
