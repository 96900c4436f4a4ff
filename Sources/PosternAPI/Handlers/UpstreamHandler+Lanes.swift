import PosternCore
public import PosternDelivery
import PosternHTTP
public import PosternStore

/// Which lanes of an upstream wait, and why.
extension UpstreamHandler {
    func lanes(of number: UpstreamNumber, _ reply: MeteredResponder) {
        guard let query = LaneQuery(reply) else { return }
        context.read(reply) { [context] () throws(StoreError) in
            let (snapshot, now) = (context.target(number)?.worker.snapshot ?? .disabled, context.time.now)
            let page = try context.outbox.lanes(
                of: number, in: query.state, after: query.cursor, limit: query.limit
            ) { lane in
                snapshot.wait(of: lane, now: now).map { LaneJSON.lane(lane, $0) }
            }
            return .json(200, LaneJSON.page(page.lanes, next: page.next))
        }
    }
}

/// Lanes as the API shows them, and so the command line.
public enum LaneJSON {
    /// One element of a page, as a JSON object.
    public static func lane(_ lane: LaneRecord, _ wait: WaitStatus) -> String {
        JSONWriter.object { json in
            json.string("lane", "\(lane.number)")
            json.string("key", lane.key)
            json.string("state", lane.state.rawValue)
            json.string("reason", wait.waitingFor?.rawValue)
            json.time("since", lane.since)
            json.time("until", wait.nextAttemptAt)
            json.number("queued", lane.queued)
            json.time("oldestAt", lane.oldestAt)
        }
    }

    /// `lanes` are JSON objects; `next` is the cursor of the next page, nil at the end.
    public static func page(_ lanes: [String], next: Int64?) -> String {
        JSONWriter.object { json in
            json.raw("lanes", JSONWriter.array(lanes))
            json.string("next", next.map(String.init))
        }
    }
}

/// The query of a list of lanes. Responds with 400 itself if the query is not valid.
private struct LaneQuery {
    var state: LaneRecord.State?
    var limit = 100
    var cursor: Int64?

    init?(_ reply: MeteredResponder) {
        func refuse(_ detail: String) { reply.send(Problem(slug: .badRequest, status: 400, detail: detail)) }
        for (name, value) in reply.head.query?.pairs ?? [] {
            switch name {
            case "state":
                guard let state = LaneRecord.State(rawValue: value) else {
                    let known = LaneRecord.State.allCases.map(\.rawValue).joined(separator: ", ")
                    refuse("The parameter state must be one of \(known).")
                    return nil
                }
                self.state = state
            case "limit":
                guard let number = Int(value), (1...ListQuery.most).contains(number) else {
                    refuse("The parameter limit must be a number from 1 to \(ListQuery.most).")
                    return nil
                }
                limit = number
            case "cursor":
                guard let number = Int64(value), number > 0 else {
                    refuse("The parameter cursor must be the `next` of an earlier page.")
                    return nil
                }
                cursor = number
            default: continue
            }
        }
    }
}
