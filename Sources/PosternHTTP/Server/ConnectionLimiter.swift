import Synchronization

/// Counts connections, in all and from each address, against their limits.
final class ConnectionLimiter: Sendable {
    private struct Counts {
        var total = 0
        var perAddress: [String: Int] = [:]
    }
    private let limit: Int
    private let addressLimit: Int
    private let counts = Mutex(Counts())

    /// A `perAddress` of 0 means no limit.
    init(total: Int, perAddress: Int) {
        limit = total
        addressLimit = perAddress
    }

    /// How many are admitted and not released.
    var connections: Int { counts.withLock { $0.total } }

    /// Admits one more connection if the limits allow it; it then has to be released. Returns whether it was admitted.
    func admit(_ peer: PeerAddress) -> Bool {
        counts.withLock { counts in
            guard counts.total < limit else { return false }
            if addressLimit > 0 {
                guard counts.perAddress[peer.description, default: 0] < addressLimit else { return false }
                counts.perAddress[peer.description, default: 0] += 1
            }
            counts.total += 1
            return true
        }
    }

    func release(_ peer: PeerAddress) {
        counts.withLock { counts in
            counts.total -= 1
            guard addressLimit > 0, let count = counts.perAddress[peer.description] else { return }
            counts.perAddress[peer.description] = count > 1 ? count - 1 : nil
        }
    }
}
