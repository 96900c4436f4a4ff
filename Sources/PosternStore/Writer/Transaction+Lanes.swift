import PosternCore
import PosternUpstream

// A row of `lanes` exists as long as a message of the lane is queued. `readyAtMs` is the time at which it is due, and
// orders lanes among each other; NULL while it is parked. If `isHeld`, arrivals do not make it due earlier: its first
// message is to be sent again, or a plan returned a wait (`waitingFor`). `wakes` counts how often such a wait was ended
// early: a wait that was planned before that is not applied.

extension Lane {
    /// The value of a queue's `lane` column for a lane without a name. For a named lane, it is the number of its row.
    var number: Int64 { if case .digest(let digest) = self { digest } else { 0 } }
    init(number: Int64) { self = number == 0 ? .none : .digest(number) }

    var isNamed: Bool { if case .named = self { true } else { false } }
    var group: String? { if case .named(_, let group) = self { group } else { nil } }

    /// The text by which ended messages name their lane, because they outlive its row.
    var stored: String { if case .named(let name, _) = self { "=" + name } else { String(number) } }
    init(stored text: String, group: String?) {
        self = text.hasPrefix("=") ? .named(String(text.dropFirst()), group: group) : Self(number: Int64(text) ?? 0)
    }
}

// MARK: - The lanes of messages

extension Transaction {
    /// The number by which the row of `message` names its lane. Records in `notice` when the message makes something
    /// due.
    func openLane(of message: NewMessage, scheduledAt: Timestamp?, notice: inout AppendNotice) throws -> Int64 {
        guard case .named(let name, let group) = message.lane else {
            if let scheduledAt { notice.announceDue(at: scheduledAt) }
            return message.lane.number
        }
        let queue = message.queue
        if sql.admitsLate { return Lane.number(of: name, in: queue.number) }
        let lane = try openLane(
            name, group: group, of: queue, readyAt: scheduledAt ?? message.acceptedAt + queue.collecting.wait,
            waitingFor: message.waitsFor, turn: message.turn)
        if let readyAt = lane.readyAt { notice.announceDue(at: readyAt) }
        return lane.number
    }

    /// The lane of a queued message, which has `number` in the rows of the queue.
    func lane(_ number: Int64, of id: MessageID) throws -> Lane {
        let named: Lane? =
            if sql.admitsLate {
                try sql.first(
                    "SELECT laneName, laneGroup FROM queue_# WHERE id = ? AND laneName IS NOT NULL", of: id.upstream, id
                ) { .named($0[0], group: $0[1]) }
            } else {
                try sql.first(
                    "SELECT name, laneGroup FROM lanes WHERE number = ? AND upstream = ?", number, id.upstream
                ) { .named($0[0], group: $0[1]) }
            }
        return named ?? Lane(number: number)
    }

    /// Messages of the lane were stored, or removed if the number is negative.
    func countLane(_ lane: Lane, _ number: Int, of queue: QueueTarget) {
        guard case .named(let name, _) = lane else { return }
        writeStates[queue.number].laneCounts.add(number, to: name)
    }

    /// After an attempt: schedules an update of the row of a message's lane before the commit. The lane moves behind
    /// the others.
    func touchLane(of message: Message, in queue: QueueTarget) throws {
        guard case .named(let name, _) = message.lane else { return }
        let lane =
            try sql.admitsLate
            ? Lane.number(of: name, in: queue.number)
            : sql.value("SELECT lane FROM queue_# WHERE id = ?", of: queue.number, message.id, as: Int64.self)
        if let lane { touch(lane, of: queue, isServed: true) }
    }

    /// The lane of the message failed once more.
    func failLane(of message: Message, in queue: QueueTarget) throws {
        guard message.lane.isNamed else { return }
        try sql.send(
            "UPDATE lanes SET failures = failures + 1 WHERE number = (SELECT lane FROM queue_# WHERE id = ?)",
            of: queue.number, message.id)
    }
}

// MARK: - Lanes that the owner of a queue admits

extension Transaction {
    /// Names the lane in the row of a message, so that its lane can be admitted.
    func nameLane(_ lane: Lane, of id: MessageID) throws {
        guard case .named(let name, let group) = lane else { return }
        try sql.run("UPDATE queue_# SET laneName = ?, laneGroup = ? WHERE id = ?", of: id.upstream, name, group, id)
    }

    /// Opens the lanes of messages that were stored without them: of those with these ids, or of all in the queue. What an
    /// upstream wants a new lane to wait for is left to the plan, which says the same (`ValidPayload.waitsFor`).
    func admitLanes(of queue: QueueTarget, _ ids: ClosedRange<MessageID>? = nil) throws {
        let (now, wait) = (outbox.time.now, queue.collecting.wait)
        // Of a whole queue, most lanes are open and due as early as they have to be, and to look at each would take long.
        let found = try sql.patiently {
            try sql.all(
                """
                SELECT lane, laneName, min(queue_#.laneGroup), min(nextAttemptAtMs),
                  min(CASE WHEN nextAttemptAtMs IS NULL THEN acceptedAtMs END), min(queue_#.turn)
                FROM queue_# LEFT JOIN lanes ON number = lane AND upstream = ?1 AND name = laneName
                WHERE id BETWEEN ?2 AND ?3 AND laneName IS NOT NULL
                  AND (?4 OR number IS NULL OR NOT isHeld AND NOT isParked
                    AND (acceptedAtMs > ?5 OR coalesce(readyAtMs > coalesce(nextAttemptAtMs, acceptedAtMs + ?6), TRUE)))
                GROUP BY lane, laneName ORDER BY min(id)
                """, of: queue.number, queue.number, ids?.lowerBound ?? MessageID(rawValue: 0),
                ids?.upperBound ?? MessageID(rawValue: .max), ids != nil, now, wait.wholeMilliseconds
            ) { row in
                // A message from the future was accepted before the clock was set back, and has waited long enough.
                let collectedAt = (row[4] as Timestamp?).map { $0 > now ? now : $0 + wait }
                return (
                    number: row[0] as Int64, name: row[1] as String, group: row[2] as String?,
                    readyAt: min(collectedAt ?? .never, (row[3] as Timestamp?) ?? .never), turn: row[5] as Int64
                )
            }
        }
        for lane in found {
            let open = try openLane(
                lane.name, as: lane.number, group: lane.group, of: queue, readyAt: lane.readyAt, turn: lane.turn)
            if let readyAt = open.readyAt { lanesAreDue(of: queue, at: readyAt) }
        }
    }
}

// MARK: - Named lanes

extension Transaction {
    /// A named lane, created if necessary; due at `readyAt` unless it was due earlier, is held, or is parked with its
    /// group. A new one waits for `waitingFor`, if that is given, and has `turn`, and `number`, or else the next one.
    func openLane(
        _ name: String, as number: Int64? = nil, group: String?, of queue: QueueTarget, readyAt: Timestamp,
        waitingFor: WaitReason? = nil, turn: Int64 = 0
    ) throws -> OpenLane {
        let writeState = writeStates[queue.number]
        // Byte by byte, as the store compares them.
        if let lane = writeState.openLane, lane.name.utf8.elementsEqual(name.utf8), lane.isReady(by: readyAt) {
            return lane
        }
        let lane =
            try findLane(name, of: queue).map { try advance($0, to: readyAt) }
            ?? makeLane(
                name, as: number, group: group, of: queue, readyAt: readyAt, waitingFor: waitingFor, turn: turn)
        writeState.openLane = lane
        return lane
    }

    private func findLane(_ name: String, of queue: QueueTarget) throws -> OpenLane? {
        try sql.first(
            "SELECT number, readyAtMs, isHeld OR isParked FROM lanes WHERE upstream = ? AND name = ?", queue.number,
            name
        ) { OpenLane(name: name, number: $0[0], readyAt: $0[1], isBound: $0[2]) }
    }

    private func advance(_ lane: OpenLane, to readyAt: Timestamp) throws -> OpenLane {
        if lane.isReady(by: readyAt) { return lane }
        try sql.run("UPDATE lanes SET readyAtMs = ? WHERE number = ?", readyAt, lane.number)
        return OpenLane(name: lane.name, number: lane.number, readyAt: readyAt, isBound: false)
    }

    private func makeLane(
        _ name: String, as number: Int64?, group: String?, of queue: QueueTarget, readyAt: Timestamp,
        waitingFor: WaitReason?, turn: Int64
    ) throws -> OpenLane {
        let readyAt = waitingFor == nil ? readyAt : .never
        let isParked = try group.map { try self.isParked(group: $0, of: queue) } ?? false
        let made = try sql.insert(
            """
            INSERT INTO lanes (upstream, name, laneGroup, readyAtMs, isParked, isHeld, waitingFor, turn)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?)
            """, queue.number, name, group, isParked ? nil : readyAt, isParked, waitingFor != nil, waitingFor?.rawValue,
            turn)
        if let number { try sql.run("UPDATE lanes SET number = ? WHERE number = ?", number, made) }
        return OpenLane(
            name: name, number: number ?? made, readyAt: isParked ? nil : readyAt,
            isBound: isParked || waitingFor != nil)
    }

    private func isParked(group: String, of queue: QueueTarget) throws -> Bool {
        try sql.exists(
            "SELECT 1 FROM lanes WHERE upstream = ? AND laneGroup = ? AND isParked LIMIT 1", queue.number, group)
    }

    /// Schedules an update of the lane's row before the commit. A lane that `isServed` moves behind the others.
    func touch(_ lane: Int64, of queue: QueueTarget, isServed: Bool) {
        let writeState = writeStates[queue.number]
        writeState.touchedLanes[lane] = isServed || writeState.touchedLanes[lane] ?? false
    }

    func settleLanes(of writeState: UpstreamWriteState) throws {
        guard !writeState.touchedLanes.isEmpty, let queue = outbox.target(writeState.number) else { return }
        for (lane, isServed) in writeState.touchedLanes {
            guard let first = try LaneFront(of: lane, in: queue, isServed: isServed, by: self) else {
                try closeLane(lane, of: queue)
                continue
            }
            // A lane that was not served keeps its position unless it is due earlier. If the wait of its first message
            // was ended, its row is due although the message says otherwise.
            try sql.run(
                """
                UPDATE lanes SET
                  readyAtMs = CASE WHEN isParked THEN NULL
                    WHEN ?2 AND isHeld AND NOT ?3 AND readyAtMs <= ?5 THEN readyAtMs
                    WHEN ?2 OR ?3 OR isHeld OR readyAtMs IS NULL OR readyAtMs > ?1 THEN ?1 ELSE readyAtMs END,
                  isHeld = ?2, waitingFor = NULL, failures = CASE WHEN ?2 THEN failures ELSE 0 END
                WHERE number = ?4 AND upstream = ?6
                """, first.readyAt, first.isHeld, isServed, lane, outbox.time.now, queue.number)
            lanesAreDue(of: queue, at: first.readyAt)
        }
    }

    private func closeLane(_ lane: Int64, of queue: QueueTarget) throws {
        // Numbers are assigned again, perhaps to a lane of another upstream.
        let group = try sql.value(
            "SELECT laneGroup FROM lanes WHERE number = ? AND upstream = ?", lane, queue.number, as: String?.self)
        if let group = group ?? nil {
            touchedOwners.insert(CredentialOwner(upstream: queue.number, name: group))
        }
        try sql.run("DELETE FROM lanes WHERE number = ? AND upstream = ?", lane, queue.number)
    }

    /// Makes a lane wait that could be sent, unless it was woken since its `wakes` were read.
    func holdLane(
        _ name: String, of queue: QueueTarget, until moment: Timestamp, for reason: WaitReason?, wakes: Int
    ) throws {
        writeStates[queue.number].openLane = nil
        try sql.run(
            """
            UPDATE lanes SET readyAtMs = ?, isHeld = TRUE, waitingFor = ?
            WHERE upstream = ? AND name = ? AND NOT isParked AND wakes = ?
            """, moment, reason?.rawValue, queue.number, name, wakes)
    }

    /// Ends a wait that a plan has requested. Messages that are to be sent again keep their time.
    func wake(_ name: String, of queue: QueueTarget) throws {
        writeStates[queue.number].openLane = nil
        let now = outbox.time.now
        try sql.run(
            """
            UPDATE lanes SET wakes = wakes + 1,
              readyAtMs = CASE WHEN waitingFor IS NULL THEN readyAtMs ELSE ? END,
              isHeld = isHeld AND waitingFor IS NULL, waitingFor = NULL
            WHERE upstream = ? AND name = ? AND NOT isParked
            """, now, queue.number, name)
        lanesAreDue(of: queue, at: now)
    }

    /// Makes messages due now that are to be sent again later.
    func makeRetriesDue(of queue: QueueTarget, at now: Timestamp) throws {
        try sql.run(
            "UPDATE queue_# SET nextAttemptAtMs = ?1 WHERE waiting = 1 AND nextAttemptAtMs > ?1", of: queue.number, now)
    }

    /// Makes waiting lanes due now, and in each of them what has failed together with its front.
    func makeLanesDue(of queue: QueueTarget, at now: Timestamp) throws {
        writeStates[queue.number].openLane = nil
        try makeRetriesDue(of: queue, at: now)
        try sql.run(
            """
            UPDATE lanes SET readyAtMs = ?1, wakes = wakes + 1, waitingFor = NULL,
              isHeld = isHeld AND waitingFor IS NULL
            WHERE upstream = ?2 AND readyAtMs > ?1
            """, now, queue.number)
        lanesAreDue(of: queue, at: now)
    }

    /// Makes lanes due now that wait for an endpoint, for credentials, or for the guard.
    func wakeHeldLanes(of queue: QueueTarget, at now: Timestamp) throws {
        writeStates[queue.number].openLane = nil
        let woken = try sql.run(
            """
            UPDATE lanes SET readyAtMs = ?1, wakes = wakes + 1, isHeld = FALSE, waitingFor = NULL
            WHERE upstream = ?2 AND readyAtMs > ?1 AND waitingFor IN (?3, ?4, ?5)
            """, now, queue.number, WaitReason.circuit.rawValue, WaitReason.credentials.rawValue,
            WaitReason.guard.rawValue)
        if woken > 0 { lanesAreDue(of: queue, at: now) }
    }

    /// Parks the lane, or all of its group, until it is released. Has no effect if a valid credential has arrived for
    /// the group since that was decided.
    func park(_ lane: Lane, of queue: QueueTarget) throws {
        writeStates[queue.number].openLane = nil
        guard case .named(let name, let group) = lane else { return }
        if let held = try state(of: queue).credential(of: group ?? name), held.isUsable(at: outbox.time.now) { return }
        try sql.run(
            """
            UPDATE lanes SET isParked = TRUE, readyAtMs = NULL
            WHERE upstream = ?1 AND (laneGroup = ?2 OR (laneGroup IS NULL AND name = ?2))
            """, queue.number, group ?? name)
    }

    /// Releases the parked lanes of a group. A lane without a group is a group of its own.
    func release(group: String, of queue: QueueTarget) throws {
        writeStates[queue.number].openLane = nil
        let now = outbox.time.now
        try sql.run(
            """
            UPDATE lanes SET isParked = FALSE, isHeld = FALSE, readyAtMs = ?1
            WHERE upstream = ?2 AND isParked AND (laneGroup = ?3 OR (laneGroup IS NULL AND name = ?3))
            """, now, queue.number, group)
        lanesAreDue(of: queue, at: now)
    }
}

/// When a lane is due, by its rows.
private struct LaneFront {
    let readyAt: Timestamp
    /// Whether the first message waits to be sent again.
    let isHeld: Bool

    /// Nil if the lane is empty.
    init?(of lane: Int64, in queue: QueueTarget, isServed: Bool, by transaction: Transaction) throws {
        let now = transaction.outbox.time.now
        let rows = QueueRows(sql: transaction.sql, kinds: transaction.outbox.kinds, number: queue.number)
        guard let front = try rows.head(ofLane: lane) else {
            guard let due = try rows.nextScheduled(inLane: lane) else { return nil }
            self.init(readyAt: max(due, isServed ? now : due), isHeld: false)
            return
        }
        if let retryAt = front.retryAt {
            // A scheduled message that was accepted before it is sent before it, but not between its requests.
            let sooner = try front.hasBegun ? nil : rows.nextScheduled(inLane: lane, through: front.id, by: retryAt)
            self.init(readyAt: sooner ?? retryAt, isHeld: true)
            return
        }
        let collecting = queue.collecting
        var readyAt = front.acceptedAt + collecting.wait
        // A message from the future was accepted before the clock was set back, and has waited long enough.
        if readyAt > now,
            try front.hasBegun || front.acceptedAt > now
                || Self.isLong(lane, collecting.limits.maxMessages, in: queue, by: transaction)
        {
            readyAt = now
        }
        self.init(readyAt: isServed ? max(now, readyAt) : readyAt, isHeld: false)
    }

    private init(readyAt: Timestamp, isHeld: Bool) {
        self.readyAt = readyAt
        self.isHeld = isHeld
    }

    private static func isLong(
        _ lane: Int64, _ count: Int, in queue: QueueTarget, by transaction: Transaction
    ) throws -> Bool {
        try transaction.sql.exists(
            "SELECT 1 FROM queue_# WHERE lane = ? AND waiting = 0 LIMIT 1 OFFSET ?", of: queue.number, lane, count - 1)
    }
}
