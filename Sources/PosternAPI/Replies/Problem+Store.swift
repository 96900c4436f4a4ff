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
                detail:
                    "The disk failed during the commit, so it is not known whether this was stored. If the request had an "
                    + "`Idempotency-Key`, send it again with the same one: it is stored once. Otherwise look for the `key` of "
                    + "its messages before you send them again; without either, expect them twice.",
                headers: [("Retry-After", "30")])
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
        case .cannotCreate, .alreadyRunning, .corrupt, .logDamaged, .foreign, .newer, .otherType, .systemLimit, .failed:
            self.init(
                slug: .storeFailed, status: 503,
                detail: "The store cannot be written; nothing was changed. See the log.",
                headers: [("Retry-After", "30")])
        }
    }
}
