public import PosternCore

/// An upstream in use: what it can do has been looked up once, and what it quotes of a response shows no secret.
///
/// Its description shows only its name.
public final class AnyUpstream: Sendable, CustomStringConvertible {
    /// The implementation. Its methods are called through this type only, so that secrets stay masked.
    public let base: any Upstream
    public let name: UpstreamName
    public let kinds: [Kind]
    public let traits: Traits
    /// Whether `accept` has to be called. If not, the write path skips it.
    public let validatesAgainstState: Bool
    /// Nil if requests need no token that the gateway fetches.
    public let tokenSource: (any TokenSource)?
    /// See `TokenUpstream.verifiesAtStart`; false without a `tokenSource`.
    public let verifiesAtStart: Bool
    /// What is served to the SDKs of the platform; nil if nothing is.
    public let sdk: SDKEndpoints?
    /// Required settings that are empty. If there are any, nothing is sent.
    public let missingSettings: [String]
    /// Hides the configured secrets.
    public let mask: SecretMask

    private let address: String
    private let secrets: [String]
    private let batching: (any BatchingUpstream)?
    private let stateValidating: (any StateValidatingUpstream)?
    private let probing: (any ProbingUpstream)?
    private let eventNaming: (any EventNamingUpstream)?

    public init(_ base: any Upstream) {
        self.base = base
        name = base.name
        kinds = base.kinds
        traits = base.traits
        batching = base as? any BatchingUpstream
        stateValidating = base as? any StateValidatingUpstream
        validatesAgainstState = stateValidating != nil
        let tokens = base as? any TokenUpstream
        tokenSource = tokens?.tokenSource
        verifiesAtStart = tokens?.tokenSource != nil && tokens?.verifiesAtStart ?? false
        probing = base as? any ProbingUpstream
        sdk = (base as? any SDKServingUpstream)?.sdk
        eventNaming = base as? any EventNamingUpstream
        let settings = base as? any SettingsHoldingUpstream
        missingSettings = settings?.missingSettings ?? []
        address = settings?.address ?? ""
        secrets = settings?.secrets ?? []
        mask = SecretMask(secrets)
    }

    public var description: String { name.description }

    // MARK: Accepting

    public func validate(
        _ payload: JSONValue, of kind: Kind, in context: ValidationContext
    ) throws(InvalidPayload) -> ValidPayload { try base.validate(payload, of: kind, in: context) }

    public func validate(
        _ candidate: PendingMessage, against state: any UpstreamState
    ) throws(AcceptanceError) -> [StateChange] {
        try stateValidating?.validate(candidate, against: state) ?? []
    }

    // MARK: Sending

    /// One message for an upstream that does not send batches.
    public func limits(_ configured: BatchLimits) -> BatchLimits {
        batching?.limits(configured) ?? BatchLimits(maxMessages: 1, maxBytes: configured.maxBytes)
    }

    public func limits(_ configured: BatchLimits, ofLane name: String) -> BatchLimits {
        batching?.limits(configured, ofLane: name) ?? limits(configured)
    }

    /// See `BatchingUpstream.endpoint(of:)`.
    public func endpoint(of kind: Kind) -> String? { batching?.endpoint(of: kind) }

    public func plan(for messages: [Message], in context: PlanContext) -> Plan {
        base.plan(for: messages, in: context)
    }

    // MARK: Probing

    /// Tries the upstream without a message. Secrets in the report are masked.
    public func probe(in context: any UpstreamRouteContext) async -> ProbeReport {
        guard missingSettings.isEmpty else {
            let names = missingSettings.joined(separator: ", ")
            return ProbeReport(.misconfigured, detail: "required settings are empty: \(names)")
        }
        var report =
            if let probing {
                await probing.probe(in: context)
            } else if let tokenSource {
                await context.probe(tokenSource)
            } else {
                await context.probeConnection(to: address)
            }
        report.detail = mask.excerpt(report.detail)
        return report
    }

    // MARK: Judging

    /// The verdict of `base`, with secrets masked in every text of it.
    public func judge(_ result: TransferResult, to batch: Batch, in context: PlanContext) -> Decision {
        var decision =
            switch result {
            case .success(let response): base.judge(response, to: batch, in: context)
            case .failure(let failure): base.judge(failure, to: batch, in: context)
            }
        decision.judgement = decision.judgement.shown { mask(for: batch, context.token) }
        return decision
    }

    /// The URL with masked secrets. In a query, short ones are masked, too, because a value there is known to be one.
    public func shown(url: String, _ mask: SecretMask) -> String {
        URLQuery.masked(mask.masked(url), where: secrets.contains)
    }

    /// The same for the value of a header.
    public func shown(header: (name: String, value: String), _ mask: SecretMask) -> String {
        if secrets.contains(header.value) { return SecretMask.mask }
        guard header.name.lowercased().hasSuffix("authorization") else { return mask.masked(header.value) }
        let parts = header.value.split(separator: " ", maxSplits: 1)
        return parts.count == 2 ? "\(parts[0]) \(SecretMask.mask)" : SecretMask.mask
    }

    /// Hides the configured secrets, and the parts of a request that authenticate its sender.
    public func mask(besides proofs: [String]) -> SecretMask { SecretMask(secrets + proofs) }

    private func mask(for batch: Batch, _ token: Token?) -> SecretMask {
        let headers = (batch.request?.headers ?? []).filter { $0.name.lowercased().hasSuffix("authorization") }
        return mask(besides: headers.map(\.value) + (batch.request?.proofs ?? []) + [token?.value].compactMap(\.self))
    }

    /// Nil if the type's clients do not name the event.
    public func name(of event: UpstreamEvent) -> String? { eventNaming?.name(of: event) }
    /// The clients' error for an event that is a failure; nil as above.
    public func failure(of event: UpstreamEvent) -> NamedEvent.Failure? { eventNaming?.failure(of: event) }
    /// Whether its type's clients name events.
    public var namesEvents: Bool { eventNaming != nil }
}

extension Judgement {
    /// Everything of a response that is logged, shown, or stored passes through here: secrets are masked, and text for
    /// people is cut to a readable length.
    fileprivate func shown(_ mask: () -> SecretMask) -> Judgement {
        guard quotes else { return self }
        let mask = mask()
        var result = self
        result.verdict = verdict.masked(by: mask)
        result.notice = notice?.masked(by: mask)
        result.reason = reason.map(mask.excerpt)
        result.refusal = refusal.map(mask.masked)
        return result
    }

    private var quotes: Bool {
        if notice != nil || reason != nil || refusal != nil { return true }
        return switch verdict {
        case .delivered(let result): result != nil
        case .each, .holdUpstream, .split, .reject: true
        case .proceed, .retry, .backOff, .suspect, .refreshToken, .park: false
        }
    }
}

extension UpstreamNotice {
    /// The same with secrets masked in what it quotes.
    public func masked(by mask: SecretMask) -> UpstreamNotice { .init(text, quote: quote.map(mask.excerpt)) }
}

extension Verdict {
    fileprivate func masked(by mask: SecretMask) -> Verdict {
        switch self {
        case .delivered(let result): .delivered(result: result.map(mask.masked))
        case .each(let items): .each(items.map { $0.masked(by: mask) })
        case .holdUpstream(let reason, let detail): .holdUpstream(reason, detail: mask.excerpt(detail))
        case .split(let reason): .split(reason: mask.excerpt(reason))
        case .reject(let reason): .reject(reason: mask.excerpt(reason))
        case .proceed, .retry, .backOff, .suspect, .refreshToken, .park: self
        }
    }
}

extension Verdict.Item {
    fileprivate func masked(by mask: SecretMask) -> Verdict.Item {
        switch self {
        case .delivered, .again: self
        case .reject(let reason): .reject(reason: mask.excerpt(reason))
        }
    }
}
