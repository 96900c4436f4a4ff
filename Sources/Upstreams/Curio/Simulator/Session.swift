import PosternCore

/// One session as the server knows it.
struct Session {
    enum Life: Equatable {
        case live
        /// By `/visit/end`, or by a batch's record.
        case ended
        case timedOut
        /// By `/control`.
        case killed
        /// The server has replaced it by another one (A15).
        case adopted(into: String)
    }

    let visitor: String
    /// Counts the sessions of all visitors in the order of their starts.
    let index: Int
    let device: UInt64?
    var life = Life.live
    var timeout: Duration
    var lastSeenAt: MonotonicInstant
    /// Codes of screens and events that started in it.
    var codes: [String] = []
    /// How many requests were rejected because it is not live.
    var refusals = 0
    /// Another session of the visitor started after a refusal.
    var isReplaced = false
    /// Whether the gateway has shown that it knows of the start. Until then, the start may be repeated.
    var isKnown = false

    /// As far as the gateway can know.
    var isHealthy: Bool { life == .live || life == .ended }
}

/// A screen or event that was started.
struct Opening {
    let kind: Action.Kind
    let visitor: String
    let session: String
    /// The digest of its two texts.
    let pair: UInt64?
    var isClosed = false
}

/// What is stored about a visitor.
struct Visitor {
    /// Identities of what the last request with something new brought: after a lost answer only this may come again.
    var window: Set<UInt64> = []
    /// Sessions whose requests were refused and that no other one replaced.
    var refused: Set<String> = []
    var tags: [String: String] = [:]
}
