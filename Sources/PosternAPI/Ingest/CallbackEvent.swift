public import PosternCore
import PosternEvents
public import PosternStore
import PosternUpstream

extension Callback {
    /// A callback whose events have the form that the API documents (design, section 4).
    ///
    /// - Parameters:
    ///   - includesPayload: Whether an event contains the payload of the message that it reports.
    ///   - alerts: The alerts that are reported, too.
    public init(
        to queue: QueueTarget, as kind: Kind, of states: Set<MessageState>, in upstreams: Set<UpstreamName>?,
        includesPayload: Bool, alerts: Set<AlertEvent> = []
    ) {
        // A settlement never fails because of its events: one that the upstream's `orderBy` does not fit has no order.
        @Sendable func lane(of text: [UInt8], at moment: Timestamp) -> Result<Lane, JSONError> {
            JSONParser.ofThisThread.parse(text) { event in
                (try? queue.upstream.validate(event, of: kind, in: ValidationContext(acceptedAt: moment)).lane) ?? .none
            }
        }
        self.init(
            to: queue, as: kind, of: states, in: upstreams, includesPayload: includesPayload, alerts: alerts,
            alertLane: { (try? lane(of: $0, at: Timestamp(milliseconds: 0)).get()) ?? .none }
        ) { messages in
            var texts = CallbackTexts(includesPayload: includesPayload)
            return messages.map { message in
                texts.event(about: message) { lane(of: $0, at: message.settledAt) }
            }
        }
    }
}

/// The texts of events about messages that settle together.
private struct CallbackTexts {
    let includesPayload: Bool
    /// The messages of a batch have the same response.
    private var lastResult: (bytes: [UInt8], text: String)?

    init(includesPayload: Bool) { self.includesPayload = includesPayload }

    /// - Parameter lane: Determines the lane from the text of the event.
    mutating func event(
        about message: SettledMessage, lane: ([UInt8]) -> Result<Lane, JSONError>
    ) -> Callback.Event {
        let plain = text(of: message, payload: nil)
        guard includesPayload, let payload = message.payload else {
            return Callback.Event(plain, lane: (try? lane(plain).get()) ?? .none)
        }
        let whole = text(of: message, payload: payload)
        switch lane(whole) {
        case .success(let lane): return Callback.Event(whole, lane: lane)
        // A payload as deep as the limit is deeper inside the event. Only its lane is determined without it.
        case .failure(let error) where error.reason == .depth:
            return Callback.Event(whole, lane: (try? lane(plain).get()) ?? .none)
        case .failure: return Callback.Event(plain, lane: (try? lane(plain).get()) ?? .none)
        }
    }

    /// The payload is copied byte for byte.
    private mutating func text(of message: SettledMessage, payload: [UInt8]?) -> [UInt8] {
        let result = message.result.map { resultText($0) } ?? "null"
        var json = JSONWriter()
        json.string("id", message.id.description)
        json.string("upstream", message.upstream.description)
        json.string("kind", message.kind.description)
        json.string("state", message.state.name)
        json.string("key", message.key)
        json.string("via", MessageJSON.via(isFromSDK: message.isFromSDK))
        if let original = message.replayOf { json.string("replayOf", original.description) }
        json.number("attempts", message.attempts)
        json.time("settledAt", message.settledAt)
        json.raw("lastError", message.lastError.map(MessageJSON.error) ?? "null")
        json.raw("result", result)
        guard includesPayload else { return Array(json.finished.utf8) }
        return Array("\(json.text),\"payload\":".utf8) + (payload ?? Array("null".utf8)) + [UInt8(ascii: "}")]
    }

    private mutating func resultText(_ bytes: [UInt8]) -> String {
        if let lastResult, lastResult.bytes == bytes { return lastResult.text }
        let text = MessageJSON.result(bytes)
        lastResult = (bytes, text)
        return text
    }
}
