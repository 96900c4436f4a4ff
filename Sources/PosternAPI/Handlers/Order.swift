import PosternCore
import PosternHTTP
import PosternMetrics
import PosternStore

/// What one request wants stored: the messages that are good, and what is wrong with the others.
///
/// An object, so that it goes to the writer and back as one reference.
final class Order: @unchecked Sendable {
    // @unchecked: built by the thread that reads the request; once its messages are taken for the writer
    // nothing changes any more.
    let gateway: Gateway
    let head: RequestHead
    /// Whose upstreams and limits apply; nil if no key is configured.
    let caller: Caller?
    let form: BodyForm
    private var body: [UInt8]
    let acceptedAt: Timestamp
    let preferences: Preferences
    let isDryRun: Bool
    /// One object, answered as such.
    var isSingle = false

    private(set) var messages: [NewMessage] = []
    /// Upstream and kind of each message, for the counters.
    private(set) var kinds: [(target: Target, kind: Target.Acceptable)] = []
    private(set) var rejected: [Rejected] = []
    /// How many faults the response still has room for.
    private(set) var faultsLeft = PayloadFaults.most
    /// Did one of the messages bring a credential along?
    private var handsInCredentials = false
    /// The place in the request of each of `messages`; they differ once something was rejected.
    private var places: [Int] = []
    /// Ends the whole request.
    private(set) var problem: Problem?
    private let isInSession: Bool

    struct Rejected {
        let index: Int
        let payload: InvalidPayload
        let target: Target?
    }

    init(gateway: Gateway, head: RequestHead, caller: Caller?, form: BodyForm, body: [UInt8]) {
        self.gateway = gateway
        self.head = head
        self.caller = caller
        self.form = form
        self.body = body
        acceptedAt = gateway.time.now
        preferences = Preferences(head)
        isInSession = head.header("Postern-Session") != nil
        let dryRun = head.query == nil ? nil : head.queryPairs.last { $0.name == "dryRun" }?.value
        isDryRun = dryRun == "true"
        if let dryRun, dryRun != "true", dryRun != "false" {
            problem = Problem(slug: .badRequest, status: 400, detail: "The parameter dryRun is either true or false.")
        }
    }

    /// Is it a list, and not too long?
    func accepts(list root: JSONValue) -> Bool {
        guard root.kind == .array else {
            isSingle = true
            reject(0, InvalidPayload([PayloadFault("", "must be an object, or an array of objects")]), nil)
            return false
        }
        let most = gateway.limits.maxMessagesPerRequest
        let count = root.elements.prefix(most + 1).reduce(0) { count, _ in count + 1 }
        guard count <= most else {
            problem = Problem(
                slug: .payloadTooLarge, status: 413,
                detail: "The request holds more than \(most) messages; send them in several requests.")
            return false
        }
        messages.reserveCapacity(count)
        kinds.reserveCapacity(count)
        return true
    }

    /// Has the upstream look at a payload, and takes it in if it is good.
    func admit(
        _ payload: JSONValue, _ target: Target, _ kind: Target.Acceptable, at index: Int, pointer: String = "",
        options: EnvelopeOptions = EnvelopeOptions()
    ) {
        do throws(InvalidPayload) {
            if target.upstream.hasSessions, isInSession { throw InvalidPayload([Self.sessionFault]) }
            let admission = try target.upstream.admit(
                payload, of: kind.kind,
                in: AdmissionContext(
                    acceptedAt: acceptedAt, isAwaited: preferences.wait != nil, maxFaults: faultsLeft))
            messages.append(
                NewMessage(
                    queue: target.queue, kind: kind.kind, lane: admission.lane, key: options.key,
                    acceptedAt: acceptedAt, notBefore: options.notBefore,
                    expiresAt: options.expiresAt ?? admission.expiresAt,
                    bytes: admission.rewritten ?? body, range: admission.rewritten == nil ? payload.range : nil,
                    waitsFor: admission.waitsFor, credential: admission.credential))
            if admission.credential != nil { handsInCredentials = true }
            kinds.append((target, kind))
            places.append(index)
        } catch {
            reject(index, error, target, below: pointer)
        }
    }

    private static let sessionFault = PayloadFault(
        "", "is not queued in a session: leave out Postern-Session, or have it answered at once")

    /// The whole request is refused because of an envelope for an upstream that the caller may not use.
    func forbid(_ target: Target, to caller: Caller) {
        problem = problem ?? Gatekeeper.foreign(target.name, to: caller)
    }

    /// - Parameter pointer: Where the payload is in the request's own element.
    func reject(_ index: Int, _ payload: InvalidPayload, _ target: Target?, below pointer: String = "") {
        var faults = PayloadFaults(atMost: faultsLeft)
        faults.add(payload.faults, below: pointer)
        faultsLeft -= faults.kept.count
        rejected.append(
            Rejected(index: index, payload: InvalidPayload(faults, codes: payload.codes), target: target))
    }

    /// The messages on their way to the writer. An order that waits to be answered does not keep their payloads.
    func takeMessages() -> [NewMessage] {
        defer {
            messages = []
            body = []
        }
        return messages
    }

    // MARK: Answers

    /// What was applied of the preferences; nothing is sent when nothing was.
    var preferenceApplied: [(name: String, value: String)] {
        preferences.applied(toMany: !isSingle).map { [("Preference-Applied", $0)] } ?? []
    }

    /// The 202.
    func accepted(_ receipt: AppendReceipt) -> HTTPResponse {
        let (ids, evicted) = (receipt.ids, receipt.evicted)
        if isSingle, let id = ids.first, let kind = kinds.first?.kind {
            return accepted(id.description, as: kind, receipt)
        }
        let headers = preferenceApplied
        var json = "{\"accepted\":\(ids.count)"
        if !preferences.isMinimal { json += ",\"ids\":\(Self.list(ids))" }
        if !evicted.isEmpty { json += ",\"evicted\":\(Self.list(evicted))" }
        json += credentialMembers(receipt)
        if preferences.isLenient { json += ",\"rejected\":\(rejections)" }
        return .json(202, json + "}", headers: headers)
    }

    /// What a caller has to know of the credentials that came along; nothing when all is well.
    private func credentialMembers(_ receipt: AppendReceipt) -> String {
        guard handsInCredentials else { return "" }
        return (gateway.outbox.keepsCredentials ? "" : #","durableCredentials":false"#)
            + (receipt.needsCredential ? #","needsToken":true"# : "")
    }

    /// The answer that most requests get: so from ready parts.
    private func accepted(_ id: String, as kind: Target.Acceptable, _ receipt: AppendReceipt) -> HTTPResponse {
        var body: [UInt8] = []
        body.reserveCapacity(24 + kind.receipt.count)
        body.append(contentsOf: #"{"id":""#.utf8)
        body.append(contentsOf: id.utf8)
        body.append(contentsOf: kind.receipt)
        var more = credentialMembers(receipt)
        if !receipt.evicted.isEmpty { more += ",\"evicted\":\(Self.list(receipt.evicted))" }
        if !more.isEmpty {
            body.removeLast()
            body.append(contentsOf: (more + "}").utf8)
        }
        var headers = [
            (name: "Content-Type", value: "application/json"), (name: "Location", value: "/v1/messages/" + id),
        ]
        if preferences.wait != nil { headers += preferenceApplied }
        return HTTPResponse(status: 202, headers: headers, body: body)
    }

    /// What a lenient request is told of its bad payloads.
    var rejections: String {
        JSONText.array(
            rejected.map { rejected in
                JSONText.object { json in
                    json.number("index", rejected.index)
                    let faults = rejected.payload.faults
                    json.raw("errors", JSONText.array(faults.kept.map { Self.error($0, index: nil) }))
                    if faults.omitted > 0 { json.number("errorsOmitted", faults.omitted) }
                    for (name, code) in Self.sorted(rejected.payload.codes) { json.number(name, code) }
                }
            })
    }

    static func list(_ ids: [MessageID]) -> String {
        var json = "["
        json.reserveCapacity(ids.count * 16 + 2)
        for (place, id) in ids.enumerated() {
            json += place == 0 ? "\"" : ",\""
            json += id.description
            json += "\""
        }
        return json + "]"
    }

    private static func sorted(_ codes: [String: Int]) -> [(String, Int)] { codes.sorted { $0.key < $1.key } }

    private static func error(_ fault: PayloadFault, index: Int?, codes: [String: Int] = [:]) -> String {
        JSONText.object { json in
            if let index { json.number("index", index) }
            json.string("pointer", fault.pointer)
            json.string("detail", fault.detail)
            for (name, code) in sorted(codes) { json.number(name, code) }
        }
    }

    /// The first faults of the bad payloads; nothing was stored.
    var invalidPayload: Problem {
        let errors = rejected.flatMap { rejected in
            // Those of many payloads may differ.
            rejected.payload.faults.kept.map {
                isSingle
                    ? Self.error($0, index: nil)
                    : Self.error($0, index: rejected.index, codes: rejected.payload.codes)
            }
        }
        let omitted = rejected.reduce(0) { $0 + $1.payload.faults.omitted }
        let codes = rejected.first?.payload.codes ?? [:]
        let detail =
            isSingle
            ? "The payload breaks the rules of its upstream; nothing was stored. See errors."
            : "\(rejected.count) of \(rejected.count + messages.count) payloads break the rules of their upstream; "
                + "nothing was stored. See errors, or ask with Prefer: handling=lenient to store the good ones."
        return Problem(
            slug: .invalidPayload, status: 422, detail: detail,
            members: [("errors", JSONText.array(errors))]
                + (omitted > 0 ? [("errorsOmitted", String(omitted))] : [])
                + Self.sorted(codes).map { ($0, String($1)) })
    }

    /// Refusals that depend on what was accepted before.
    func problem(_ refused: [AppendRefusal.Refused]) -> Problem {
        let errors = refused.prefix(PayloadFaults.most).map { refused in
            Self.error(
                PayloadFault("", refused.refusal.detail), index: isSingle ? nil : places[refused.index])
        }
        let omitted = refused.count - errors.count
        let (slug, status): (ProblemSlug, Int) =
            switch refused.first?.refusal.reason {
            case .unknownSession: (.unknownSession, 409)
            case .full: (.outboxFull, 503)
            case .conflict, nil: (.conflict, 409)
            }
        return Problem(
            slug: slug, status: status, detail: "\(refused.first?.refusal.detail ?? "refused"); nothing was stored.",
            members: [("errors", JSONText.array(errors))]
                + (omitted > 0 ? [("errorsOmitted", String(omitted))] : []),
            headers: status == 503 ? [("Retry-After", "10")] : [])
    }

    /// What the upstreams of the request add when the store takes nothing more.
    func codes(for refusal: StoreRefusal) -> [(name: String, json: String)] {
        var codes: [String: Int] = [:]
        var seen: Set<UpstreamName> = []
        for kind in kinds where seen.insert(kind.target.name).inserted {
            codes.merge(kind.target.upstream.codes(for: refusal)) { $1 }
        }
        return Self.sorted(codes).map { ($0, String($1)) }
    }

    // MARK: Counting

    func countAcceptances() {
        // Most requests hold one kind.
        guard let first = kinds.first else { return }
        if kinds.count == 1 {
            first.kind.accepted.add()
        } else if kinds.allSatisfy({ $0.kind.accepted === first.kind.accepted }) {
            first.kind.accepted.add(kinds.count)
        } else {
            for kind in kinds { kind.kind.accepted.add() }
        }
    }

    func countRefusals() {
        for rejected in rejected {
            gateway.metrics.refused(rejected.target.map { "\($0.name)" } ?? "unknown", "invalid-payload").add()
        }
    }

    func countRefusal(_ refusal: AppendRefusal) {
        let reason =
            switch refusal {
            case .queueFull: "outbox-full"
            case .diskFull: "disk-full"
            case .refused: "conflict"
            case .closed: "shutting-down"
            case .store: "store-failed"
            }
        for kind in kinds { gateway.metrics.refused("\(kind.target.name)", reason).add() }
    }
}

extension PayloadFaults {
    /// The members `errors` and, if there are more than are shown, `errorsOmitted` of a problem document.
    var members: [(name: String, json: String)] {
        let errors = kept.map { fault in
            JSONText.object { json in
                json.string("pointer", fault.pointer)
                json.string("detail", fault.detail)
            }
        }
        return [("errors", JSONText.array(errors))] + (omitted > 0 ? [("errorsOmitted", String(omitted))] : [])
    }
}
