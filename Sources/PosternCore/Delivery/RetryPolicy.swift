/// When to try again after a failure.
///
/// The ceiling of attempt n is `base × 2^(n − 1)`, at most `longest`: 1 s, 2 s, 4 s … 5 min with the defaults.
/// The delay is `random` × ceiling (full jitter); a longer `Retry-After` wins over it.
public struct RetryPolicy: Sendable, Equatable {
    /// The ceiling of the first delay.
    public var base: Duration
    /// The ceiling of any delay; not below `base`.
    public var longest: Duration

    public init(base: Duration = .seconds(1), longest: Duration = .seconds(300)) {
        self.base = base
        self.longest = longest
    }

    /// `attempt` counts from 1, `random` lies in 0 ... 1.
    public func delay(afterAttempt attempt: Int, retryAfter: Duration?, random: Double) -> Duration {
        let jittered = ceiling(ofAttempt: attempt) * random
        return max(jittered, retryAfter ?? .zero)
    }

    /// The delay of probes while only an operator can fix the cause: between half and all of `longest`, so that probes
    /// are rare and spread. It is at least 15 s, so that there are at most a few probes a minute.
    public func slowDelay(random: Double) -> Duration { max(longest, .seconds(30)) * (0.5 + random / 2) }

    /// The number of probes that follow soon on a rejection of the credentials or the URL. Another message may be
    /// accepted, which shows that the rejected one is the cause.
    static let soonProbes = 8

    /// The delay of the next probe after `refused` probes in a row were refused: none at first, then, with the defaults,
    /// up to 1 s, 2 s, and 4 s. After `soonProbes` of them only an operator can fix the cause: see `slowDelay`.
    public func probeDelay(afterRefused refused: Int, random: Double) -> Duration {
        guard refused > 0 else { return .zero }
        guard refused < Self.soonProbes else { return slowDelay(random: random) }
        return ceiling(ofAttempt: min(refused, 3)) * (0.5 + random / 2)
    }

    func ceiling(ofAttempt attempt: Int) -> Duration {
        // 2^30 times any base we allow is beyond every `longest`.
        min(base * Double(1 << min(max(attempt, 1) - 1, 30)), longest)
    }
}
