import PosternCore

/// When to warn about a certificate that is about to expire: 21, 7, and 1 days before, once each. Time is an argument.
struct CertificateWarning {
    private static let days = [1, 7, 21]
    private var warned: (expiresAt: Timestamp, threshold: Int)?

    /// Whole days that are left if a warning is due, else nil.
    mutating func daysLeft(until expiresAt: Timestamp, now: Timestamp) -> Int? {
        let left = expiresAt - now
        guard let threshold = Self.days.first(where: { left <= .seconds($0 * 86_400) }) else { return nil }
        if let warned, warned.expiresAt == expiresAt, warned.threshold <= threshold { return nil }
        warned = (expiresAt, threshold)
        return max(0, Int(left.components.seconds / 86_400))
    }
}
