import PosternCore
public import PosternDelivery
import PosternHTTP
public import PosternStore

/// Which lanes of an upstream wait, and why.
extension UpstreamHandler {
    func lanes(of number: UpstreamNumber, _ responder: MeteredResponder) {
        let query: LaneQuery
        do throws(Problem) { query = try LaneQuery(responder) } catch { return responder.send(error) }
        context.read(responder) { [context] () throws(StoreError) in
            let (upstream, now) = (context.upstream(number), context.time.now)
            let snapshot = upstream?.snapshot(in: context) ?? .disabled
            let page = try context.outbox.lanes(
                of: number, in: query.state, after: query.cursor, limit: query.limit,
                waits: { kind in upstream.flatMap { snapshot.wait(of: kind, for: $0.adapter) } }
            ) { lane in
                snapshot.wait(of: lane, now: now).map { (lane, $0) }
            }
            var names = LaneNames(context)
            let lanes = page.lanes.map { lane, wait in LaneJSON.lane(names.adding(to: lane), wait) }
            return .json(200, LaneJSON.page(lanes, next: page.next))
        }
    }
}

/// Lanes as the API shows them, and so the command line.
public enum LaneJSON {
    /// One element of a page, as a JSON object.
    public static func lane(_ lane: LaneRecord, _ wait: WaitStatus) -> String {
        JSONWriter.object { json in
            json.string("lane", lane.text)
            json.string("key", lane.key)
            json.string("state", lane.state.rawValue)
            json.string("reason", wait.waitingFor?.rawValue)
            json.time("since", lane.since)
            json.time("until", wait.nextAttemptAt)
            json.number("queued", lane.queued)
            json.flag("isCountComplete", lane.isCountComplete)
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

/// The query of a list of lanes.
private struct LaneQuery {
    let state: LaneRecord.State?
    let limit: Int
    let cursor: Int64?

    init(_ responder: MeteredResponder) throws(Problem) {
        var query = responder.request.query
        state = query.value("state", QueryReader.oneOf(LaneRecord.State.allCases.map(\.rawValue))) {
            LaneRecord.State(rawValue: $0)
        }
        limit = query.limit(upTo: 1000)
        cursor = query.value("cursor", "must be the `next` of an earlier page") { text in
            Int64(text).flatMap { $0 > 0 ? $0 : nil }
        }
        try query.check()
    }
}
