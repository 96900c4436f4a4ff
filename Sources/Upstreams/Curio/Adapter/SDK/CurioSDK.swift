import PosternCore
import PosternUpstream

/// Curio's API in the place of the platform's, for its SDKs.
struct CurioSDK: Sendable {
    private let name: UpstreamName
    private let settings: CurioSettings

    init(_ upstream: CurioUpstream) { (name, settings) = (upstream.name, upstream.settings) }

    var endpoints: SDKEndpoints {
        SDKEndpoints(
            settings.sdk, of: name, SDKCall.all.map(route), patience: settings.holdTime, refusal: Self.refusal)
    }

    private func route(_ call: SDKCall) -> SDKRoute {
        let response: SDKRoute.Response =
            switch call {
            case .report(let report):
                .store { request throws(SDKAnswer) in submission(of: report, try read(request, call), request) }
            case .batch, .offline:
                .store { request throws(SDKAnswer) in submission(of: try read(request, call), request) }
            case .tags, .pushHistory:
                .perform { request, context throws(SDKAnswer) in
                    try await answer(try read(request, call), request, context)
                }
            }
        return SDKRoute(call.name, .post, call.template, .body, response)
    }

    private func read(_ request: SDKRequest, _ call: SDKCall) throws(SDKAnswer) -> CurioSDKRequest {
        guard let form = SDKForm(request.body) else { throw Self.refusal(.malformed) }
        let asked = CurioSDKRequest(call: call, form: form)
        guard asked.hasCredentials(apiKey: settings.apiKey, trackingCode: settings.trackingCode) else {
            throw SDKAnswer(412, .unauthorized)
        }
        return asked
    }

    // MARK: What is stored

    private func submission(
        of report: SDKCall.Report, _ asked: CurioSDKRequest, _ request: SDKRequest
    ) -> SDKSubmission {
        let code = String(decoding: UUIDText.version4(request.random()), as: UTF8.self)
        let item = asked.item(report, code: code, at: request.receivedAt)
        let payload = Array(item.payload.utf8)
        let stored = SDKItem(
            Kind(item.kind.rawValue), payload.indices, validation(of: payload, item.kind, request))
        let text =
            switch report {
            case .screenStart: #"{"hitCode":"\#(code)"}"#
            case .event: #"{"eventCode":"\#(code)"}"#
            case .sessionStart, .screenEnd, .eventEnd, .sessionEnd, .push, .location, .userTags, .unregister: "{}"
            }
        return submission(payload, [stored], asked, request, fault: fault(of: [stored]), text)
    }

    private func submission(of asked: CurioSDKRequest, _ request: SDKRequest) -> SDKSubmission {
        guard let batch = SDKBatch(asked) else {
            return submission([], [], asked, request, fault: "data is not a JSON array")
        }
        var (bytes, items, readable) = ([UInt8](), [SDKItem](), [SDKItem]())
        items.reserveCapacity(batch.records.count)
        for record in batch.records {
            let (item, reason) = record.item(in: asked)
            let payload = Array(item.payload.utf8)
            let identity = Code.hash("sdk", name.description, record.identity(of: asked.visitor ?? ""))
            var stored = SDKItem(
                Kind(item.kind.rawValue), bytes.count..<(bytes.count + payload.count), .success(ValidPayload()),
                identity: Array(identity.utf8))
            bytes += payload
            if let reason {
                stored.validation = .failure(InvalidPayload([PayloadError("", reason)]))
            } else {
                stored.validation = validation(of: payload, item.kind, request)
                readable.append(stored)
            }
            items.append(stored)
        }
        return submission(bytes, items, asked, request, fault: fault(of: readable))
    }

    private func submission(
        _ bytes: [UInt8], _ items: [SDKItem], _ asked: CurioSDKRequest, _ request: SDKRequest, fault: String?,
        _ text: String = "{}"
    ) -> SDKSubmission {
        var submission = SDKSubmission(bytes, items) { .json(200, $0.outcome, text) }
        submission.admission = admission(
            of: SDKEntry(settings: settings, request: asked, receivedAt: request.receivedAt, fault: fault))
        return submission
    }

    private func admission(of entry: SDKEntry) -> SDKAdmission {
        SDKAdmission { state throws(AcceptanceError) in
            try entry.changes(state)
        } refusal: { error in
            error.reason == .unknownSession ? Self.sessionGone : Self.refusal(.malformed)
        }
    }

    private func validation(
        of payload: [UInt8], _ kind: CurioKind, _ request: SDKRequest
    ) -> Result<ValidPayload, InvalidPayload> {
        let read = JSONParser.ofThisThread.parseWithLoneSurrogates(payload) {
            root -> Result<ValidPayload, InvalidPayload> in
            do throws(InvalidPayload) {
                return .success(
                    try settings.validation.validate(root, of: kind, kind.sdkFields, in: request.validationContext))
            } catch {
                return .failure(error)
            }
        }
        return (try? read.get()) ?? .failure(InvalidPayload([PayloadError("", "cannot be read")]))
    }

    /// What is wrong with one of the items, if invalid ones are not stored.
    private func fault(of items: [SDKItem]) -> String? {
        guard settings.sdk.whenInvalid == .refuse else { return nil }
        for case .failure(let invalid) in items.lazy.map(\.validation) { return invalid.faults.text }
        return nil
    }

    // MARK: What the platform is asked

    private static let longestQuery = Duration.seconds(10)

    private func answer(
        _ asked: CurioSDKRequest, _ request: SDKRequest, _ context: any SDKContext
    ) async throws(SDKAnswer) -> SDKAnswer {
        let query = try query(asked, request)
        let entry = SDKEntry(settings: settings, request: asked, receivedAt: request.receivedAt)
        let found: Result<RemoteSession, AcceptanceError>
        do throws(StateError) {
            found = try await context.read { state in
                do throws(AcceptanceError) {
                    let session = try entry.session(in: state)
                    return .success(state.remote(of: asked.session ?? "", session))
                } catch {
                    return .failure(error)
                }
            }
        } catch {
            throw Self.unavailable
        }
        guard case .success(let remote) = found else { throw Self.sessionGone }
        guard !remote.mustBeCreated, !context.isAway else { throw Self.unavailable }
        let reference = Requests.SessionReference(
            visitor: asked.visitor ?? "", session: remote.code(of: asked.session ?? ""))
        let result = await context.send(query(reference), timeout: Self.longestQuery, isAbortable: true)
        guard case .success(let response) = result, response.status == 200 || response.status == 401 else {
            throw Self.unavailable
        }
        if response.status == 401 { return SDKAnswer(401, .proxied) }
        // The SDK for iOS crashes on anything else.
        let isObject = JSONParser.ofThisThread.parseWithLoneSurrogates(response.body) { $0.kind == .object }
        guard (try? isObject.get()) == true else { throw Self.unavailable }
        var renewal = SDKSubmission([], []) { _ in SDKAnswer(200, .proxied) }
        renewal.admission = admission(of: entry)
        _ = await context.store(renewal)
        return SDKAnswer(200, .proxied, headers: [("Content-Type", "application/json")], body: response.body)
    }

    private func query(
        _ asked: CurioSDKRequest, _ request: SDKRequest
    ) throws(SDKAnswer) -> (Requests.SessionReference) -> UpstreamRequest {
        let requests = settings.requests
        guard asked.call == .pushHistory else { return { requests.tags(at: $0) } }
        let (start, rows) = (request.parameters["start"] ?? "", request.parameters["rows"] ?? "")
        guard [start, rows].allSatisfy({ !$0.isEmpty && $0.utf8.allSatisfy(\.isDigit) }) else {
            throw Self.refusal(.notFound)
        }
        return { requests.pushHistory(asked.form.filled("pushToken"), start: start, rows: rows, at: $0) }
    }

    // MARK: Refusals

    /// The SDK begins another session. Who is told so knows the credentials.
    private static let sessionGone = {
        var answer = SDKAnswer(401, .unauthorized)
        answer.isOfStranger = false
        return answer
    }()

    private static let unavailable = SDKAnswer(503, .noRoom)

    /// Without a body: the SDKs hand any JSON object to the app, whatever the status.
    static func refusal(_ reason: SDKRefusal) -> SDKAnswer {
        switch reason {
        case .notFound: SDKAnswer(404, reason.outcome)
        case .methodNotAllowed(let allowed): SDKAnswer(405, reason.outcome, headers: [("Allow", allowed)])
        case .unauthorized: SDKAnswer(401, reason.outcome)
        case .forbidden: SDKAnswer(403, reason.outcome)
        case .malformed: SDKAnswer(400, reason.outcome)
        case .tooLarge: SDKAnswer(413, reason.outcome)
        // Any answer would lose or double something.
        case .noRoom: .dropped(reason.outcome)
        }
    }
}
