import PosternCore
import PosternUpstream

/// What a response of Samsara means (the specification's "Interpreting responses").
struct Answer {
    private let response: UpstreamResponse
    private let batch: Batch
    private let now: Timestamp
    private let after: Duration?

    init(_ response: UpstreamResponse, to batch: Batch, now: Timestamp) {
        self.response = response
        self.batch = batch
        self.now = now
        after = response.retryAfter(now: now)
    }

    /// Whether the body does not matter. That of 400 says which events are rejected, if any.
    static func isDecided(by status: Int) -> Bool { status != 400 }

    var judgement: Judgement {
        switch response.status {
        // Only 202 means that the events were accepted; it may contain a warning.
        case 202: Judgement(.delivered(), notice: warning)
        // Sent by an intermediary: nothing was accepted, and no event is the cause.
        case 200..<300: Judgement(.retry(after: after))
        case 400: Judgement(badRequest)
        // The response to JSON that is invalid inside the array and to corrupt gzip, but also if the backend fails.
        case 500: Judgement(.suspect(after: after))
        case 401, 403, 408, 413, 425, 429: usual
        case _ where response.isDeferral: usual
        // Samsara rejects events only with 400.
        case 402..<500: Judgement(.holdUpstream(.configuration, detail: "HTTP \(response.status): not from Samsara"))
        default: usual
        }
    }

    private var usual: Judgement { Judgement(.usual(for: response, now: now)) }

    private var warning: UpstreamNotice? {
        read { $0["warning"]?.string.map { UpstreamNotice("accepted with a warning", quote: $0) } }
    }

    private var badRequest: Verdict {
        read { body in
            if let items = items(in: body) { return .each(items) }
            guard body["status"]?.equals("ERROR") == true else { return nil }
            let message = body["message"]?.string.map { ": \($0)" } ?? ""
            return .holdUpstream(.configuration, detail: "HTTP 400\(message)")
        } ?? .suspect(after: after)
    }

    /// One text for each event, `OK` for those that are valid.
    private func items(in body: JSONValue) -> [Verdict.Item]? {
        guard body.kind == .array else { return nil }
        var items: [Verdict.Item] = []
        for text in body.elements {
            guard text.kind == .string else { return nil }
            items.append(text.equals("OK") ? .again : .reject(reason: "refused: \(text.string ?? "")"))
        }
        guard items.count == batch.messages.count, items.contains(where: { $0 != .again }) else { return nil }
        return items
    }

    /// Reads the body. Nil if it is not JSON.
    private func read<R>(_ body: (JSONValue) -> R?) -> R? {
        guard case .success(let result) = JSONParser.ofThisThread.parse(response.body, body) else { return nil }
        return result
    }
}
