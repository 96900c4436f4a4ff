public import PosternCore

/// A filter for messages. A message has to match all that is set.
public struct MessageFilter: Sendable, Equatable {
    /// Nil means all, as in all other properties.
    public var upstream: UpstreamName?
    /// The upstreams whose messages are listed.
    public var visible: Set<UpstreamName>?
    public var kind: Kind?
    public var state: MessageState?
    public var key: String?
    /// Only messages of the lane with this name, digest, or, while they are queued, number. None is delivered.
    public var lane: String?
    /// Messages that were accepted at that time or later. A search by time assumes that the clock was never set back by
    /// more than a minute.
    public var createdAfter: Timestamp?
    /// Messages that were accepted before that time.
    public var createdBefore: Timestamp?
    /// Messages that were settled before that time. None is queued.
    public var settledBefore: Timestamp?
    /// Messages that were settled at that time or later. None is queued.
    public var settledAfter: Timestamp?
    /// Messages up to this one, in the order of acceptance.
    public var last: MessageID?
    /// Only messages whose latest attempt failed with this class; nil for all.
    public var errorClass: AttemptError.Class?
    /// A part of the detail of the last error, in upper or lower case.
    public var errorText: String? {
        didSet { lowercasedText = errorText?.lowercased() }
    }
    private var lowercasedText: String?
    /// The last error belongs to this group.
    public var group: FailureGroup.ID?

    public init(
        upstream: UpstreamName? = nil, kind: Kind? = nil, state: MessageState? = nil, key: String? = nil
    ) {
        self.upstream = upstream
        self.kind = kind
        self.state = state
        self.key = key
    }

    /// Whether only messages with an error match.
    var needsError: Bool { errorClass != nil || errorText != nil || group != nil }

    /// Whether only settled messages match.
    var needsSettlement: Bool { settledAfter != nil || settledBefore != nil }

    func shows(_ name: UpstreamName) -> Bool {
        (upstream == nil || upstream == name) && visible?.contains(name) != false
    }

    /// Everything but the upstream and the error.
    func matches(
        _ state: MessageState, _ acceptedAt: Timestamp, settledAt: Timestamp?, kind: Kind,
        key: String?
    ) -> Bool {
        if let wanted = self.state, wanted != state { return false }
        if let settledBefore, settledAt.map({ $0 >= settledBefore }) ?? true { return false }
        if let settledAfter, settledAt.map({ $0 < settledAfter }) ?? true { return false }
        if let createdAfter, acceptedAt < createdAfter { return false }
        if let createdBefore, acceptedAt >= createdBefore { return false }
        if let wanted = self.kind, wanted != kind { return false }
        if let wanted = self.key, wanted != key { return false }
        return true
    }

    func matches(_ error: AttemptError?) -> Bool {
        guard needsError else { return true }
        guard let error else { return false }
        if let errorClass, error.errorClass != errorClass { return false }
        if let lowercasedText, !error.detail.lowercased().contains(lowercasedText) { return false }
        if let group, FailureGroup.ID(error) != group { return false }
        return true
    }

    private func isOfLane(_ record: MessageRecord) -> Bool {
        guard let lane else { return true }
        guard let name = record.laneName else { return Lane(number: record.lane).isCalled(lane) }
        return name == lane || record.lane != 0 && "\(record.lane)" == lane
    }

    public func matches(_ record: MessageRecord) -> Bool {
        UpstreamName(stored: record.upstream).map(shows) == true
            && matches(
                record.state, record.acceptedAt, settledAt: record.settledAt, kind: record.kind, key: record.key)
            && matches(record.lastError) && isOfLane(record)
    }
}

/// The order of a list of messages, by acceptance.
public enum MessageOrder: String, Sendable, CaseIterable {
    case oldest, newest

    /// Whether `left` is before `right` in a list.
    func precedes(_ left: Int64, _ right: Int64) -> Bool { self == .oldest ? left < right : left > right }
}

/// Where a page of a list ends. It is valid for lists in the same order, also with another filter.
public struct MessageCursor: Sendable, Equatable, CustomStringConvertible {
    public let id: MessageID
    public let order: MessageOrder

    public init(_ id: MessageID, in order: MessageOrder) {
        self.id = id
        self.order = order
    }

    private static let prefix = "newest."

    public var description: String { order == .oldest ? id.description : Self.prefix + id.description }

    /// Nil if `text` is not a cursor in the form of `description`.
    public init?(_ text: String) {
        let isNewest = text.hasPrefix(Self.prefix)
        guard let id = MessageID(isNewest ? text.dropFirst(Self.prefix.count) : text[...]) else { return nil }
        self.init(id, in: isNewest ? .newest : .oldest)
    }
}
