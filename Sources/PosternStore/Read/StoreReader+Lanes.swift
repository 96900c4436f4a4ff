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

    /// Its number in the store, by which pages continue. In a mixed queue, the id of its first message.
    public let number: Int64
    /// In a mixed queue, the digest of its name.
    public var digest: Int64?
    /// Its name; nil if only a digest of that is stored.
    public var key: String?
    public let state: State
    public let waitsFor: WaitReason?
    /// Nil if only an event ends the wait, or if the lane itself does not wait.
    public let until: Timestamp?
    /// When its first message was last attempted, or accepted if it was not.
    public let since: Timestamp
    /// Its messages, as far as they were counted.
    public let queued: Int
    /// Whether all of them were counted. Messages of a mixed queue are not found by lane, so only the first ones of a long
    /// queue are looked at.
    public var isCountComplete = true
    /// When the first of these was accepted.
    public let oldestAt: Timestamp
    /// Whether one of its messages is being sent.
    public let isInFlight: Bool

    /// What a filter by lane takes, besides the name.
    public var text: String { digest.map(Lane.text(ofDigest:)) ?? "\(number)" }
}

extension StoreReader {
    /// The results of `body` for the lanes after `cursor`, without nil.
    func lanes<T>(
        of number: UpstreamNumber, in state: LaneRecord.State?, after cursor: Int64?, limit: Int, now: Timestamp,
        waits: (Kind) -> KindWait?, _ body: @escaping (LaneRecord) -> T?
    ) throws -> (lanes: [T], next: Int64?) {
        var page = LanePage(limit: limit, state: state, body: body)
        let busy = try lanes(of: inFlight(of: number), in: number)
        switch try LaneRule(stored: number, with: sql) {
        case .perLane: try addPerLane(of: number, after: cursor, now: now, busy, to: &page)
        case .acrossLanes: try addAcrossLanes(of: number, after: cursor, now: now, busy, waits, to: &page)
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
    private func addPerLane<T>(
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

    // MARK: Mixed lanes: found by reading the queue

    private struct MixedLane {
        /// The first message that is not scheduled for later, or else the first one.
        var first: (id: MessageID, waiting: Int64, dueAt: Timestamp?, kind: Int)
        var count = 0

        /// What its messages wait for, and until when.
        func wait(for kindWait: KindWait?, now: Timestamp) -> (state: LaneRecord.State, until: Timestamp?) {
            let dueAt = first.dueAt.flatMap { $0 > now ? $0 : nil }
            if dueAt != nil, first.waiting == QueueColumn.scheduled { return (.scheduled, dueAt) }
            if let kindWait, kindWait.until.map({ $0 > now }) ?? true {
                return (.held, kindWait.until.map { max($0, dueAt ?? $0) })
            }
            return dueAt == nil ? (.ready, nil) : (.backingOff, dueAt)
        }
    }

    /// Lanes of the first rows of the queue, and of those that are to be sent again, which are bounded by the scan limit.
    /// Another index would have to be written with every message.
    private func addAcrossLanes<T>(
        of number: UpstreamNumber, after cursor: Int64?, now: Timestamp, _ busy: Set<Int64>,
        _ waits: (Kind) -> KindWait?, to page: inout LanePage<T>
    ) throws {
        var lanes: [Int64: MixedLane] = [:]
        var (rows, last) = (0, MessageID(rawValue: 0))
        func visit(_ row: borrowing SQLRow) {
            let lane: Int64 = row[1]
            guard lane != 0 else { return }
            let (waiting, dueAt) = (row[2] as Int64, row[3] as Timestamp?)
            let isLater = waiting == QueueColumn.scheduled && dueAt.map { $0 > now } ?? false
            var found = lanes[lane] ?? MixedLane(first: (row[0], waiting, dueAt, row[4]))
            let firstIsLater =
                found.first.waiting == QueueColumn.scheduled && found.first.dueAt.map { $0 > now } ?? false
            if firstIsLater, !isLater { found.first = (row[0], waiting, dueAt, row[4]) }
            found.count += 1
            lanes[lane] = found
        }
        try sql.walk(
            "SELECT id, lane, waiting, nextAttemptAtMs, kind FROM queued_# WHERE id > 0 ORDER BY id LIMIT ?",
            of: number,
            Self.rowsPerPage
        ) { row in
            visit(row)
            (rows, last) = (rows + 1, row[0])
            return true
        }
        let isComplete = rows < Self.rowsPerPage
        if !isComplete {
            try sql.walk(
                """
                SELECT id, lane, waiting, nextAttemptAtMs, kind FROM queue_#
                WHERE waiting = 1 AND nextAttemptAtMs IS NOT NULL AND id > ?
                """, of: number, last
            ) { row in
                visit(row)
                return true
            }
        }
        for (digest, lane) in lanes.sorted(by: { $0.value.first.id < $1.value.first.id })
        where lane.first.id.rawValue > cursor ?? 0 {
            guard page.hasRoom() else { return }
            let kindWait = waits(kinds.kind(lane.first.kind))
            let (state, until) = lane.wait(for: kindWait, now: now)
            guard page.shows(state), let times = try times(of: lane.first.id, in: number) else {
                page.pass(lane.first.id.rawValue, rows: 1)
                continue
            }
            page.add(
                LaneRecord(
                    number: lane.first.id.rawValue, digest: digest, key: nil, state: state,
                    waitsFor: state == .held ? kindWait?.reason : nil, until: until, since: times.since,
                    queued: lane.count,
                    isCountComplete: isComplete, oldestAt: times.acceptedAt, isInFlight: busy.contains(digest)))
        }
    }

    private func times(of id: MessageID, in number: UpstreamNumber) throws -> (acceptedAt: Timestamp, since: Timestamp)?
    {
        try sql.first("SELECT acceptedAtMs, lastError FROM queued_# WHERE id = ?", of: number, id) { row in
            (row[0], Self.since(row[0], lastError: row[1]))
        }
    }

    /// The numbers in rows of lanes that `text` may mean: by name, by the digest of the name, or by number.
    func lanes(called text: String, of number: UpstreamNumber) throws -> Set<Int64> {
        switch try LaneRule(stored: number, with: sql) {
        case .acrossLanes:
            var lanes: Set<Int64> = []
            if case .digest(let digest) = Lane.digest(of: text.utf8) { lanes.insert(digest) }
            if text.utf8.count == 16, let digest = UInt64(text, radix: 16) { lanes.insert(Int64(bitPattern: digest)) }
            return lanes
        case .perLane where sql.admitsLate:
            return [Lane.number(of: text, in: number), Int64(text) ?? 0]
        case .perLane:
            return Set(
                try sql.all(
                    "SELECT number FROM lanes WHERE upstream = ?1 AND name = ?2 OR number = ?3 AND upstream = ?1",
                    number, text, Int64(text) ?? 0
                ) { $0[0] as Int64 })
        }
    }
}
