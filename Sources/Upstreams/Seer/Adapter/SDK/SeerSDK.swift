import Crypto
import PosternCore
import PosternUpstream

/// Seer's API in the place of the platform's, for its SDK.
struct SeerSDK: Sendable {
    private let settings: SeerSettings
    private let table: [Endpoints.Endpoint]
    private let kinds: [SeerKind]
    private let clients: [SeerSDKClient]
    private let rules = Rules(maxBytes: Self.largestItem)

    /// The SDK measures property lists, so its items can be larger than its own limit.
    private static let largestItem = 1 << 20

    init(_ settings: SeerSettings, _ endpoints: Endpoints, _ kinds: [Kind]) {
        self.settings = settings
        table = endpoints.table
        self.kinds = kinds.map { SeerKind($0) }
        let own = SeerSDKClient(id: settings.clientID, secret: settings.clientSecret, apiKey: settings.apiKey)
        clients =
            settings.sdkClients.isEmpty
            ? [own]
            : settings.sdkClients.map { client in
                client.apiKey.isEmpty
                    ? SeerSDKClient(id: client.id, secretDigest: client.secretDigest, apiKey: settings.apiKey) : client
            }
    }

    func endpoints(of name: UpstreamName) -> SDKEndpoints {
        SDKEndpoints(settings.sdk, of: name, table.compactMap { route($0, name) }, refusal: Self.refusal)
    }

    private func route(_ endpoint: Endpoints.Endpoint, _ name: UpstreamName) -> SDKRoute? {
        // A query of the platform's is none of the gateway's.
        let path = String(endpoint.path.prefix { $0 != "?" })
        if endpoint.name == Endpoints.Preset.tokenFetch.rawValue {
            return SDKRoute(
                "token", .post, path, .head(refusesClient),
                .answer { request throws(SDKAnswer) in try token(request) })
        }
        let single = kinds.first { $0.endpoint == endpoint.name }
        guard let kind = single ?? kinds.first(where: { $0.batchEndpoint?.rawValue == endpoint.name }) else {
            return nil
        }
        let isBatch = single == nil
        let call = isBatch ? "\(kind.name)_batch" : kind.sdkCall
        return SDKRoute(
            call, .post, path, .head(refusesReport),
            .store { request throws(SDKAnswer) in
                guard request.mediaType == "application/json" else { throw Self.invalidRequest }
                let parsed = try JSONParser.ofThisThread.parseWithLoneSurrogates(request.body) {
                    root throws(SDKAnswer) in
                    try submission(of: root, kind, isBatch: isBatch, name, request)
                }
                guard case .success(let submission) = parsed else { throw Self.invalidRequest }
                return submission
            })
    }

    // MARK: Tokens

    @Sendable private func refusesClient(_ request: SDKRequest) -> SDKAnswer? {
        client(of: request) == nil ? Self.error(401, .unauthorized, "invalid_client") : nil
    }

    private func client(of request: SDKRequest) -> SeerSDKClient? {
        guard let given = request.header("Authorization").flatMap({ BasicCredentials($0) }) else { return nil }
        let client = clients.first { Array($0.id.utf8) == given.user }
        guard let client, client.hasSecret(given.password), client.isKnown(by: request.queryText) else { return nil }
        return client
    }

    private func token(_ request: SDKRequest) throws(SDKAnswer) -> SDKAnswer {
        guard let client = client(of: request) else { throw Self.error(401, .unauthorized, "invalid_client") }
        let pairs = String(decoding: request.body, as: UTF8.self).split(separator: "&")
        guard request.mediaType == "application/x-www-form-urlencoded",
            let grant = pairs.last(where: { $0.hasPrefix("grant_type=") })?.dropFirst("grant_type=".count)
        else { throw Self.invalidRequest }
        guard percentDecoded(grant.utf8) == "client_credentials" else {
            throw Self.error(400, .refused, "unsupported_grant_type")
        }
        let date = request.receivedAt + settings.tokenLife
        let token = SeerToken.issue(to: client, until: date, request.random())
        // The SDK prints the number and cuts its last three characters.
        return .json(
            200, .accepted,
            #"{"access_token":"\#(token)","expiration_date":\#(date.milliseconds),"token_type":"BearerToken"}"#,
            headers: [("Cache-Control", "no-store")])
    }

    // MARK: Reports

    @Sendable private func refusesReport(_ request: SDKRequest) -> SDKAnswer? {
        let known = clients.filter { $0.isKnown(by: request.queryText) }
        guard !known.isEmpty else { return Self.error(401, .unauthorized, "invalidApiKey") }
        let parts = request.header("Authorization")?.split(separator: " ", maxSplits: 1) ?? []
        guard parts.count == 2, parts[0].lowercased() == "bearer" else { return Self.invalidToken }
        let token = parts[1].trimmingPrefix { $0 == " " }
        let isIssued = known.contains { SeerToken.accepts(token, of: $0, at: request.receivedAt) }
        return isIssued ? nil : Self.invalidToken
    }

    private func submission(
        of root: JSONValue, _ kind: SeerKind, isBatch: Bool, _ name: UpstreamName, _ request: SDKRequest
    ) throws(SDKAnswer) -> SDKSubmission {
        guard root.kind == .object else { throw Self.invalidRequest }
        var items: [SDKItem] = []
        if isBatch {
            guard let list = root["activities"], list.kind == .array else { throw Self.invalidRequest }
            for element in list.elements {
                guard element.kind == .object else { throw Self.invalidRequest }
                items.append(try item(element, kind, name, request))
            }
            guard !items.isEmpty else { throw Self.invalidRequest }
        } else {
            items = [try item(root, kind, name, request)]
        }
        return SDKSubmission(request.body, items) { .json(200, $0.outcome, "{}") }
    }

    private func item(
        _ payload: JSONValue, _ kind: SeerKind, _ name: UpstreamName, _ request: SDKRequest
    ) throws(SDKAnswer) -> SDKItem {
        do throws(InvalidPayload) {
            try rules.check(payload, as: kind)
        } catch {
            guard settings.sdk.whenInvalid == .deadLetter else { throw Self.error(400, .refused, "invalid_payload") }
            return SDKItem(kind.kind, payload.range, .failure(error), identity: identity(of: payload, kind, name))
        }
        // The app has decided to send: it does not wait for a flush.
        let lane = settings.lane(of: kind, isDirect: true, request.random)
        return SDKItem(
            kind.kind, payload.range, .success(ValidPayload(lane: lane)), identity: identity(of: payload, kind, name))
    }

    /// A statement with the id and the bytes of another one repeats it. Nothing else says that it is a repeat.
    private func identity(of payload: JSONValue, _ kind: SeerKind, _ name: UpstreamName) -> [UInt8]? {
        guard kind == .tincan, payload["id"]?.isFilledString == true else { return nil }
        var hash = SHA256()
        hash.update(data: Array("\0sdk\0\(name)\0".utf8))
        hash.update(bufferPointer: UnsafeRawBufferPointer(payload.bytes))
        return Array(hash.finalize())
    }

    // MARK: Answers

    private static let invalidRequest = error(400, .refused, "invalid_request")
    private static let invalidToken = error(401, .unauthorized, "invalidToken")

    private static func error(_ status: Int, _ outcome: SDKAnswer.Outcome, _ code: String) -> SDKAnswer {
        .json(status, outcome, #"{"error":"\#(code)"}"#)
    }

    static func refusal(_ reason: SDKRefusal) -> SDKAnswer {
        switch reason {
        case .notFound: return error(404, reason.outcome, "not_found")
        case .methodNotAllowed(let allowed):
            var answer = error(405, reason.outcome, "method_not_allowed")
            answer.headers.append(("Allow", allowed))
            return answer
        case .unauthorized: return invalidToken
        case .forbidden: return error(403, reason.outcome, "forbidden")
        case .malformed: return invalidRequest
        case .tooLarge: return error(413, reason.outcome, "too_large")
        case .noRoom:
            var answer = error(503, reason.outcome, "unavailable")
            answer.headers.append(("Retry-After", "30"))
            return answer
        }
    }
}

extension SeerKind {
    /// The name of its call in metrics and logs.
    fileprivate var sdkCall: String { if case .custom = self { "custom" } else { name } }
}
