/// Why an attempt did not deliver; shown as `lastError` of a message or an upstream.
public struct AttemptError: Error, Sendable, Equatable, CustomStringConvertible {
    /// The bounded set of causes, for metrics and programs.
    public enum Class: String, Sendable, CaseIterable, Codable {
        /// The connection could not be established.
        case unreachable
        case timeout
        /// The connection broke during the transfer.
        case interrupted
        /// The response is not valid HTTP.
        case garbled
        /// 408, 420, 425, 429, and similar: the upstream asks for a later request.
        case busy
        /// The upstream, or an intermediary, responded with a 5xx status or the like.
        case failing
        case unauthorized
        /// The address or the form of the request is wrong, not the payload.
        case misconfigured
        /// The upstream rejected this message, or the gateway has, by its rules.
        case refused
        /// The stored payload is damaged, so it was not sent.
        case damaged
    }
    public let errorClass: Class
    /// The upstream's HTTP status, if it responded.
    public let status: Int?
    /// What happened; never a payload, a token or a signature.
    public let detail: String
    /// When the failure was recorded.
    public let at: Timestamp

    public init(_ errorClass: Class, status: Int? = nil, detail: String, at: Timestamp) {
        self.errorClass = errorClass
        self.status = status
        self.detail = detail
        self.at = at
    }

    public var description: String { "\(detail). \(advice)" }

    /// What follows for the messages, or what an operator can do. A sentence.
    public var advice: String {
        switch errorClass {
        case .unreachable, .timeout, .interrupted, .garbled, .busy, .failing:
            "The messages stay queued and will be sent again."
        case .unauthorized: "Check the credentials of this upstream."
        case .misconfigured: "Check the URL of this upstream, and any proxy in front of it."
        case .refused: "The message is kept as failed; fix the payload and post it again."
        case .damaged: "The message is kept as failed. Check the disk, and post the payload again."
        }
    }
}

extension AttemptError: Codable {
    private enum CodingKeys: String, CodingKey {
        case errorClass = "class"
        case status, detail, at
    }
}
