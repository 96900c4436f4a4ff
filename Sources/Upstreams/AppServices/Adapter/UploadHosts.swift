import PosternUpstream

/// Where the platform's configuration may have metrics sent: only to hosts that the operator has named.
///
/// A host is compared as it is spelled, and by nothing else. So no address of this machine or its network is ever used
/// unless the operator has spelled it: `127.0.0.1` does not permit `2130706433`, `0177.0.0.1`, or `[::ffff:127.0.0.1]`,
/// and a name that resolves to such an address has to be named itself. `BaseURL` rejects a user name, a backslash, and
/// anything else that could make another program read another host in the same text.
struct UploadHosts: Sendable {
    private let base: BaseURL
    private let further: [BaseURL]

    static let form = "expected host names or addresses, each with a port if it is not that of the scheme"

    /// - Parameter further: Hosts, each with a port if it is not the usual one; they have been checked.
    init(base: BaseURL, further: [String]) {
        self.base = base
        self.further = further.flatMap { host in ["https", "http"].compactMap { try? BaseURL("\($0)://\(host)") } }
    }

    static func isHost(_ text: String) -> Bool {
        (try? BaseURL("https://\(text)")).map { $0.path.isEmpty && !text.hasSuffix("/") } ?? false
    }

    /// Whether metrics may be sent there: to the host of `base` at its port, or by HTTPS at the usual one, if that is no
    /// less secure; or to a further host.
    func permit(_ url: String) -> Bool {
        guard let url = try? BaseURL(url) else { return false }
        if further.contains(where: { $0.host == url.host && $0.port == url.port && $0.isSecure == url.isSecure }) {
            return true
        }
        guard url.host == base.host, url.isSecure || !base.isSecure else { return false }
        return url.port == base.port || url.isSecure && url.port == 443
    }
}
