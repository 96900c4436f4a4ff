import PosternCore

/// Which responses are cached, where, and for how long.
package struct CachePolicy: Sendable, Equatable {
    package enum Place: String, Sendable, CaseIterable {
        case none, memory
        /// In memory, with a copy in the store that outlives a restart.
        case store
    }

    package var requests = Place.memory
    package var tokens = Place.none
    package var requestLifetime = Duration.seconds(60)
    /// Zero means that of requests.
    package var tokenLifetime = Duration.zero
    /// Whether roles and tokens that were requested in a session are kept with it, and end with it, whatever `tokens`
    /// is. If not, they are kept like the others, for all sessions of their user.
    package var usesSession = true
    package var maxBytes = 16 << 20

    package init() {}

    var usesStore: Bool { requests == .store || tokens == .store }

    func place(of use: Cache.Key.Use) -> Place {
        switch use {
        case .requests: requests
        case .rights(session: nil): tokens
        // Where the session is, if tokens are to outlive a restart.
        case .rights: tokens == .store ? .store : .memory
        }
    }

    /// Zero means not at all.
    func lifetime(of use: Cache.Key.Use) -> Duration {
        guard place(of: use) != .none else { return .zero }
        guard case .rights = use, tokenLifetime > .zero else { return requestLifetime }
        return tokenLifetime
    }
}
