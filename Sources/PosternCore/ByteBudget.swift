import Synchronization

/// Memory that requests share, counted in bytes. Any thread may take and give.
public final class ByteBudget: Sendable {
    /// In bytes. May be exceeded by a single request; see `take`.
    public let limit: Int
    private let used = Atomic<Int>(0)

    public init(_ limit: Int) { self.limit = limit }

    /// The part that large requests may use together: seven eighths, so that small ones are served while large bodies
    /// arrive slowly. One that needs more than this takes just this.
    public var shareOfLarge: Int { limit - limit / 8 }

    /// All bytes that were taken and not given back.
    public var bytesInUse: Int { used.load(ordering: .relaxed) }

    /// Takes `bytes` if there is room. The caller has to give them back.
    ///
    /// Nothing always fits, also while `takeAnyway` has exceeded the budget: what holds no memory is served.
    ///
    /// If nothing is in use besides `own`, which the caller has taken before, there always is room, so that a single
    /// request can be served that needs more than the budget.
    ///
    /// - Parameter most: The part of the budget that may be in use afterwards; nil means all of it.
    public func take(_ bytes: Int, besides own: Int = 0, upTo most: Int? = nil) -> Bool {
        guard bytes > 0 else { return true }
        let (before, after) = used.wrappingAdd(bytes, ordering: .relaxed)
        if after <= most ?? limit || before <= own { return true }
        used.wrappingSubtract(bytes, ordering: .relaxed)
        return false
    }

    /// Takes `bytes` even if there is no room, for memory that exists already.
    public func takeAnyway(_ bytes: Int) { used.wrappingAdd(bytes, ordering: .relaxed) }

    /// Gives back bytes that were taken.
    public func give(_ bytes: Int) { used.wrappingSubtract(bytes, ordering: .relaxed) }
}
