/// What kind of problem an error response describes: the last part of its `type`, `urn:postern:problem:<slug>`.
///
/// The set is part of the API (design, section 3).
public enum ProblemSlug: String, Sendable, CaseIterable {
    /// Not HTTP as RFC 9112 defines it, or a request that this server never accepts.
    case badRequest = "bad-request"
    case invalidJSON = "invalid-json"
    case invalidPayload = "invalid-payload"
    case unknownUpstream = "unknown-upstream"
    case unknownKind = "unknown-kind"
    case unauthorized
    case forbidden
    case notFound = "not-found"
    case methodNotAllowed = "method-not-allowed"
    case notAcceptable = "not-acceptable"
    case conflict
    case unknownSession = "unknown-session"
    case payloadTooLarge = "payload-too-large"
    case headerTooLarge = "header-too-large"
    case unsupportedMediaType = "unsupported-media-type"
    case rateLimited = "rate-limited"
    case outboxFull = "outbox-full"
    case diskFull = "disk-full"
    /// The store reported an error; whether the change was written may be unknown.
    case storeFailed = "store-failed"
    /// The store's file was deleted or replaced while the gateway was running.
    case storeLost = "store-lost"
    /// The database of the store cannot be reached, or another gateway owns the store.
    case storeUnavailable = "store-unavailable"
    case overloaded
    case shuttingDown = "shutting-down"
    case idempotencyMismatch = "idempotency-mismatch"
    /// The response to `Prefer: wait`, and of a proxied call, if the upstream rejected the request.
    case deliveryFailed = "delivery-failed"
    case `internal`

    /// Reasons for which messages are not stored, as the metric of refused messages has them.
    public static var refusingMessages: [ProblemSlug] {
        allCases.filter { slug in
            switch slug {
            case .badRequest, .invalidJSON, .invalidPayload, .unauthorized, .forbidden, .conflict, .unknownSession,
                .payloadTooLarge, .unsupportedMediaType, .rateLimited, .outboxFull, .diskFull,
                .storeFailed, .storeLost, .storeUnavailable, .overloaded, .shuttingDown, .idempotencyMismatch,
                .unknownUpstream, .unknownKind:
                true
            case .notFound, .methodNotAllowed, .notAcceptable, .headerTooLarge, .deliveryFailed, .internal: false
            }
        }
    }

    /// The same for every occurrence, as RFC 9457 requires.
    public var title: String {
        let words = rawValue.split(separator: "-").joined(separator: " ")
        return switch self {
        case .invalidJSON: "Invalid JSON"
        case .internal: "Internal error"
        default: words.prefix(1).uppercased() + words.dropFirst()
        }
    }
}
