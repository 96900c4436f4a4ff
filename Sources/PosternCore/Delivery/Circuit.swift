/// Whether an upstream may be sent to, decided by what its last requests met.
///
/// Closed, it counts failures in a row; at `threshold` it opens for a while that grows with each failed probe. When
/// that is over one probe may pass (half-open). After an opening the number of requests at a time starts at one and
/// doubles with each success (slow start).
public struct Circuit: Sendable, Equatable {
    public enum State: Sendable, Equatable {
        case closed
        case open(until: Timestamp)
        /// One probe is under way.
        case halfOpen
    }

    public private(set) var state: State = .closed
    /// Upstream failures since the last success.
    public private(set) var failures: Int
    /// Requests at a time right now; `most` when nothing is wrong.
    public private(set) var allowance: Int
    public var most: Int {
        didSet { allowance = min(allowance, most) }
    }
    let threshold: Int
    /// Failures in a row that open it.
    public static let defaultThreshold = 5

    /// A circuit as a former run left it: `reopensAt` is nil when it was closed.
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

    /// When it has to be asked again; nil when time alone changes nothing.
    public var reopensAt: Timestamp? {
        if case .open(let until) = state { until } else { nil }
    }

    /// A request goes out.
    public mutating func sent(now: Timestamp) {
        if case .open(let until) = state, until <= now { state = .halfOpen }
    }

    /// An answer that shows the upstream at work, a refusal of a message included.
    /// Returns whether this ended an outage.
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
        // Requests sent before the opening know nothing of its reason; a `Retry-After` is obeyed to its end.
        case .open: return false
        }
    }

    /// Ends an outage on other evidence than a probe. The number of requests at a time starts at one all the same.
    public mutating func close() {
        failures = 0
        state = .closed
    }

    /// The upstream failed; it is probed from `retryAt` on if it is out then. Returns whether this began an outage.
    @discardableResult public mutating func failed(retryAt: Timestamp) -> Bool {
        failures += 1
        switch state {
        case .closed where failures < threshold: return false
        case .closed:
            state = .open(until: retryAt)
            allowance = 1
            return true
        case .halfOpen, .open:
            // Answers to requests sent before the opening must not shorten it.
            let until = reopensAt.map { max($0, retryAt) } ?? retryAt
            state = .open(until: until)
            allowance = 1
            return false
        }
    }

    /// Opens at once, whatever came before: a rate limit, wrong credentials. Returns whether this began an outage.
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

    /// The probe was taken back, nothing is known.
    public mutating func abandoned(now: Timestamp) {
        if state == .halfOpen { state = .open(until: now) }
    }
}
