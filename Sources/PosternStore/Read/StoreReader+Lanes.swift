public import PosternCore

/// A lane with something queued.
public struct LaneRecord: Sendable, Equatable {
    /// Why a lane waits, by what the rows show.
    public enum State: String, Sendable, CaseIterable {
        /// The lane itself does not wait.
        case ready
        /// Its first message is sent again at `until`.
        case backingOff = "backing-off"
        /// Its first message is not sent before `until`.
        case scheduled
        /// It waits because of its endpoint or a plan, for what `waitsFor` names.
        case held
        /// A caller has to hand in a credential.
        case parked
    }

    /// Its number in the store, by which pages continue.
    public let number: Int64
    /// Its name; nil if only a digest of that is known.
    public let key: String?
    public let state: State
    public let waitsFor: WaitReason?
    /// Nil if only an event ends the wait, or if the lane itself does not wait.
    public let until: Timestamp?
    /// When its first message was last attempted, or accepted if it was not.
    public let since: Timestamp
    /// Its messages. In a mixed queue only those that are to be sent again, because the others are not found by lane.
    public let queued: Int
    /// When the first of these was accepted.
    public let oldestAt: Timestamp
    /// Whether one of its messages is being sent.
    public let isInFlight: Bool
}

extension StoreReader {
    /// The results of `body` for the lanes after `cursor`, without nil.
    func lanes<T>(
        of number: UpstreamNumber, in state: LaneRecord.State?, after cursor: Int64?, limit: Int, now: Timestamp,
        _ body: @escaping (LaneRecord) -> T?
    ) throws -> (lanes: [T], next: Int64?) {
        var page = LanePage(limit: limit, state: state, body: body)
        let busy = try lanes(of: inFlight(of: number), in: number)
        switch try LaneRule(stored: number, with: sql) {
        case .separate: try addSeparate(of: number, after: cursor, now: now, busy, to: &page)
        case .mixed: try addMixed(of: number, after: cursor, now: now, busy, to: &page)
        }
        return (page.lanes, page.next)
    }

    private struct LanePage<T> {
        let limit: Int
        let state: LaneRecord.State?
        let body: (LaneRecord) -> T?
        var lanes: [T] = []
        /// The last lane of the page, if others follow.
        var next: Int64?
        private var last: Int64?
        private var rows = 0

        init(limit: Int, state: LaneRecord.State?, body: @escaping (LaneRecord) -> T?) {
            self.limit = limit
            self.state = state
            self.body = body
        }

        /// Whether another lane fits. Called once there is one.
        mutating func hasRoom() -> Bool {
            if lanes.count == limit || rows >= StoreReader.rowsPerPage { next = last }
            return next == nil
        }

        /// Whether the page is about such lanes.
        func shows(_ state: LaneRecord.State) -> Bool { self.state.map { $0 == state } ?? true }

        mutating func pass(_ number: Int64, rows count: Int) {
            last = number
            rows += count
        }

        mutating func add(_ lane: LaneRecord) {
            pass(lane.number, rows: lane.queued)
            if shows(lane.state), let element = body(lane) { lanes.append(element) }
        }
    }

    // MARK: Separate lanes: each has a row

    /// Lanes of all upstreams share a table; the others' count as rows that the page has examined.
    private func addSeparate<T>(
        of number: UpstreamNumber, after cursor: Int64?, now: Timestamp, _ busy: Set<Int64>,
        to page: inout LanePage<T>
    ) throws {
        try sql.walk(
            """
            SELECT number, upstream, name, readyAtMs, isHeld, isParked, waitingFor FROM lanes
            WHERE number > ? ORDER BY number
            """, cursor ?? 0
        ) { row in
            guard page.hasRoom() else { return false }
            let lane: Int64 = row[0]
            page.pass(lane, rows: 1)
            guard row[1] as UpstreamNumber == number, let front = try front(of: lane, in: number) else { return true }
            let waitsFor = (row[6] as String?).flatMap(WaitReason.init(rawValue:))
            let state = Self.state(
                isParked: row[5], waitsFor: waitsFor, isHeld: row[4], isScheduled: front.isScheduled,
                isDue: (row[3] as Timestamp?).map { $0 <= now } ?? false)
            guard page.shows(state) else { return true }
            page.add(
                LaneRecord(
                    number: lane, key: row[2], state: state, waitsFor: state == .held ? waitsFor : nil,
                    until: state == .ready ? nil : row[3], since: front.since, queued: try count(lane, of: number),
                    oldestAt: front.acceptedAt, isInFlight: busy.contains(lane)))
            return true
        }
    }

    private static func state(
        isParked: Bool, waitsFor: WaitReason?, isHeld: Bool, isScheduled: Bool, isDue: Bool
    ) -> LaneRecord.State {
        if isParked { return .parked }
        if isDue { return .ready }
        if waitsFor != nil { return .held }
        // The others collect messages for a batch.
        return isHeld ? .backingOff : isScheduled ? .scheduled : .ready
    }

    private struct FirstMessage {
        let acceptedAt: Timestamp
        let since: Timestamp
        let isScheduled: Bool
    }

    private func front(of lane: Int64, in number: UpstreamNumber) throws -> FirstMessage? {
        try sql.first(
            """
            SELECT acceptedAtMs, lastError, waiting FROM queue_# WHERE id = (SELECT min(id) FROM queue_# WHERE lane = ?)
            """, of: number, lane
        ) { row in
            FirstMessage(
                acceptedAt: row[0], since: Self.since(row[0], lastError: row[1]),
                isScheduled: row[2] as Int64 == QueueColumn.scheduled)
        }
    }

    private static func since(_ acceptedAt: Timestamp, lastError: String?) -> Timestamp {
        let error = lastError.flatMap { JSONRecord.decode($0, as: AttemptError.self) }
        return max(acceptedAt, error?.at ?? acceptedAt)
    }

    private func count(_ lane: Int64, of number: UpstreamNumber) throws -> Int {
        try sql.value("SELECT count(*) FROM queue_# WHERE lane = ?", of: number, lane, as: Int.self) ?? 0
    }

    // MARK: Mixed lanes: found by their messages that are to be sent again

    /// By the first of these messages; its id is the lane's number here. They are bounded by the scan limit.
    private func addMixed<T>(
        of number: UpstreamNumber, after cursor: Int64?, now: Timestamp, _ busy: Set<Int64>,
        to page: inout LanePage<T>
    ) throws {
        let retries = try sql.all(
            """
            SELECT id, lane, nextAttemptAtMs, acceptedAtMs, lastError FROM queue_#
            WHERE waiting = 1 AND nextAttemptAtMs IS NOT NULL AND lane <> 0
            """, of: number
        ) { row in
            (
                id: row[0] as Int64, lane: row[1] as Int64, dueAt: row[2] as Timestamp, acceptedAt: row[3] as Timestamp,
                since: Self.since(row[3], lastError: row[4])
            )
        }
        let lanes = Dictionary(grouping: retries.sorted { $0.id < $1.id }, by: \.lane).values
        for members in lanes.sorted(by: { $0[0].id < $1[0].id }) where members[0].id > cursor ?? 0 {
            guard page.hasRoom() else { return }
            let first = members[0]
            page.add(
                LaneRecord(
                    number: first.id, key: nil, state: first.dueAt <= now ? .ready : .backingOff, waitsFor: nil,
                    until: first.dueAt <= now ? nil : first.dueAt, since: first.since, queued: members.count,
                    oldestAt: first.acceptedAt, isInFlight: busy.contains(first.lane)))
        }
    }
}
