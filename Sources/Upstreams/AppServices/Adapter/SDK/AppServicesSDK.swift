import PosternCore
import PosternUpstream

/// AppServices in the place of the platform's, for the Apigee SDK. A step is stored first. Then the answer of the platform
/// is passed on if it comes soon; otherwise the SDK gets the entity that the platform would have.
struct AppServicesSDK: Sendable {
    private let upstream: AppServicesUpstream
    private let calls: SDKCalls
    private let endpoint: SDKEndpoint
    private let wait: Int

    init(_ upstream: AppServicesUpstream, _ calls: SDKCalls) {
        self.upstream = upstream
        self.calls = calls
        endpoint = SDKEndpoint(upstream.settings)
        wait = Int(upstream.settings.answerWait.components.seconds)
    }

    private var settings: AppServicesSettings { upstream.settings }
    private var requests: Requests { upstream.monitoring.requests }

    // MARK: Routes

    var endpoints: SDKEndpoints {
        let depth = settings.sdk.prefix(of: upstream.name).split(separator: "/").count
        return SDKEndpoints(
            settings.sdk, of: upstream.name, SDKCall.endpoints.compactMap { route($0, depth) },
            // A stranger learns nothing about paths.
            unrouted: { request, reason in refusal(of: request, depth) ?? Self.refusal(reason) },
            refusal: Self.refusal)
    }

    private func route(_ endpoint: (call: SDKCall, method: String, path: String), _ depth: Int) -> SDKRoute? {
        let call = endpoint.call
        let root = "{organization}/{application}/"
        let alias =
            switch call {
            case .device, .connect, .disconnect: endpoint.path.replacing("devices/", with: "device/")
            // With the name in the query (quirk 1).
            case .findGroup: "groups"
            default: nil as String?
            }
        // The SDK takes any answer for a success.
        let withoutRoom: SDKAnswer? = call == .crash ? .dropped(.noRoom) : nil
        return SDKRoute.Method(rawValue: endpoint.method).map { method in
            SDKRoute(
                call.rawValue,
                or: call == .device ? [SDKCall.preferences.rawValue, SDKCall.unregisterDevice.rawValue] : [], method,
                root + endpoint.path, alias: alias.map { root + $0 }, withoutRoom: withoutRoom,
                .head { refusal(of: $0, depth) },
                .perform { request, context throws(SDKAnswer) in try await answer(request, depth, context) })
        }
    }

    private func refusal(of request: SDKRequest, _ depth: Int) -> SDKAnswer? {
        do throws(SDKAnswer) {
            _ = try IncomingCall.Head(received(request, depth), at: endpoint)
            return nil
        } catch {
            return error
        }
    }

    private func received(_ request: SDKRequest, _ depth: Int) -> IncomingCall.Received {
        let path = request.path.split(separator: "/").dropFirst(depth).joined(separator: "/")
        return IncomingCall.Received(
            method: request.method == "HEAD" ? "GET" : request.method,
            path: request.path.hasSuffix("/") ? path + "/" : path, query: request.queryText,
            headers: ["x-auth-provider", "authorization", "x-authorization"].compactMap { name in
                request.header(name).map { (name, $0) }
            }, body: request.body, at: request.receivedAt)
    }

    private func answer(
        _ request: SDKRequest, _ depth: Int, _ context: any SDKContext
    ) async throws(SDKAnswer) -> SDKAnswer {
        let call = try IncomingCall.read(received(request, depth), at: endpoint)
        var answer =
            switch call.call {
            case .configuration: await configuration(request, context)
            case .findGroup: await group(call, request, context)
            case .metrics: await report(call, request, #"{"message":"Successfully sent"}"#, context)
            case .crash: await report(call, request, "{}", context)
            case .device, .user, .connect, .preferences, .disconnect, .unregisterDevice, .createGroup, .addToGroup,
                .removeFromGroup:
                await step(call, request, context)
            }
        answer.call = call.call.rawValue
        return answer
    }

    // MARK: Steps

    /// What the answer to a step depends on, from before it is stored.
    private struct Before: Sendable {
        /// Nothing that it would be sent after is queued.
        let isFirst: Bool
        let isTokenRefused: Bool
        let envelope: SDKAnswer
    }

    private func step(_ call: IncomingCall, _ request: SDKRequest, _ context: any SDKContext) async -> SDKAnswer {
        let item = item(call, request.validationContext)
        let before: Before
        do throws(StateError) {
            before = try await context.read { state in
                Before(
                    isFirst: isFirst(item, call, in: state), isTokenRefused: isRefused(call, in: state),
                    envelope: envelope(request).answer(
                        to: call, method: request.method, known: SDKDevice(call, in: state),
                        platformID: call.call == .createGroup
                            ? calls.id(ofGroup: call.group) : state.userID(call.user.lowercased())))
            }
        } catch {
            return .error(.noRoom, at: request.receivedAt)
        }
        let waits = wait > 0 && before.isFirst && !before.isTokenRefused && !context.isAway
        let awaited = waits ? AwaitedResponse() : nil
        let stored = await context.store(
            submission(item, call, request) { [calls] receipt in
                if let awaited, let id = receipt.ids.first { calls.await(awaited, to: id) }
                return before.envelope
            })
        guard stored.outcome == .accepted else { return stored }
        if call.call == .createGroup { calls.note(call.group, isMissing: false, at: request.receivedAt) }
        if before.isTokenRefused { return .error(.expiredToken, at: request.receivedAt) }
        guard let awaited else { return stored }
        defer { calls.forget(awaited) }
        let found = await context.wait(seconds: wait) { awaited.whenFound($0) }
        return found.flatMap { found in passedOn(found.response, to: call, found.step, request) } ?? stored
    }

    private func passedOn(
        _ response: UpstreamResponse, to call: IncomingCall, _ step: Step, _ request: SDKRequest
    ) -> SDKAnswer? {
        .passedOn(response, to: call.call, step, withoutKey: endpoint.apiKey, at: request.receivedAt)
    }

    private func envelope(_ request: SDKRequest) -> SDKEnvelope {
        SDKEnvelope(
            upstream: upstream.name, endpoint: endpoint,
            url: "\(request.isEncrypted ? "https" : "http")://\(request.header("Host") ?? "")\(request.path)",
            now: request.receivedAt)
    }

    private func item(_ call: IncomingCall, _ context: ValidationContext) -> SDKItem {
        let payload = Array(call.payload.utf8)
        let kind = call.call.kind ?? .metrics
        return SDKItem(kind.kind, payload.indices, validation(of: payload, call, kind, context))
    }

    private func validation(
        of payload: [UInt8], _ call: IncomingCall, _ kind: AppServicesKind, _ context: ValidationContext
    ) -> Result<ValidPayload, InvalidPayload> {
        if let invalid = call.invalid { return .failure(invalid) }
        let read = JSONParser.ofThisThread.parseWithLoneSurrogates(payload) {
            root -> Result<ValidPayload, InvalidPayload> in
            do throws(InvalidPayload) {
                return .success(try upstream.validate(root, as: kind, by: endpoint.rules, in: context))
            } catch {
                return .failure(error)
            }
        }
        return (try? read.get()) ?? .failure(InvalidPayload([PayloadError("", "cannot be read")]))
    }

    private func submission(
        _ item: SDKItem, _ call: IncomingCall, _ request: SDKRequest,
        answer: @escaping @Sendable (SDKReceipt) -> SDKAnswer
    ) -> SDKSubmission {
        var submission = SDKSubmission(Array(call.payload.utf8), [item], answer: answer)
        guard !endpoint.keepsInvalid else { return submission }
        submission.refusal = { refused in
            let error = refused.values.first
            return error?.reason == .full
                ? .error(.noRoom, at: request.receivedAt)
                : .error(.invalid, at: request.receivedAt, error?.detail)
        }
        return submission
    }

    // MARK: What is queued, and tokens

    private func isFirst(_ item: SDKItem, _ call: IncomingCall, in state: any UpstreamState) -> Bool {
        guard case .success(let valid) = item.validation,
            let stored = Item(Array(call.payload.utf8), of: item.kind, in: valid.lane)
        else { return false }
        let needsUser = stored.kind == .connect || stored.kind == .addToGroup
        let lanes = [stored.laneName] + (needsUser ? [stored.userLane] : [])
        return lanes.allSatisfy { state.queued(inLane: $0, atMost: 1) == 0 } && !state.hasPredecessor(stored)
    }

    /// Whether the platform has refused the token, for whomever it was sent.
    private func isRefused(_ call: IncomingCall, in state: any UpstreamState) -> Bool {
        guard let token = call.credential?.value else { return false }
        let alias = TokenAlias.name(of: token)
        let owners = [call.user.lowercased(), alias, state.user(of: alias, on: call.device) ?? ""]
        return owners.contains { !$0.isEmpty && state.wasRefused(Credential(owner: $0, value: token)) }
    }

    // MARK: Groups

    private func group(_ call: IncomingCall, _ request: SDKRequest, _ context: any SDKContext) async -> SDKAnswer {
        let now = request.receivedAt
        let isKnown = (try? await context.read { isRefused(call, in: $0) }) ?? false
        if isKnown { return .error(.expiredToken, at: now) }
        let text = #"{"group":\#(JSONEscapes.quoted(call.group))}"#
        let item = Item(Array(text.utf8), of: AppServicesKind.createGroup.kind, in: .named("", group: ""))
        if wait > 0, !context.isAway, let item, let credential = call.credential {
            let asked = requests.request(
                .findGroup, for: item, lists: nil, registeredNotifier: nil, credential: credential)
            let result = await context.send(asked, timeout: .seconds(wait), isAbortable: true)
            if case .success(let response) = result, let answer = passedOn(response, to: call, .findGroup, request) {
                let told = Answer(response, now: now)
                let isMissing = told.meaning(of: .findGroup) == .notFound
                calls.note(call.group, id: told.entityID, isMissing: isMissing, at: now)
                return answer
            }
        }
        if calls.isMissing(call.group, at: now) { return .error(.notFound, at: now) }
        return envelope(request).answer(to: call, method: request.method, platformID: calls.id(ofGroup: call.group))
    }

    // MARK: Monitoring

    private func report(
        _ call: IncomingCall, _ request: SDKRequest, _ text: String, _ context: any SDKContext
    ) async -> SDKAnswer {
        await context.store(
            submission(item(call, request.validationContext), call, request) { .json(200, $0.outcome, text) })
    }

    private static let mostConfiguration = 64 << 10

    /// The platform's answer, or its last one.
    private func configuration(_ request: SDKRequest, _ context: any SDKContext) async -> SDKAnswer {
        let last = (try? await context.read { $0.value(of: Monitoring.answerKey) }) ?? nil
        if wait > 0, !context.isAway {
            let result = await context.send(
                requests.configurationRequest, timeout: .seconds(wait), isAbortable: true)
            if case .success(let response) = result, response.status < 500, !response.isDeferral,
                (try? JSONParser.ofThisThread.parse(response.body) { $0.kind == .object }.get()) == true
            {
                if response.status == 200, response.body != last, response.body.count <= Self.mostConfiguration {
                    context.enqueue([.set(key: Monitoring.answerKey, value: response.body)])
                }
                return .json(response.status, .proxied, String(decoding: response.body, as: UTF8.self))
            }
        }
        guard let last else { return .error(.noRoom, at: request.receivedAt) }
        return .json(200, .accepted, String(decoding: last, as: UTF8.self))
    }

    // MARK: Refusals

    static func refusal(_ reason: SDKRefusal) -> SDKAnswer {
        let now = SystemTime().now
        return switch reason {
        case .notFound: .error(.notFound, at: now)
        case .methodNotAllowed(let allowed): .wrongMethod(allowed, at: now)
        case .unauthorized: .error(.noCredentials, at: now)
        case .forbidden: .error(.forbidden, at: now)
        case .malformed: .error(.notJSON, at: now)
        case .tooLarge: .error(.tooLarge, at: now)
        case .noRoom: .error(.noRoom, at: now)
        }
    }
}
