import PosternCore
import PosternHTTP
import PosternStore

extension Problem {
    /// The problem that a client gets if the store did not apply a change.
    init(_ error: StoreError) {
        switch error {
        case .unknown:
            self.init(
                slug: .storeFailed, status: 503,
                detail: "The disk failed during the commit, \(Self.unknownOutcome)",
                headers: [("Retry-After", "30")])
        case .unresolved:
            self.init(storeUnavailable: "The database was lost during the commit, \(Self.unknownOutcome)")
        case .unavailable:
            self.init(
                storeUnavailable: "The database cannot be reached; nothing was changed. Send the request again.")
        case .conflict:
            self.init(
                storeUnavailable:
                    "Another gateway, or another program, holds what this request changes in the database; nothing was changed. "
                    + "Send the request again.")
        case .ownershipLost:
            self.init(
                storeUnavailable:
                    "Another gateway has taken over the store; this one changes nothing any more. Send the request again."
            )
        case .notOwner: self = .otherOwner
        case .lost:
            self.init(
                slug: .storeLost, status: 503,
                detail:
                    "The file of the store was deleted or replaced; nothing was changed. An operator has to intervene.",
                headers: [("Retry-After", "60")])
        case .full:
            self.init(
                slug: .diskFull, status: 507, detail: "The disk is full; nothing was changed.",
                headers: [("Retry-After", "30")])
        case .closed:
            self.init(
                slug: .shuttingDown, status: 503, detail: "The gateway is stopping; nothing was changed.",
                headers: [("Retry-After", "5")])
        case .cannotCreate, .alreadyRunning, .corrupt, .logDamaged, .foreign, .newer, .moved, .moving, .occupied,
            .inUse, .sealed, .otherType, .systemLimit, .failed,
            .nodeRunning, .unsuitable:
            self.init(
                slug: .storeFailed, status: 503,
                detail: "The store cannot be written; nothing was changed. See the log.",
                headers: [("Retry-After", "30")])
        }
    }

    /// The problem that a client gets if the store cannot be read.
    init(reading error: StoreError) {
        switch error {
        case .unavailable, .conflict, .ownershipLost, .closed: self.init(error)
        default: self.init(slug: .internal, status: 500, detail: "The store cannot be read; see the log.")
        }
    }

    private static let unknownOutcome =
        "so it is not known whether this was done. If the request had an `Idempotency-Key`, send it again with the same "
        + "one: it is stored once. Otherwise look for the `key` of its messages before you send them again; without either, "
        + "expect them twice."

    /// A problem that is over soon, here or at another gateway. `Retry-After` varies, so that not all clients return at once.
    private init(storeUnavailable detail: String) {
        self.init(
            slug: .storeUnavailable, status: 503, detail: detail,
            headers: [("Retry-After", String(Int.random(in: 1...5)))])
    }

    /// A request to a gateway that has not opened the store yet.
    static var waitingForStore: Problem {
        Problem(storeUnavailable: "The store is not available here yet; nothing was changed. Send the request again.")
    }

    /// A request that another gateway may have carried out, or not.
    static var unansweredByOwner: Problem {
        Problem(storeUnavailable: "The gateway that was to answer was lost before that, \(unknownOutcome)")
    }

    /// A request that only another gateway can answer: the one that works on the queue, or that keeps the store.
    static var otherOwner: Problem {
        Problem(
            storeUnavailable:
                "Only the gateway that works on the queue can do that, and none has answered; nothing was changed. "
                + "Send the request again.")
    }
}
