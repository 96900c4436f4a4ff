import GRDB
import PosternCore

/// How the ended ones name their lane: lane rows live only while something is queued.
struct LaneText {
    let text: String
    let group: String?
}

extension Transaction {
    /// The number of a named lane, made if need be; a lane with nothing queued becomes ready at `readyAt`.
    func laneNumber(
        named name: String, group: String?, of number: UpstreamNumber, readyAt: Timestamp
    ) throws -> Int64 {
        let statement = try statements.lane(in: db)
        statement.bind(Int64(number.rawValue), at: 1)
        statement.bind(name, at: 2)
        statement.bind(group, at: 3)
        statement.bind(readyAt.milliseconds, at: 4)
        var lane: Int64 = 0
        try statement.forEachRow(in: db) { row in
            lane = row.integer(0)
            return true
        }
        return lane
    }

    func laneText(of lane: Int64, in queue: UpstreamQueue) throws -> LaneText {
        switch queue.upstream.laneRule {
        case .mixed: return LaneText(text: String(lane), group: nil)
        case .separate:
            let row = try Row.fetchOne(db, sql: "SELECT name, laneGroup FROM lanes WHERE number = ?", arguments: [lane])
            return LaneText(text: row.map { "=" + ($0["name"] as String) } ?? "0", group: row?["laneGroup"])
        }
    }

    func laneNumber(
        ofText text: String, group: String?, of number: UpstreamNumber, readyAt: Timestamp
    ) throws -> Int64 {
        guard text.hasPrefix("=") else { return Int64(text) ?? 0 }
        return try laneNumber(named: String(text.dropFirst()), group: group, of: number, readyAt: readyAt)
    }

    /// Lets parked lanes of a group go on.
    func release(group: String, of number: UpstreamNumber) throws {
        try db.execute(
            sql: """
                UPDATE lanes SET isParked = 0, readyAtMs = ? WHERE upstream = ? AND laneGroup = ? AND isParked = 1
                """, arguments: [outbox.time.now.milliseconds, number.rawValue, group])
    }
}
