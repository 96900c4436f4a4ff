import PosternCore
import PosternUpstream

/// The body of a request: the payloads as they were received, and what is around them.
struct Body: Sendable {
    private let batching: WebhookSettings.Batching
    private let head: [UInt8]
    private let tail: [UInt8]

    init(_ settings: WebhookSettings) {
        batching = settings.batch
        switch settings.batch {
        case .none, .ndjson: (head, tail) = ([], [])
        case .array: (head, tail) = (Array("[".utf8), Array("]".utf8))
        case .wrapped: (head, tail) = (Array("{\(JSONEscapes.quoted(settings.wrapIn)):[".utf8), Array("]}".utf8))
        }
    }

    var mediaType: String { batching == .ndjson ? "application/x-ndjson" : "application/json" }

    func limits(_ configured: BatchLimits) -> BatchLimits {
        var limits = configured
        switch batching {
        case .none: limits.maxMessages = 1
        // The last line ends, too.
        case .ndjson: limits.overhead = 1
        case .array, .wrapped: limits.overhead = head.count + tail.count
        }
        return limits
    }

    func bytes(of messages: [Message]) -> [UInt8] {
        switch batching {
        case .none: messages[0].payload
        case .ndjson: messages.flatMap { $0.payload.map(Self.inLine) + [0x0A] }
        case .array, .wrapped: head + messages.spliced(prefix: "", suffix: "") + tail
        }
    }

    /// A line break in JSON is white space between tokens, where a blank means the same.
    private static func inLine(_ byte: UInt8) -> UInt8 { byte == 0x0A || byte == 0x0D ? 0x20 : byte }
}
