/// Whether requests may be sent to an upstream, by the results of its last requests.
///
/// Closed, it counts failures in a row; at `threshold` it opens for a while that grows with each failed probe. After
/// that time, one probe may pass (half-open). After it has been open, the number of concurrent requests starts at one
/// and doubles with each success (slow start).
public struct Circuit: Sendable, Equatable {
    /// Closed sends, open waits, half-open probes.
    public enum State: Sendable, Equatable {
        case closed
        case open(until: Timestamp)
        /// One probe is in flight.
        case halfOpen
    }

    public private(set) var state: State = .closed
    /// Upstream failures since the last success.
    public private(set) var failures: Int
    /// The current limit of concurrent requests; `most` if nothing is wrong.
    public private(set) var allowance: Int
    /// The highest number of concurrent requests, at least 1.
    public var most: Int {
        didSet { allowance = min(allowance, most) }
    }
    let threshold: Int
    /// Failures in a row that open it.
    public static let defaultThreshold = 5

    /// A circuit as an earlier run left it: `reopensAt` is nil if it was closed.
    public init(most: Int, threshold: Int = Circuit.defaultThreshold, failures: Int = 0, reopensAt: Timestamp? = nil) {
        self.most = most
        self.threshold = threshold
        self.failures = failures
        allowance = most
        if let reopensAt {
            state = .open(until: reopensAt)
            allowance = 1
        }
    }

    /// Whether another request may be sent while `inFlight` others are in flight.
    public func permits(inFlight: Int, now: Timestamp) -> Bool {
        switch state {
        case .closed: inFlight < allowance
        case .open(let until): until <= now && inFlight == 0
        case .halfOpen: false
        }
    }

    /// When `allows` may change by time alone; nil if it does not.
    public var reopensAt: Timestamp? {
        if case .open(let until) = state { until } else { nil }
    }

    /// A request is sent.
    public mutating func sent(now: Timestamp) {
        if case .open(let until) = state, until <= now { state = .halfOpen }
    }

    /// Records a response that shows that the upstream works, including one that rejects a message. Returns whether
    /// this ended an outage.
    @discardableResult public mutating func succeeded() -> Bool {
        switch state {
        case .closed where failures > 0:
            failures = 0
            return false
        case .closed:
            allowance = min(most, allowance * 2)
            return false
        case .halfOpen:
            failures = 0
            state = .closed
            return true
        // The response to a request that was sent before the circuit opened says nothing about the reason; a
        // `Retry-After` is obeyed to its end.
        case .open: return false
        }
    }

    /// Ends an outage on other evidence than a probe. The number of concurrent requests starts at one all the same.
    public mutating func close() {
        failures = 0
        state = .closed
    }

    /// Records a failure. If the circuit opens, the upstream is probed from `retryAt` on. Returns whether this began an
    /// outage.
    @discardableResult public mutating func failed(retryAt: Timestamp) -> Bool {
        failures += 1
        switch state {
        case .closed where failures < threshold: return false
        case .closed:
            state = .open(until: retryAt)
            allowance = 1
            return true
        case .halfOpen, .open:
            // Responses to requests that were sent before the circuit opened must not shorten the wait.
            let until = reopensAt.map { max($0, retryAt) } ?? retryAt
            state = .open(until: until)
            allowance = 1
            return false
        }
    }

    /// Opens at once, for example after a rate limit or wrong credentials. Returns whether this began an outage.
    @discardableResult public mutating func hold(until: Timestamp) -> Bool {
        let wasClosed = state == .closed
        failures += 1
        state = .open(until: max(until, reopensAt ?? until))
        allowance = 1
        return wasClosed
    }

    /// An operator's `resume` or `flush`: probe now instead of waiting.
    public mutating func probeNow(now: Timestamp) {
        if case .open = state { state = .open(until: now) }
    }

    /// The probe was returned without a result.
    public mutating func abandoned(now: Timestamp) {
        if state == .halfOpen { state = .open(until: now) }
    }
}
