public import PosternCore
public import PosternDelivery
import PosternEvents
public import PosternStore
import PosternUpstream

/// Messages as the API shows them, and so the command line.
public enum MessageJSON {
    static func message(
        _ record: MessageRecord, context: APIContext, attempts: [AttemptRow]? = nil, showsPayload: Bool = false
    ) -> String {
        var lanes = LaneNames(context)
        return message(record, context: context, &lanes, attempts: attempts, showsPayload: showsPayload)
    }

    static func message(
        _ record: MessageRecord, context: APIContext, _ lanes: inout LaneNames, attempts: [AttemptRow]? = nil,
        showsPayload: Bool = false
    ) -> String {
        message(
            lanes.adding(to: record), waitStatus: WaitStatus(of: record, context: context), attempts: attempts,
            showsPayload: showsPayload, isSimulated: context.isSimulated)
    }

    /// `attempts`: nil leaves them out.
    public static func message(
        _ record: MessageRecord, waitStatus: WaitStatus, attempts: [AttemptRow]? = nil, showsPayload: Bool = false,
        isSimulated: Bool = false
    ) -> String {
        JSONWriter.object { json in
            json.string("id", record.id.description)
            json.string("upstream", record.upstream)
            json.string("kind", record.kind.description)
            json.string("state", record.state.name)
            json.string("key", record.key)
            json.string("via", via(isFromSDK: record.isFromSDK))
            if let original = record.replayOf { json.string("replayOf", original.description) }
            json.string("lane", record.laneText)
            json.number("attempts", record.attempts)
            json.time("createdAt", record.acceptedAt)
            json.time("nextAttemptAt", waitStatus.nextAttemptAt)
            json.time("settledAt", record.settledAt)
            json.string("waitingFor", waitStatus.waitingFor?.rawValue)
            json.raw("lastError", record.lastError.map(error) ?? "null")
            json.raw("result", record.result.map(result) ?? "null")
            if isSimulated, record.state == .delivered { json.flag("simulated", true) }
            if record.isErased { json.flag("erased", true) }
            if showsPayload {
                json.raw("payload", record.payload.map { String(decoding: $0, as: UTF8.self) } ?? "null")
            }
            if let attempts { json.raw("attemptLog", JSONWriter.array(attempts.map(attempt))) }
        }
    }

    /// The members that are known without reading the store, for receipts that are not kept.
    static func notice(_ notice: SettledNotice, _ request: IngestRequest, isSimulated: Bool) -> String {
        JSONWriter.object { json in
            json.string("id", notice.id.description)
            json.string("upstream", request.kinds.first?.upstream.name.description)
            json.string("kind", request.kinds.first?.kind.text)
            json.string("state", notice.state.name)
            json.raw("result", notice.result.map(result) ?? "null")
            if isSimulated, notice.state == .delivered { json.flag("simulated", true) }
        }
    }

    /// How a message was posted, if not by the API of the gateway itself.
    public static func via(isFromSDK: Bool) -> String? { isFromSDK ? "sdk" : nil }

    /// An error as the API shows it.
    public static func error(_ error: AttemptError) -> String {
        JSONWriter.object { json in
            json.string("class", error.errorClass.rawValue)
            json.number("status", error.status)
            json.string("detail", error.detail)
            json.time("at", error.at)
        }
    }

    /// The upstream's response: as JSON if it is JSON, otherwise as a string.
    public static func result(_ bytes: [UInt8]) -> String {
        let isJSON = JSONParser.ofThisThread.parse(bytes) { _ in true }
        if case .success = isJSON { return String(decoding: bytes, as: UTF8.self) }
        return JSONEscapes.quoted(String(decoding: bytes, as: UTF8.self))
    }

    private static func attempt(_ row: AttemptRow) -> String {
        JSONWriter.object { write(row, into: &$0) }
    }

    private static func write(_ row: AttemptRow, into json: inout JSONWriter) {
        json.string("batch", row.batch.description)
        json.time("startedAt", row.startedAt)
        json.time("endedAt", row.endedAt)
        json.string("outcome", row.outcome)
        json.number("status", row.status)
        json.string("detail", row.detail)
        json.number("messages", row.messages)
        json.string("step", row.step)
    }

    /// An element of the list of requests.
    static func batch(_ row: AttemptRow, of upstream: String?) -> String {
        JSONWriter.object { json in
            json.string("upstream", upstream)
            write(row, into: &json)
        }
    }

    /// The receipt of one upstream request.
    static func receipt(_ receipt: AttemptReceipt, of upstream: AnyUpstream) -> String {
        JSONWriter.object { json in
            json.string("upstream", upstream.name.description)
            write(receipt.attempt, into: &json)
            json.raw("ids", IngestResponse.list(receipt.ids))
            guard let outcome = receipt.attempt.outcome else { return }
            let named = upstream.namedBatch(
                of: receipt.kind, isSuccess: outcome == Settlement.Outcome.delivered.rawValue,
                isQueued: ![Settlement.Outcome.delivered, .rejected].map(\.rawValue).contains(outcome))
            if let named { json.raw("sdk", named.json(receipt.ids)) }
        }
    }
}

extension WaitStatus {
    init(of record: MessageRecord, context: APIContext) {
        guard record.state == .queued else {
            self.init()
            return
        }
        let upstream = context.upstream(record.id.upstream)
        var facts = record.facts
        facts.kind = record.kind
        facts.isInFlight = context.outbox.isInFlight(record.id)
        let snapshot = upstream?.snapshot(in: context) ?? .disabled
        if let wait = upstream.flatMap({ snapshot.wait(of: record.kind, for: $0.adapter) }) { facts.add(wait) }
        self = snapshot.wait(of: facts, now: context.time.now) {
            context.outbox.isHeldUp(record.id, lane: record.lane)
        }
    }
}
