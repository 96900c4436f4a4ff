import PosternCore
import PosternUpstream

/// The routes of an AppServices upstream in addition to ingest.
enum Resources {
    static func all(provider: Provider) -> [UpstreamRoute] {
        [
            UpstreamRoute(.get, "registrations/{userId}/{deviceId}", .read(registration)),
            UpstreamRoute(.get, "preferences/{userId}/{deviceId}", .read(preferences)),
            UpstreamRoute(
                .put, "users/{userId}/token",
                .change { request, state in handIn(request, byDefault: provider, state) }),
            UpstreamRoute(
                .post, "notifications/parse", query: NotificationReception.parameters, access: .scope(.read),
                .read { request, _ in parse(request) }),
        ]
    }

    // MARK: Registrations

    /// The four requirements under the framework's names (section 5.1), and what else is known about the pair.
    @Sendable private static func registration(
        _ request: UpstreamRouteRequest, _ state: any UpstreamState
    ) -> UpstreamRouteResponse {
        let user = request.parameters["userId"] ?? ""
        let owner = user.lowercased()
        let device = (request.parameters["deviceId"] ?? "").lowercased()
        guard state.value(of: Pair.key(owner, device)) != nil else { return unknownPair }
        let pair = state.pair(owner, device)
        let hasPushToken = pair.hasPushToken || state.device(device).step != nil
        let isUserKnown = state.isUserKnown(owner)
        let preferences = state.preferences(of: device)
        let needsToken = needsToken(owner, device, at: request.receivedAt, state)
        return .json(
            JSONWriter.object { json in
                json.string("userId", user)
                json.string("deviceId", device)
                json.flag("applicationIsRegisteredForNotifications", hasPushToken)
                json.flag("userIsRegisteredWithAppServices", isUserKnown)
                json.flag("deviceIsRegisteredWithAppServices", pair.isDeviceRegistered)
                json.flag("userIsConnectedToDevice", pair.isConnected)
                json.flag(
                    "registered",
                    hasPushToken && isUserKnown && pair.isDeviceRegistered && pair.isConnected)
                json.flag("notificationPreferencesHaveBeenUpdated", preferences?.isSent ?? false)
                json.flag("needsToken", needsToken)
            })
    }

    private static let unknownPair = UpstreamRouteResponse.notFound(
        "No message was accepted here for that user and device.")

    /// The preferences of the device, whichever of its users they came from.
    @Sendable private static func preferences(
        _ request: UpstreamRouteRequest, _ state: any UpstreamState
    ) -> UpstreamRouteResponse {
        let user = request.parameters["userId"] ?? ""
        let device = (request.parameters["deviceId"] ?? "").lowercased()
        guard state.value(of: Pair.key(user.lowercased(), device)) != nil else { return unknownPair }
        let accepted = state.preferences(of: device)
        let delivered =
            state.value(of: Preferences.deliveredKey(device)).map { String(decoding: $0, as: UTF8.self) }
            // Delivered before this was recorded.
            ?? accepted.flatMap { $0.isSent ? $0.lists : nil }
        return .json(
            JSONWriter.object { json in
                json.string("userId", user)
                json.string("deviceId", device)
                json.raw("accepted", accepted?.lists ?? "null")
                json.raw("delivered", delivered ?? "null")
            })
    }

    /// Whether a message waits for another token.
    private static func needsToken(
        _ owner: String, _ device: String, at now: Timestamp, _ state: any UpstreamState
    ) -> Bool {
        if state.hasRefusedAlias(owner, at: now) { return true }
        if let held = state.credential(of: owner) { return !held.isUsable(at: now) }
        return ["\(owner)/\(device)", "\(owner)/groups"].contains { state.queued(inLane: $0, atMost: 1) > 0 }
    }

    // MARK: Tokens

    /// Accepts a user's token, for all messages that wait for one.
    private static func handIn(
        _ request: UpstreamRouteRequest, byDefault provider: Provider, _ state: any UpstreamState
    ) -> UpstreamRouteChange {
        let user = request.parameters["userId"] ?? ""
        var faults = AppServicesFaults()
        if !Rules.isUser(user) { faults.add("", "the path names no user id", code: 7) }
        let read = JSONParser.ofThisThread.parse(request.body) {
            Auth($0, byDefault: provider, now: request.receivedAt, at: "", &faults)
        }
        let found: Auth?
        switch read {
        case .success(let auth): found = auth
        case .failure(let fault): return UpstreamRouteChange(answer: .notJSON(fault, in: request.body))
        }
        guard faults.found.isEmpty, let auth = found else {
            return UpstreamRouteChange(
                answer: invalid("The token is not valid; see errors.", faults.found))
        }
        let credential = auth.credential(of: user.lowercased())
        let held = state.credential(of: credential.owner)
        let isDead = held?.value == credential.value && !(held?.isUsable(at: request.receivedAt) ?? true)
        guard !isDead, !state.wasRefused(credential), credential.expiresAt.map({ $0 > request.receivedAt }) ?? true
        else {
            return UpstreamRouteChange(
                answer: .problem(
                    slug: .conflict, status: 409,
                    detail: "The token was rejected before, or has expired; hand in a new one."))
        }
        return UpstreamRouteChange(
            [.hold(credential)] + state.share(credential, at: request.receivedAt),
            answer: .json(
                JSONWriter.object { json in
                    json.string("userId", user)
                    json.string("provider", auth.provider.rawValue)
                    json.time("expiresAt", auth.expiresAt)
                }))
    }

    // MARK: Notifications

    private static func parse(_ request: UpstreamRouteRequest) -> UpstreamRouteResponse {
        let reception: NotificationReception
        do throws(NotificationReception.InvalidQuery) {
            reception = try NotificationReception(request)
        } catch {
            return .problem(slug: .badRequest, status: 400, detail: error.detail)
        }
        let read = JSONParser.ofThisThread.parse(request.body) { APNsPayload.read($0, received: reception) }
        switch read {
        case .failure(let fault): return .notJSON(fault, in: request.body)
        case .success(.success(let text)): return .json(text)
        case .success(.failure(let invalid)):
            return Self.invalid("The body is not a valid APNs payload; see errors.", invalid.faults)
        }
    }

    private static func invalid(_ detail: String, _ faults: PayloadErrors) -> UpstreamRouteResponse {
        .problem(slug: .invalidPayload, status: 422, detail: detail, faults: faults)
    }
}
