public import PosternCore

/// Delivered messages that are queued again, as new messages and in the order of the old ones. Its record is stored, and
/// changes in the transactions that store its messages, so that it goes on after a restart where it was.
public struct Replay: Sendable, Equatable, Codable {
    /// Which messages, and where to. Two requests with the same id have to be equal.
    public struct Request: Sendable, Equatable, Codable {
        /// The upstream to which the messages were delivered.
        public var upstream: String
        /// The upstream that gets them now.
        public var to: String
        public var kind: String?
        public var key: String?
        /// The times, in milliseconds since 1970, from which on and before which the messages were settled; nil for any.
        public var settledAfterMs: Int64?
        public var settledBeforeMs: Int64?

        public init(upstream: UpstreamName, to: UpstreamName) {
            (self.upstream, self.to) = ("\(upstream)", "\(to)")
        }
    }

    /// A message that its upstream rejected.
    public struct Skipped: Sendable, Equatable, Codable {
        public let id: Int64
        public let detail: String

        public init(_ id: MessageID, _ detail: String) { (self.id, self.detail) = (id.rawValue, detail) }
    }

    /// The most messages of which it is known why they were skipped.
    static let maxSkipped = 20

    public let id: String
    public private(set) var request: Request
    /// The name of the caller's key; nil without one.
    public let by: String?
    public let startedAtMs: Int64
    /// The newest message that it may be about, so that it never replays its own.
    private let through: Int64
    /// The latest message that was dealt with; 0 before the first.
    private(set) var position: Int64 = 0
    /// How many messages matched when it began.
    public var matched = 0
    /// How many were queued.
    public private(set) var done = 0
    /// How many their upstream rejects, or are damaged.
    public private(set) var refused = 0
    /// How many had no payload any more.
    public private(set) var withoutPayload = 0
    /// The first of those that were refused.
    public private(set) var skipped: [Skipped] = []
    /// Nil while it goes on.
    public private(set) var finishedAtMs: Int64?
    /// Whether it was stopped before its end.
    public private(set) var isStopped = false

    /// - Parameter newest: The newest message of the upstream.
    public init(id: String, _ request: Request, by key: String?, newest: MessageID, at now: Timestamp) {
        (self.id, self.request, by) = (id, request, key)
        (startedAtMs, through) = (now.milliseconds, newest.rawValue)
    }

    public var isRunning: Bool { finishedAtMs == nil }
    /// Where the next step begins.
    public var cursor: MessageID { MessageID(rawValue: position) }

    /// The messages that it is about: none that is delivered after it began.
    public var filter: MessageFilter {
        var filter = MessageFilter(
            upstream: UpstreamName(stored: request.upstream), kind: request.kind.map { Kind($0) }, state: .delivered,
            key: request.key)
        filter.last = MessageID(rawValue: through)
        filter.settledAfter = request.settledAfterMs.map(Timestamp.init(milliseconds:))
        filter.settledBefore = Timestamp(milliseconds: min(request.settledBeforeMs ?? .max, startedAtMs + 1))
        return filter
    }

    /// What one step does, from `from` on.
    public struct Step: Sendable {
        public let from: MessageID
        public var messages: [(original: MessageID, message: NewMessage)] = []
        public var refused: [Skipped] = []
        public var withoutPayload = 0
        /// Behind the last of its messages; nil if there are no others.
        public var next: MessageID?

        public init(from: MessageID, next: MessageID?) { (self.from, self.next) = (from, next) }
    }

    /// The result of a step.
    public struct Progress: Sendable {
        /// As it is stored.
        public let replay: Replay
        /// The kinds of the messages that were queued.
        public let kinds: [Kind]
    }

    mutating func advance(by step: Step, at now: Timestamp) {
        done += step.messages.count
        refused += step.refused.count
        withoutPayload += step.withoutPayload
        skipped += step.refused.prefix(Self.maxSkipped - skipped.count)
        position = step.next?.rawValue ?? through
        if step.next == nil { finishedAtMs = now.milliseconds }
    }

    mutating func stop(at now: Timestamp) { (isStopped, finishedAtMs) = (true, now.milliseconds) }

    /// Forgets the key whose messages it is about, and the texts that may quote them. There are none any more.
    mutating func forgetKey(at now: Timestamp) {
        if isRunning { stop(at: now) }
        request.key = nil
        skipped = []
    }
}
