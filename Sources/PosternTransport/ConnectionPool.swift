internal import CCurl

/// Owns one `CURLSH *`: connections that transfers share, and the addresses of names. Only the loop's thread uses it, so
/// it needs no lock.
final class ConnectionPool {
    let share: UnsafeMutableRawPointer

    /// Nil if there is not enough memory.
    init?() {
        guard let share = curl_share_init() else { return nil }
        self.share = share
        for data in [CURL_LOCK_DATA_CONNECT, CURL_LOCK_DATA_DNS] {
            guard postern_curl_share(share, data) == CURLSHE_OK else {
                curl_share_cleanup(share)
                return nil
            }
        }
    }

    /// Closes the connections. No transfer uses one: each retains the pool.
    deinit { curl_share_cleanup(share) }
}
