import PosternCore
import PosternHTTP
import PosternStore
import PosternUpstream

/// The response to a request that contains messages.
///
/// A class, so that the writer's completion captures one reference.
final class IngestResponse: Sendable {
    let request: IngestRequest
    let context: APIContext

    init(_ request: IngestRequest, _ context: APIContext) {
        self.request = request
        self.context = context
    }

    /// The preferences that were applied. The header is omitted if there are none.
    var preferenceApplied: [(name: String, value: String)] {
        request.preferences.applied(toMany: !request.isSingle).map { [("Preference-Applied", $0)] } ?? []
    }

    // MARK: The 202

    func accepted(_ receipt: AppendReceipt) -> HTTPResponse {
        let (ids, evicted) = (receipt.ids, receipt.evicted)
        if request.isSingle, let id = ids.first, let kind = request.kinds.first?.kind {
            return accepted(id.description, as: kind, receipt)
        }
        let headers = preferenceApplied + Self.replay(receipt)
        var json = "{\"accepted\":\(ids.count)"
        if !request.preferences.isMinimal { json += ",\"ids\":\(Self.list(ids))" }
        if !evicted.isEmpty { json += ",\"evicted\":\(Self.list(evicted))" }
        json += credentialMembers(receipt)
        if request.preferences.isLenient { json += ",\"rejected\":\(rejections)" }
        return .json(202, json + "}", headers: headers)
    }

    /// The header that reports that all of the request's events had been stored before.
    static func replay(_ receipt: AppendReceipt) -> [(name: String, value: String)] {
        receipt.ids.isEmpty || receipt.repeated.count < receipt.ids.count ? [] : [("Idempotent-Replay", "true")]
    }

    /// A notice about credentials that the upstream has rejected before; nothing in any other case.
    private func credentialMembers(_ receipt: AppendReceipt) -> String {
        request.handsInCredentials && receipt.needsCredential ? #","needsToken":true"# : ""
    }

    /// The response that most requests get, so it is assembled from prepared parts.
    private func accepted(_ id: String, as kind: ConfiguredUpstream.KindEndpoint, _ receipt: AppendReceipt)
        -> HTTPResponse
    {
        var body: [UInt8] = []
        body.reserveCapacity(24 + kind.receipt.count)
        body.append(contentsOf: #"{"id":""#.utf8)
        body.append(contentsOf: id.utf8)
        body.append(contentsOf: kind.receipt)
        var more = credentialMembers(receipt)
        if !receipt.evicted.isEmpty { more += ",\"evicted\":\(Self.list(receipt.evicted))" }
        if !more.isEmpty {
            body.removeLast(2)
            body.append(contentsOf: (more + "}\n").utf8)
        }
        var headers = [
            (name: "Content-Type", value: "application/json"), (name: "Location", value: "/v1/messages/" + id),
        ]
        if request.preferences.wait != nil { headers += preferenceApplied }
        if !receipt.repeated.isEmpty { headers += Self.replay(receipt) }
        return HTTPResponse(status: 202, headers: headers, body: body)
    }

    static func list(_ ids: [MessageID]) -> String {
        var json = "["
        json.reserveCapacity(ids.count * 16 + 2)
        for (index, id) in ids.enumerated() {
            json += index == 0 ? "\"" : ",\""
            json += id.description
            json += "\""
        }
        return json + "]"
    }

    // MARK: What is wrong with payloads

    /// The members that report the invalid payloads of a lenient request.
    var rejections: String { JSONWriter.array(rejectionTexts) }

    /// One for each invalid payload, in the order of their indices.
    var rejectionTexts: [String] {
        request.rejected.map { rejected in
            JSONWriter.object { json in
                json.number("index", rejected.index)
                if let line = rejected.line { json.number("line", line) }
                let faults = rejected.payload.faults
                json.raw("errors", JSONWriter.array(faults.kept.map { Self.error($0) }))
                if faults.omitted > 0 { json.number("errorsOmitted", faults.omitted) }
                for (name, code) in Self.sorted(rejected.payload.codes) { json.number(name, code) }
            }
        }
    }

    private static func sorted(_ codes: [String: Int]) -> [(String, Int)] { codes.sorted { $0.key < $1.key } }

    fileprivate static func error(
        _ fault: PayloadError, index: Int? = nil, line: Int? = nil, codes: [String: Int] = [:]
    ) -> String {
        JSONWriter.object { json in
            if let index { json.number("index", index) }
            if let line { json.number("line", line) }
            json.string("pointer", fault.pointer)
            json.string("detail", fault.detail)
            for (name, code) in sorted(codes) { json.number(name, code) }
        }
    }

    fileprivate static func members(_ errors: [String], omitted: Int) -> [(name: String, json: String)] {
        [("errors", JSONWriter.array(errors))] + (omitted > 0 ? [("errorsOmitted", String(omitted))] : [])
    }

    /// The first faults of the invalid payloads. Nothing was stored.
    var invalidPayload: Problem {
        let (rejected, isSingle) = (request.rejected, request.isSingle)
        let errors = rejected.flatMap { rejected in
            // The codes of many payloads may differ.
            rejected.payload.faults.kept.map {
                isSingle
                    ? Self.error($0)
                    : Self.error($0, index: rejected.index, line: rejected.line, codes: rejected.payload.codes)
            }
        }
        let detail =
            isSingle
            ? "The message is not valid; nothing was stored. See errors."
            : "\(rejected.count) of \(rejected.count + Set(request.indices).count) messages are not valid; nothing "
                + "was stored. See errors, or ask with Prefer: handling=lenient to store the good ones."
        return Problem(
            slug: .invalidPayload, status: 422, detail: detail,
            members: Self.members(errors, omitted: rejected.reduce(0) { $0 + $1.payload.faults.omitted })
                + Self.sorted(rejected.first?.payload.codes ?? [:]).map { ($0, String($1)) })
    }

    // MARK: Why nothing was stored

    func problem(_ refusal: AppendError) -> Problem {
        switch refusal {
        case .queueFull(let name):
            Problem(
                slug: .outboxFull, status: 503,
                detail: (name.map { "The queue of \($0) is full (queue.maxMessages, queue.maxBytes)" }
                    ?? "The outbox is full (outbox.maxBytes)") + "; nothing was stored. Retry later.",
                members: codes(for: .queueFull), headers: [("Retry-After", String(context.retryAfterFull(name)))])
        case .neverFits(let name):
            Problem(
                slug: .payloadTooLarge, status: 413,
                detail: (name.map { "The queue of \($0)" } ?? "The outbox")
                    + " could not hold this request even if it were empty; nothing was stored. Send fewer or smaller "
                    + "messages in a request, or raise "
                    + (name == nil ? "outbox.maxBytes." : "queue.maxMessages or queue.maxBytes."))
        case .store(.full):
            Problem(
                slug: .diskFull, status: 507,
                detail: "The disk is full; nothing was stored. Deliveries continue and may free space.",
                members: codes(for: .diskFull), headers: [("Retry-After", "30")])
        case .store(.closed):
            Problem(
                slug: .shuttingDown, status: 503, detail: "The gateway is stopping; nothing was stored.",
                headers: [("Retry-After", "5")])
        case .store(let error): Problem(error)
        case .refused(let refused): problem(refused)
        // Only an SDK brings a request that is admitted as a whole.
        case .notAdmitted(let refusal): Problem(slug: refusal.reason.slug, status: 409, detail: refusal.detail)
        case .reused(let indices): reused(indices)
        case .recorded: .reusedKey
        }
    }

    private func reused(_ indices: [Int]) -> Problem {
        let errors = indices.prefix(PayloadErrors.most).map {
            Self.error(.reusedIdentity, index: request.isSingle ? nil : request.indices[$0])
        }
        return Problem(
            slug: .idempotencyMismatch, status: 422,
            detail: "Another event with the same source and id was sent before; nothing was stored.",
            members: Self.members(errors, omitted: indices.count - errors.count))
    }

    /// Rejections that depend on messages that were accepted before.
    private func problem(_ refused: [AppendError.Refused]) -> Problem {
        let errors = refused.prefix(PayloadErrors.most).map { refused in
            Self.error(
                PayloadError(refused.refusal.pointer, request.detail(refused.refusal.detail, of: refused.index)),
                index: request.isSingle ? nil : request.indices[refused.index])
        }
        let slug = refused.first?.refusal.reason.slug ?? .conflict
        let status =
            switch slug {
            case .invalidPayload: 422
            case .outboxFull: 503
            default: 409
            }
        return Problem(
            slug: slug, status: status, detail: "\(refused.first?.refusal.detail ?? "refused"); nothing was stored.",
            members: Self.members(errors, omitted: refused.count - errors.count),
            headers: status == 503 ? [("Retry-After", "10")] : [])
    }

    /// The members that the upstreams of the request add if the store is full.
    private func codes(for refusal: Traits.StoreFullReason) -> [(name: String, json: String)] {
        var codes: [String: Int] = [:]
        var seen: Set<UpstreamName> = []
        for kind in request.kinds where seen.insert(kind.upstream.name).inserted {
            codes.merge(kind.upstream.adapter.traits.codesWhenFull?(refusal) ?? [:]) { $1 }
        }
        return Self.sorted(codes).map { ($0, String($1)) }
    }
}

extension PayloadErrors {
    /// The members `errors` and, if there are more than are shown, `errorsOmitted` of a problem document.
    var members: [(name: String, json: String)] {
        IngestResponse.members(kept.map { IngestResponse.error($0) }, omitted: omitted)
    }
}
