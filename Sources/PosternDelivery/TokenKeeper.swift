import PosternCore

/// Has a token ready for an upstream that wants one: fetches one at a time, early, and never two for one expiry.
///
/// A plain value that the worker drives: it says when to fetch and is told what came of it.
struct TokenKeeper {
    /// What a new token is good for at least, whatever it says: a clock that is wrong must not make us fetch without
    /// end. Should the upstream not take it, its refusal says so.
    static let shortestUse = Duration.seconds(1)

    private struct Held {
        var token: Token
        var renewAt: Timestamp
        var expiresAt: Timestamp?
    }
    private var held: Held?
    /// Of the fetch under way; answers of others are out of date.
    private var fetch: Int?
    private var fetches = 0
    private var retryAt: Timestamp?
    /// Fetches in a row that brought no token.
    private(set) var failures = 0
    /// Did the last fetch fail because of the credentials?
    private(set) var credentialsRefused = false
    /// Counts tokens; a request remembers under which it went out.
    private(set) var generation = 0
    /// Has no request been taken since a token was refused? Then a second refusal means that the credentials are bad.
    private var followsRefusal = false

    /// The token to send under; nil when there is none or it has expired.
    func token(at now: Timestamp) -> Token? {
        guard let held, held.expiresAt.map({ now < $0 }) ?? true else { return nil }
        return held.token
    }

    /// When to fetch, if somebody needs a token; in the past means now, nil that a fetch is under way. A token is
    /// renewed before it expires, while requests still go out under it.
    var nextFetch: Timestamp? {
        guard fetch == nil else { return nil }
        let renewAt = held?.renewAt ?? Timestamp(milliseconds: 0)
        return retryAt.map { max($0, renewAt) } ?? renewAt
    }

    var isFetching: Bool { fetch != nil }

    /// Answers the number of the fetch.
    mutating func fetchBegan() -> Int {
        fetches += 1
        fetch = fetches
        return fetches
    }

    /// False when the answer to that fetch is of no interest any more.
    mutating func fetchEnded(_ number: Int) -> Bool {
        guard fetch == number else { return false }
        fetch = nil
        return true
    }

    mutating func fetched(_ token: Token, now: Timestamp) {
        generation += 1
        failures = 0
        credentialsRefused = false
        retryAt = nil
        let soonest = now + Self.shortestUse
        held = Held(
            token: token, renewAt: max(token.renewAt, soonest), expiresAt: token.expiresAt.map { max($0, soonest) })
    }

    /// A token that is still good is used until it expires.
    mutating func fetchFailed(credentialsRefused: Bool, retryAt: Timestamp) {
        failures += 1
        self.credentialsRefused = credentialsRefused
        self.retryAt = retryAt
    }

    /// An operator's wish: ask again without waiting.
    mutating func hurry() { retryAt = nil }

    /// The upstream has taken a request under the token of `generation`.
    mutating func accepted(under generation: Int) {
        if generation == self.generation { followsRefusal = false }
    }

    enum RefusalMeaning: Equatable {
        /// Somebody else has seen to it already, or a new token is on its way.
        case sendAgain
        /// The token before was refused as well: it is not the token.
        case credentialsAreBad
    }

    /// The upstream has refused the token of `generation`.
    mutating func refused(under generation: Int) -> RefusalMeaning {
        guard generation == self.generation, held != nil else { return .sendAgain }
        held = nil
        defer { followsRefusal = true }
        return followsRefusal ? .credentialsAreBad : .sendAgain
    }

    /// Other credentials are configured now.
    mutating func reset() {
        let (fetches, generation) = (fetches, generation)
        self = TokenKeeper()
        (self.fetches, self.generation) = (fetches, generation)
    }
}
