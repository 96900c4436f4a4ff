import PosternCore
import PosternHTTP
import PosternStore

extension Problem {
    /// What a client is told when the store did not take a change.
    init(_ error: StoreError) {
        switch error {
        case .unknown:
            self.init(
                slug: .storeFailed, status: 503,
                detail:
                    "The disk failed during the commit, so it is not known whether this was stored. If its messages have "
                    + "a `key`, look for them before you send it again; otherwise expect them twice.",
                headers: [("Retry-After", "30")])
        case .lost:
            self.init(
                slug: .storeLost, status: 503,
                detail: "The file of the store was deleted or replaced; nothing was changed. An operator has to act.",
                headers: [("Retry-After", "60")])
        case .unavailable:
            self.init(
                slug: .storeUnavailable, status: 503, detail: "The store cannot be reached; nothing was changed.",
                headers: [("Retry-After", "5")])
        case .full:
            self.init(
                slug: .diskFull, status: 507, detail: "There is no room on the disk; nothing was changed.",
                headers: [("Retry-After", "30")])
        case .closed:
            self.init(
                slug: .shuttingDown, status: 503, detail: "The gateway is stopping; nothing was changed.",
                headers: [("Retry-After", "5")])
        case .cannotCreate, .alreadyRunning, .corrupt, .logDamaged, .foreign, .newer, .failed:
            self.init(
                slug: .storeFailed, status: 503,
                detail: "The store cannot be written; nothing was changed. The log says why.",
                headers: [("Retry-After", "30")])
        }
    }
}
