public import PosternCore

/// The messages of one upstream request, oldest first; never empty.
public struct Batch: Sendable {
    public let id: BatchID
    /// In accepted order; all of one lane if the upstream's lanes are separate.
    public let messages: [Message]
    /// The request that carried them; nil if none did.
    public let request: UpstreamRequest?

    public init(id: BatchID, messages: [Message], request: UpstreamRequest? = nil) {
        precondition(!messages.isEmpty, "a batch holds at least one message")
        self.id = id
        self.messages = messages
        self.request = request
    }
}

extension [Message] {
    /// The payload texts joined by commas, between `prefix` and `suffix`.
    public func spliced(prefix: StaticString, suffix: StaticString) -> [UInt8] {
        var text: [UInt8] = []
        text.reserveCapacity(
            reduce(prefix.utf8CodeUnitCount + suffix.utf8CodeUnitCount) { $0 + $1.payload.count + 1 })
        prefix.withUTF8Buffer { text.append(contentsOf: $0) }
        for (index, message) in enumerated() {
            if index > 0 { text.append(UInt8(ascii: ",")) }
            text.append(contentsOf: message.payload)
        }
        suffix.withUTF8Buffer { text.append(contentsOf: $0) }
        return text
    }
}

extension [Message] {
    /// Those of the first message's kind, and the others, both in their order. A message that follows another one of its
    /// lane among the others is one of them, too, so that the lane keeps its order.
    public func dividedByKind() -> (ofFirstKind: [Message], others: [Message]) {
        guard let kind = first?.kind, contains(where: { $0.kind != kind }) else { return (self, []) }
        var divided: (ofFirstKind: [Message], others: [Message]) = ([], [])
        var waitingLanes: Set<Lane> = []
        for message in self {
            if message.kind == kind, !waitingLanes.contains(message.lane) {
                divided.ofFirstKind.append(message)
            } else {
                divided.others.append(message)
                if message.lane != .none { waitingLanes.insert(message.lane) }
            }
        }
        return divided
    }
}

/// How much one request may carry.
public struct BatchLimits: Sendable, Equatable {
    /// At least 1.
    public var maxMessages: Int
    /// Bytes of the body before compression: payloads, a comma between two, and `overhead`. A message that is larger
    /// by itself is sent alone.
    public var maxBytes: Int
    /// Bytes of the body that do not belong to a payload: for example, 2 for `[` and `]`.
    public var overhead: Int

    public init(maxMessages: Int, maxBytes: Int, overhead: Int = 0) {
        self.maxMessages = maxMessages
        self.maxBytes = maxBytes
        self.overhead = overhead
    }
}
