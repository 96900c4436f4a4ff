import PosternCore
import PosternJSON

/// What an answer of Samsara's means (the specification's "Interpreting responses").
struct SamsaraAnswer {
    private let response: UpstreamResponse
    private let batch: Batch
    private let after: Duration?

    init(_ response: UpstreamResponse, to batch: Batch, now: Timestamp) {
        self.response = response
        self.batch = batch
        after = response.retryAfter(now: now)
    }

    var judgement: Judgement {
        switch response.status {
        // Only 202 says that the events were taken; it may come with a warning.
        case 202: Judgement(.delivered(), notice: warning)
        case 400: Judgement(badRequest)
        case 401, 403:
            Judgement(
                .holdUpstream(
                    .credentials, detail: "answered \(response.status): something in front of it wants credentials"))
        case 408, 425, 429, 502, 503, 504: Judgement(.retry(after: after))
        case 413: Judgement(.split(reason: "answered 413: too large for something in front of it"))
        case 300..<500:
            Judgement(
                .holdUpstream(.configuration, detail: "answered \(response.status): nothing takes events at this URL"))
        // Said to JSON broken inside the array and to bad gzip, but also when the backend fails.
        case 500: Judgement(.suspect(after: after))
        // Other 2xx and 5xx come from something in between: nothing was taken, and no event is to blame.
        default: Judgement(.retry(after: after))
        }
    }

    private var warning: String? {
        read { $0["warning"]?.string.map { "accepted with a warning: \(Self.cut($0))" } }
    }

    private var badRequest: Verdict {
        read { body in
            if let items = items(in: body) { return .each(items) }
            guard body["status"]?.equals("ERROR") == true else { return nil }
            let message = body["message"]?.string.map { ": \(Self.cut($0))" } ?? ""
            return .holdUpstream(.configuration, detail: "answered 400\(message)")
        } ?? .suspect(after: after)
    }

    /// One text for each event, `OK` for those with which nothing is wrong.
    private func items(in body: JSONValue) -> [ItemVerdict]? {
        guard body.kind == .array else { return nil }
        var items: [ItemVerdict] = []
        for text in body.elements {
            guard text.kind == .string else { return nil }
            items.append(text.equals("OK") ? .again : .reject(reason: "refused: \(Self.cut(text.string ?? ""))"))
        }
        guard items.count == batch.messages.count, items.contains(where: { $0 != .again }) else { return nil }
        return items
    }

    /// Reads the body; nil when it is no JSON.
    private func read<R>(_ body: (JSONValue) -> R?) -> R? {
        guard case .success(let result) = JSONParser.ofThisThread.parse(response.body, body) else { return nil }
        return result
    }

    /// Answers are kept with messages and logged: no more of them than a person reads.
    private static func cut(_ text: String) -> String { text.count > 300 ? text.prefix(300) + "…" : text }
}
