import PosternCore

/// What a request without a message shows about an upstream and the credentials for it.
public struct ProbeReport: Sendable, Equatable {
    public enum Outcome: String, Sendable, CaseIterable {
        /// The upstream accepts the credentials, as far as the request contains them. If the type has no request that
        /// tries them and changes nothing, a connection to it was made; the detail says so.
        case ok
        case unauthorized
        /// A required setting is empty, or there is no such endpoint at the configured URL.
        case misconfigured
        /// The upstream responded with an error that does not concern the credentials, for example an outage.
        case failed
        /// There was no connection, or no response.
        case unreachable
    }

    public var outcome: Outcome
    /// The status of the response; nil if there was none.
    public var status: Int?
    /// For people. May quote the response: `AnyUpstream` masks secrets in it.
    public var detail: String
    /// Whether the gateway had no thread or no memory for the request, so that nothing was found.
    public var lackedResources = false

    public init(_ outcome: Outcome, status: Int? = nil, detail: String) {
        self.outcome = outcome
        self.status = status
        self.detail = detail
    }

    /// The report if there was no response.
    public init(_ failure: TransferFailure) {
        self.init(.unreachable, detail: failure.detail)
        lackedResources = failure.reason == .lackedResources
    }

    /// How long a probe waits for a response.
    public static let timeout = Duration.seconds(10)

    /// The meaning of a status unless a type's specification says otherwise: that which it has for messages
    /// (`Verdict.usual`).
    public static func usual(for response: UpstreamResponse, detail: String? = nil) -> ProbeReport {
        let outcome: Outcome =
            switch Verdict.usual(for: response, now: Timestamp(milliseconds: 0)) {
            case .delivered: .ok
            case .holdUpstream(.credentials, _): .unauthorized
            case .holdUpstream: .misconfigured
            default: .failed
            }
        return ProbeReport(outcome, status: response.status, detail: detail ?? response.outline())
    }
}

extension UpstreamRouteContext {
    /// Sends `request`, which must change nothing at the upstream, and returns what `interpret` says of the response.
    public func probe(
        _ request: UpstreamRequest, _ interpret: @Sendable (UpstreamResponse) -> ProbeReport
    ) async -> ProbeReport {
        switch await send(request, timeout: ProbeReport.timeout, isAbortable: true) {
        case .success(let response): interpret(response)
        case .failure(let failure): ProbeReport(failure)
        }
    }

    /// Connects to the server of `url`, and sends nothing.
    public func probeConnection(to url: String) async -> ProbeReport {
        var request = UpstreamRequest(method: .get, url: url)
        request.onlyConnects = true
        return await probe(request) { _ in
            let protocols = url.lowercased().hasPrefix("https:") ? "TCP and TLS" : "TCP"
            return ProbeReport(
                .ok,
                detail: "connected by \(protocols), and sent nothing: no request of this type tries the credentials "
                    + "without an effect")
        }
    }

    /// Fetches a token and discards it. The delivery keeps the one that it has.
    func probe(_ source: any TokenSource) async -> ProbeReport {
        await probe(source.tokenRequest) { response in
            do throws(Token.Failure) {
                let token = try source.token(from: response, now: time.now)
                let expiry = token.expiresAt.map { "; it expires at \($0)" } ?? ""
                return ProbeReport(.ok, status: response.status, detail: "a token was issued\(expiry)")
            } catch {
                var report = ProbeReport.usual(for: response, detail: error.detail)
                if report.outcome == .ok { report.outcome = .failed }
                if error.credentialsRefused { report.outcome = .unauthorized }
                return report
            }
        }
    }
}
