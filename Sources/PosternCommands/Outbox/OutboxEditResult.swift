import PosternCore
import PosternStore

/// The result of `postern outbox retry`, `cancel`, or `purge`.
public struct OutboxEditResult: Sendable, Equatable {
    /// A message that was not changed.
    struct Rejection: Sendable, Equatable {
        let id: MessageID
        /// A sentence for people, without its full stop.
        let reason: String

        init(_ id: MessageID, _ reason: String) {
            self.id = id
            self.reason = reason
        }
    }

    let action: MessageAction
    /// How many messages were changed, or would be in a preview.
    var count: Int
    /// The messages that were not changed, in the order of the request.
    var refused: [Rejection]
    /// The URL of the gateway that made the change; nil if the store itself was changed.
    let gatewayURL: String?
    /// Whether `count` messages were only counted.
    let isPreview: Bool

    init(
        _ action: MessageAction, count: Int = 0, refused: [Rejection] = [], gatewayURL: String? = nil,
        isPreview: Bool = false
    ) {
        self.isPreview = isPreview
        self.action = action
        self.count = count
        self.refused = refused
        self.gatewayURL = gatewayURL
    }

    /// 1 if any message was not changed.
    public var exitCode: Int32 { refused.isEmpty ? 0 : CommandFailure.no }

    /// One line for the result, and one for each message that was not changed.
    public var text: String {
        let messages = count == 1 ? "1 message" : "\(count) messages"
        let done: String
        switch action {
        case _ where isPreview:
            let past = action == .purge ? "removed" : action.past
            return "\(messages) would be \(past); nothing was changed. Add --yes to do it."
        case .retry: done = "\(messages) queued again" + (gatewayURL == nil ? "; sent when the gateway runs." : ".")
        case .cancel: done = "\(messages) cancelled."
        case .purge: done = "\(messages) removed."
        }
        return ([done] + refused.map { "\($0.id): \($0.reason)" }).joined(separator: "\n")
    }

    /// One JSON object with the same content.
    public var json: String {
        JSONWriter.object { json in
            json.number(action.past, count)
            if isPreview { json.flag("preview", true) }
            json.raw(
                "refused",
                JSONWriter.array(
                    refused.map { refusal in
                        JSONWriter.object { json in
                            json.string("id", refusal.id.description)
                            json.string("detail", refusal.reason)
                        }
                    }))
        }
    }
}
