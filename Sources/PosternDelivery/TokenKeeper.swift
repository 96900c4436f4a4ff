import PosternCore

/// Has a token ready for an upstream that wants one: fetches one at a time, early, and never two for one expiry.
///
/// A plain value that the worker drives: it says when to fetch and is told what came of it.
struct TokenKeeper {
    enum State: Equatable {
        case none
        case fetching
        case ready(Token)
        /// No token to be had; ask again then.
        case failed(until: Timestamp, credentialsRefused: Bool)
    }

    private(set) var state: State = .none
    /// Counts tokens; a request remembers under which it went out.
    private(set) var generation = 0
    /// Was the token before this one refused? Then a second refusal means that the credentials are bad.
    private var followsRefusal = false
    /// Has a request under this token been answered with anything but a refusal?
    private var isProven = false
    private var failures = 0

    var token: Token? { if case .ready(let token) = state { token } else { nil } }

    /// Should a fetch start now? A token is renewed before it expires, while requests still go out under it.
    func wantsFetch(now: Timestamp) -> Bool {
        switch state {
        case .none: true
        case .fetching: false
        case .ready(let token): token.renewAt <= now
        case .failed(let until, _): until <= now
        }
    }

    /// When time alone will make it want a fetch.
    func nextFetch() -> Timestamp? {
        switch state {
        case .none, .fetching: nil
        case .ready(let token): token.renewAt
        case .failed(let until, _): until
        }
    }

    mutating func fetchBegan() { state = .fetching }

    mutating func fetched(_ token: Token) {
        generation += 1
        failures = 0
        isProven = false
        state = .ready(token)
    }

    mutating func fetchFailed(credentialsRefused: Bool, retry: RetryPolicy, now: Timestamp, random: Double) {
        failures += 1
        let delay =
            credentialsRefused
            ? retry.slowDelay(random: random)
            : retry.delay(afterAttempt: failures, retryAfter: nil, random: random)
        state = .failed(until: now + delay, credentialsRefused: credentialsRefused)
    }

    /// The upstream has taken a request under the token of `generation`.
    mutating func accepted(under generation: Int) {
        guard generation == self.generation else { return }
        isProven = true
        followsRefusal = false
    }

    enum RefusalMeaning: Equatable {
        /// Somebody else has seen to it already, or a new token is on its way.
        case sendAgain
        /// The token before was refused as well: it is not the token.
        case credentialsAreBad
    }

    /// The upstream has refused the token of `generation`.
    mutating func refused(under generation: Int) -> RefusalMeaning {
        guard generation == self.generation, case .ready = state else { return .sendAgain }
        defer { state = .none }
        if followsRefusal, !isProven {
            followsRefusal = false
            return .credentialsAreBad
        }
        followsRefusal = true
        return .sendAgain
    }

    /// Other credentials are configured now.
    mutating func reset() { self = TokenKeeper(continuing: generation) }

    init() {}
    private init(continuing generation: Int) { self.generation = generation }
}
