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
    public func slowDelay(random: Double) -> Duration { slowest * (0.5 + random / 2) }

    private var slowest: Duration { max(longest, .seconds(30)) }

    /// The number of probes that follow soon on a rejection of the credentials or the URL. Another message may be
    /// accepted, which shows that the rejected one is the cause.
    static let soonProbes = 8

    /// The delay of the next probe after `refused` probes in a row were refused: none at first, then, with the defaults,
    /// up to 1 s, 2 s, and 4 s. From `soonProbes` on it doubles with each, up to `slowDelay`: then only an operator can fix
    /// the cause.
    public func probeDelay(afterRefused refused: Int, random: Double) -> Duration {
        guard refused > 0 else { return .zero }
        let attempt = min(refused, 3) + max(0, refused - Self.soonProbes + 1)
        return min(doubled(base, attempt - 1), slowest) * (0.5 + random / 2)
    }

    func ceiling(ofAttempt attempt: Int) -> Duration {
        min(doubled(base, max(attempt, 1) - 1), longest)
    }

    /// 2^30 times any base we allow is beyond every `longest`.
    private func doubled(_ duration: Duration, _ times: Int) -> Duration { duration * Double(1 << min(times, 30)) }
}
