import PosternCore
import PosternHTTP
import PosternUpstream
import Synchronization

/// Decides who may call, by the route table. Any thread.
///
/// As soon as a key is configured, every route but the open ones requires one. A key is checked before the path is, so
/// that a stranger learns nothing, not even which paths exist.
final class Gatekeeper: Sendable {
    let keys: KeyRing
    private let opensMetrics = Atomic<Bool>(false)
    private let failures = Mutex(FailedAttempts())

    init(_ keys: KeyRing) { self.keys = keys }

    /// Whether `/metrics` requires no key.
    func setOpensMetrics(_ opens: Bool) { opensMetrics.store(opens, ordering: .relaxed) }

    enum Decision {
        /// The caller is nil if no key is configured, or if the route requires none. A wrong key on a route that
        /// requires none delays the response.
        case pass(Caller?, delay: Duration = .zero)
        case refuse(Problem, Caller? = nil, delay: Duration = .zero)
    }

    func decide(_ head: RequestHead, _ match: RouteMatch?, time: any TimeSource, at instant: MonotonicInstant)
        -> Decision
    {
        if head.clientCertificate == .missing, match?.route.isProbe != true {
            return .refuse(Self.certificateRequired)
        }
        if let match, match.route.access == .password { return decidePassword(head, match, time: time, at: instant) }
        guard !keys.isEmpty else { return .pass(nil) }
        guard !isOpen(match) else {
            // Who probes the gateway learns more with a key.
            let isProbe = match?.route.isProbe == true
            return .pass(
                isProbe ? caller(of: head, at: time.now) : nil,
                delay: delayOfWrongKey(head, match, at: time.now, instant))
        }
        let caller: Caller
        switch authenticate(head, at: time.now) {
        case .caller(let found): caller = found
        case .missing: return .refuse(Self.unauthorized("This path requires an API key: Authorization: Bearer <key>."))
        case .unknown: return failed("The API key is not valid.", head, instant)
        case .expired: return failed("The API key has expired.", head, instant)
        }
        if let wait = caller.takeRequest(at: instant) {
            return .refuse(Self.rateLimited("requests", wait), caller)
        }
        if let match, let problem = refusal(of: caller, head, match) { return .refuse(problem, caller) }
        return .pass(caller)
    }

    /// A caller that may not write is a stranger: an SDK is told nothing else.
    private func decidePassword(
        _ head: RequestHead, _ match: RouteMatch, time: any TimeSource, at instant: MonotonicInstant
    ) -> Decision {
        let caller: Caller
        switch authenticate(head, acceptsPassword: true, at: time.now) {
        case .caller(let found): caller = found
        case .missing: return .refuse(Self.unauthorized("This path requires an API key."))
        case .unknown, .expired: return failed("The API key is not valid.", head, instant)
        }
        guard refusal(of: caller, head, match) == nil, caller.key.scopes.contains(.write) else {
            return failed("The API key is not valid here.", head, instant)
        }
        if let wait = caller.takeRequest(at: instant) {
            return .refuse(Self.rateLimited("requests", wait), caller)
        }
        return .pass(caller)
    }

    private func authenticate(
        _ head: RequestHead, acceptsPassword: Bool = false, at time: Timestamp
    ) -> KeyRing.Authentication {
        let name: String? = if case .verified(let name) = head.clientCertificate { name } else { nil }
        var found: KeyRing.Authentication?
        head.withHeader("authorization") { header in
            let known = (head.connectionMemory.value as? KnownAuthorization).flatMap { $0.equals(header) ? $0 : nil }
            let bearer = known?.digest ?? KeyDigest(ofBearer: header)
            let digest = bearer ?? (acceptsPassword ? KeyDigest(ofBasic: header) : nil)
            let authentication = keys.authenticate(digest, certificateName: name, now: time)
            if case .caller = authentication {
                // A password counts on some routes only.
                if known == nil, let bearer { head.connectionMemory.value = KnownAuthorization(header, bearer) }
            } else if known != nil {
                head.connectionMemory.value = nil
            }
            found = authentication
        }
        return found ?? keys.authenticate(nil, certificateName: name, now: time)
    }

    /// Counts a wrong key on a route that requires none, but shows whether a key is valid.
    func delayOfWrongKey(
        _ head: RequestHead, _ match: RouteMatch?, at time: Timestamp, _ instant: MonotonicInstant
    ) -> Duration {
        guard match?.route.isProbe == true || isOpenMetrics(match), !keys.isEmpty else { return .zero }
        switch authenticate(head, at: time) {
        case .caller, .missing: return .zero
        case .unknown, .expired: return failed(from: head.peer, at: instant)
        }
    }

    /// Counts a failed authentication. Returns the delay of its response.
    func failed(from address: PeerAddress, at instant: MonotonicInstant) -> Duration {
        failures.withLock { $0.failed(from: address, at: instant) }
    }

    /// Nil without a valid key.
    private func caller(of head: RequestHead, at time: Timestamp) -> Caller? {
        if case .caller(let caller) = authenticate(head, at: time) { caller } else { nil }
    }

    /// The caller of a request that another node has received, by the name of its key. Throws the problem if it may not send
    /// the request here: the nodes may be configured differently.
    func caller(named name: String, _ head: RequestHead, _ match: RouteMatch) throws(Problem) -> Caller? {
        guard !keys.isEmpty, !isOpen(match) else { return nil }
        guard let caller = keys.all.first(where: { $0.key.name == name }) else {
            throw Self.unauthorized("The gateway that answers has no key \(name); give both the same keys.")
        }
        if let problem = refusal(of: caller, head, match) { throw problem }
        return caller
    }

    private func isOpen(_ match: RouteMatch?) -> Bool {
        match?.route.access == .open || match?.route.access == .platform || isOpenMetrics(match)
    }

    private func isOpenMetrics(_ match: RouteMatch?) -> Bool {
        opensMetrics.load(ordering: .relaxed) && match?.route.template.text == "/metrics"
    }

    /// Whether the name in `Host` decides: a web page that has pointed its name at the gateway has no key, so it reads
    /// only what requires none.
    func checksHost(of head: RequestHead, _ match: RouteMatch?, at time: Timestamp) -> Bool {
        keys.isEmpty || isOpenMetrics(match) && caller(of: head, at: time) == nil
    }

    private func refusal(of caller: Caller, _ head: RequestHead, _ match: RouteMatch) -> Problem? {
        if case .scope(let declared) = match.route.access {
            // A dry run stores nothing: it only shows what would be sent.
            let scope = head.query?["dryRun"] == "true" ? .read : declared
            guard caller.key.scopes.contains(scope) else {
                return Problem(
                    slug: .forbidden, status: 403,
                    detail: "The key \(caller.key.name) lacks the scope \(scope.rawValue).")
            }
        }
        switch match.subject {
        case .upstream(let name)? where !caller.mayUse(name): return Self.foreign(name, to: caller)
        case .message(_, let name)? where !(name.map(caller.mayUse) ?? (caller.key.upstreams == nil)):
            return MessageHandler.noSuchMessage
        case .upstream, .message, nil: return nil
        }
    }

    private func failed(_ detail: String, _ head: RequestHead, _ instant: MonotonicInstant) -> Decision {
        .refuse(Self.unauthorized(detail, error: "invalid_token"), delay: failed(from: head.peer, at: instant))
    }

    // MARK: Refusals

    private static let certificateRequired = Problem(
        slug: .forbidden, status: 403, detail: "A client certificate of the configured authority is required.",
        close: true)

    /// `error` is one of RFC 6750, section 3.1; a request without a key gets none.
    private static func unauthorized(_ detail: String, error: String? = nil) -> Problem {
        Problem(
            slug: .unauthorized, status: 401, detail: detail,
            headers: [("WWW-Authenticate", error.map { "Bearer error=\"\($0)\"" } ?? "Bearer")])
    }

    static func foreign(_ upstream: UpstreamName, to caller: Caller) -> Problem {
        Problem(
            slug: .forbidden, status: 403,
            detail: "The key \(caller.key.name) may not use the upstream \(upstream).")
    }

    static func rateLimited(_ unit: String, _ wait: Duration) -> Problem {
        Problem(
            slug: .rateLimited, status: 429, detail: "The key has exceeded its limit of \(unit) per second.",
            headers: [("Retry-After", String(Caller.wholeSeconds(wait)))])
    }
}
