import PosternCore
import PosternStore
import PosternUpstream

/// The token of an upstream that requires one: when to fetch it, and which requests were sent under which token.
///
/// One fetch at a time, early, and never two for one expiry.
struct TokenCache: Equatable {
    /// The minimum time for which a new token is used, whatever its expiry: a wrong clock must not make the gateway
    /// fetch tokens without end. If the upstream does not accept the token, it rejects the request.
    static let shortestUse = Duration.seconds(1)
    /// How long after its fetch a rejected token shows that another one would be rejected, too, and how long after another
    /// endpoint accepted it, that the one that rejects it rejects all. Later it may have expired, or been revoked: the
    /// upstream may have been down since.
    static let freshPeriod = Duration.seconds(120)

    private struct HeldToken: Equatable {
        let token: Token
        let fetchedAt: Timestamp
        /// Whether it was rejected like the one before it. Until it is accepted, it is used only as long as it is fresh.
        var isRejected = false

        private var soonest: Timestamp { fetchedAt + TokenCache.shortestUse }
        var renewAt: Timestamp { min(max(token.renewAt, soonest), freshUntil ?? .never) }
        /// Nil if neither its issuer nor a rejection ends its use.
        var expiresAt: Timestamp? {
            let end = token.expiresAt.map { max($0, soonest) }
            return [end, freshUntil].compactMap(\.self).min()
        }
        private var freshUntil: Timestamp? { isRejected ? fetchedAt + TokenCache.freshPeriod : nil }
    }
    private var held: HeldToken?
    /// The number of the fetch in flight. Results of other fetches are out of date.
    private var fetch: Int?
    private var fetches = 0
    /// Whether a token was fetched with these credentials.
    private var hasFetched = false
    private var retryAt: Timestamp?
    /// The number of fetches in a row that returned no token.
    private(set) var failures = 0
    /// Whether the last fetch failed because of the credentials.
    private(set) var credentialsRefused = false
    /// Why the last fetch failed; nil if it did not.
    private(set) var error: AttemptError?
    /// Whether messages waited for the token when a fetch failed that was reported.
    private(set) var hasHeldMessages = false
    /// Counts tokens. A request records the generation that it was sent with.
    private(set) var generation = 0
    /// Whether no request was accepted since a token was rejected. If so, the rejection of a fresh one means bad
    /// credentials.
    private var followsRefusal = false
    /// Endpoints that rejected a token and have not accepted one since.
    private var refusing: Set<String> = []
    /// When a request was last accepted with the token of this generation; nil if none was.
    private var acceptedAt: Timestamp?

    /// The token to send with; nil if there is none or it has expired.
    func token(at now: Timestamp) -> Token? {
        guard let held, held.expiresAt.map({ now < $0 }) ?? true else { return nil }
        return held.token
    }

    /// Whether the token to send with was rejected like the one before it.
    var isRejected: Bool { held?.isRejected ?? false }

    /// The status that is stored for commands that read the store; never the token itself.
    var record: TokenRecord {
        TokenRecord(
            failures: failures, credentialsRefused: credentialsRefused, retryAtMs: retryAt?.milliseconds,
            validUntilMs: isRejected ? nil : held.map { ($0.expiresAt ?? .never).milliseconds })
    }

    /// The time of the next fetch, if a token is needed. A time in the past means now, nil that a fetch is in flight. A
    /// token is renewed before it expires, while requests are still sent with it.
    var nextFetch: Timestamp? {
        guard fetch == nil else { return nil }
        let renewAt = held?.renewAt ?? Timestamp(milliseconds: 0)
        return retryAt.map { max($0, renewAt) } ?? renewAt
    }

    var isFetching: Bool { fetch != nil }

    /// Whether the credentials, as they are now, have been accepted: a token was fetched with them, and no later fetch
    /// failed.
    var isVerified: Bool { hasFetched && failures == 0 }

    /// Returns the number of the fetch.
    mutating func fetchBegan() -> Int {
        fetches += 1
        fetch = fetches
        return fetches
    }

    /// Returns false if the result of that fetch is no longer needed.
    mutating func fetchEnded(_ number: Int) -> Bool {
        guard fetch == number else { return false }
        fetch = nil
        return true
    }

    mutating func fetched(_ token: Token, now: Timestamp) {
        generation += 1
        acceptedAt = nil
        failures = 0
        (credentialsRefused, hasHeldMessages) = (false, false)
        (error, retryAt) = (nil, nil)
        hasFetched = true
        held = HeldToken(token: token, fetchedAt: now)
    }

    /// A token that is still valid is used until it expires. `holdsMessages`: whether messages wait for the token.
    /// Returns whether an operator has to be told: it is the first failure, the first of its class, or the first one
    /// that holds messages.
    mutating func fetchFailed(
        _ error: AttemptError, credentialsRefused: Bool, holdsMessages: Bool, retryAt: Timestamp
    ) -> Bool {
        let isNew =
            failures == 0 || credentialsRefused != self.credentialsRefused || holdsMessages && !hasHeldMessages
        failures += 1
        hasHeldMessages = hasHeldMessages || holdsMessages
        self.credentialsRefused = credentialsRefused
        self.error = error
        self.retryAt = retryAt
        return isNew
    }

    /// Clears the backoff, at an operator's request.
    mutating func fetchNow() { retryAt = nil }

    /// The token may have been revoked: the next request needs a new one.
    mutating func discard() { held = nil }

    /// No message needs the token that is missing: failures of fetches whose wait is over are no longer shown.
    mutating func forgetFailures(now: Timestamp) {
        guard fetch == nil, token(at: now) == nil, retryAt.map({ $0 <= now }) ?? true else { return }
        failures = 0
        (credentialsRefused, hasHeldMessages) = (false, false)
        (error, retryAt) = (nil, nil)
    }

    /// The endpoint accepted a request with the token of `generation`.
    mutating func accepted(under generation: Int, at endpoint: String, now: Timestamp) {
        guard generation == self.generation else { return }
        followsRefusal = false
        refusing.remove(endpoint)
        acceptedAt = now
        held?.isRejected = false
    }

    enum RejectionMeaning: Equatable {
        /// The token was replaced already, or is now.
        case sendAgain
        /// The previous token was rejected as well, this one is fresh, and nothing was accepted in between: the credentials
        /// are wrong.
        case credentialsAreBad
        /// The token is not the cause: another endpoint, or another request to this one, was just accepted with it, or
        /// this request was sent again with a fresh one.
        case endpointRefuses
    }

    /// The endpoint rejected the token of `generation`. `hasNewToken`: whether the request was sent again with it.
    mutating func refused(
        under generation: Int, at endpoint: String, hasNewToken: Bool = false, now: Timestamp
    ) -> RejectionMeaning {
        guard generation == self.generation, let held else { return .sendAgain }
        let isRepeated = !refusing.insert(endpoint).inserted || hasNewToken
        if isRepeated, let acceptedAt, Self.isRecent(acceptedAt, at: now) { return .endpointRefuses }
        if followsRefusal || hasNewToken, Self.isRecent(held.fetchedAt, at: now) {
            // Another one would be rejected, too. The probes that follow soon share it.
            guard followsRefusal else { return .endpointRefuses }
            self.held?.isRejected = true
            return .credentialsAreBad
        }
        self.held = nil
        followsRefusal = true
        return .sendAgain
    }

    private static func isRecent(_ moment: Timestamp, at now: Timestamp) -> Bool {
        (.zero...freshPeriod).contains(now - moment)
    }

    /// Credentials have changed in the configuration.
    mutating func reset() {
        let (fetches, generation) = (fetches, generation)
        self = TokenCache()
        (self.fetches, self.generation) = (fetches, generation)
    }
}
