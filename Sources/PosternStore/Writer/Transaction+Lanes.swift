import PosternCore

// A row of `lanes` lives as long as something of the lane is queued. `readyAtMs` says when it wants to be looked at and
// orders lanes among each other; nil while it is parked. `isHeld` keeps arrivals from making that sooner: the front is
// to be sent again, or a plan said that it waits (`waitingFor`). `wakes` counts who ended such a wait: a wait that was
// planned before does not begin any more.

extension Lane {
    /// What the `lane` column of a queue holds for a lane without a name. Named lanes have rows, which have the number.
    var number: Int64 { if case .digest(let digest) = self { digest } else { 0 } }
    init(number: Int64) { self = number == 0 ? .none : .digest(number) }

    var isNamed: Bool { if case .named = self { true } else { false } }
    var group: String? { if case .named(_, let group) = self { group } else { nil } }

    /// How ended messages name their lane: they outlive its row.
    var stored: String { if case .named(let name, _) = self { "=" + name } else { String(number) } }
    init(stored text: String, group: String?) {
        self = text.hasPrefix("=") ? .named(String(text.dropFirst()), group: group) : Self(number: Int64(text) ?? 0)
    }
}

// MARK: - The lanes of messages

extension Transaction {
    /// The number by which the row of `message` names its lane. Tells `arrival` when the message makes something due.
    func openLane(of message: NewMessage, scheduledAt: Timestamp?, arrival: inout Arrival) throws -> Int64 {
        guard case .named(let name, let group) = message.lane else {
            if let scheduledAt { arrival.isDue(at: scheduledAt) }
            return message.lane.number
        }
        let queue = message.queue
        let lane = try openLane(
            name, group: group, of: queue, readyAt: scheduledAt ?? message.acceptedAt + queue.collecting.wait,
            waitingFor: message.waitsFor)
        if let readyAt = lane.readyAt { arrival.isDue(at: readyAt) }
        return lane.number
    }

    /// The lane that the rows of a queue call by `number`.
    func lane(_ number: Int64, of queue: UpstreamQueue) throws -> Lane {
        try sql.first("SELECT name, laneGroup FROM lanes WHERE number = ? AND upstream = ?", number, queue.number) {
            .named($0[0], group: $0[1])
        } ?? Lane(number: number)
    }

    /// After an attempt: has the row of a message's lane brought up to date before the commit. The lane goes behind the
    /// others.
    func touchLane(of message: Message, in queue: UpstreamQueue) throws {
        guard message.lane.isNamed,
            let lane = try sql.value(
                "SELECT lane FROM queue_# WHERE id = ?", of: queue.number, message.id, as: Int64.self)
        else { return }
        touch(lane, of: queue, isServed: true)
    }

    /// The lane of the message failed once more.
    func failLane(of message: Message, in queue: UpstreamQueue) throws {
        guard message.lane.isNamed else { return }
        try sql.run(
            "UPDATE lanes SET failures = failures + 1 WHERE number = (SELECT lane FROM queue_# WHERE id = ?)",
            of: queue.number, message.id)
    }
}

// MARK: - Named lanes

extension Transaction {
    /// A named lane, made if need be; ready at `readyAt` unless it was sooner anyway, is held, or is parked with its
    /// group. One that is made waits for `waitingFor`, if that is given.
    func openLane(
        _ name: String, group: String?, of queue: UpstreamQueue, readyAt: Timestamp, waitingFor: WaitingFor? = nil
    ) throws -> OpenLane {
        let account = accounts[queue.number]
        if let lane = account.openLane, lane.name == name, lane.isReady(by: readyAt) { return lane }
        let lane =
            try findLane(name, of: queue).map { try advance($0, to: readyAt) }
            ?? makeLane(name, group: group, of: queue, readyAt: readyAt, waitingFor: waitingFor)
        account.openLane = lane
        return lane
    }

    private func findLane(_ name: String, of queue: UpstreamQueue) throws -> OpenLane? {
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
        _ name: String, group: String?, of queue: UpstreamQueue, readyAt: Timestamp, waitingFor: WaitingFor?
    ) throws -> OpenLane {
        let readyAt = waitingFor == nil ? readyAt : .never
        let isParked = try group.map { try self.isParked(group: $0, of: queue) } ?? false
        try sql.run(
            """
            INSERT INTO lanes (upstream, name, laneGroup, readyAtMs, isParked, isHeld, waitingFor)
            VALUES (?, ?, ?, ?, ?, ?6 IS NOT NULL, ?6)
            """, queue.number, name, group, isParked ? nil : readyAt, isParked, waitingFor?.rawValue)
        return OpenLane(
            name: name, number: Int64(sql.lastRowID), readyAt: isParked ? nil : readyAt,
            isBound: isParked || waitingFor != nil)
    }

    private func isParked(group: String, of queue: UpstreamQueue) throws -> Bool {
        try sql.exists(
            "SELECT 1 FROM lanes WHERE upstream = ? AND laneGroup = ? AND isParked LIMIT 1", queue.number, group)
    }

    /// Has the lane's row brought up to date before the commit. One that `isServed` goes behind the others.
    func touch(_ lane: Int64, of queue: UpstreamQueue, isServed: Bool) {
        let account = accounts[queue.number]
        account.touchedLanes[lane] = isServed || account.touchedLanes[lane] ?? false
    }

    func settleLanes(of account: Account) throws {
        guard !account.touchedLanes.isEmpty, let queue = outbox.queue(account.number) else { return }
        for (lane, isServed) in account.touchedLanes {
            guard let first = try LaneFront(of: lane, in: queue, isServed: isServed, by: self) else {
                try closeLane(lane, of: queue)
                continue
            }
            // Of a lane that was not served, only what is sooner counts: it keeps its place.
            try sql.run(
                """
                UPDATE lanes SET
                  readyAtMs = CASE WHEN isParked THEN NULL
                    WHEN ?2 OR ?3 OR isHeld OR readyAtMs IS NULL THEN ?1 ELSE min(readyAtMs, ?1) END,
                  isHeld = ?2, waitingFor = NULL, failures = CASE WHEN ?2 THEN failures ELSE 0 END
                WHERE number = ?4
                """, first.readyAt, first.isHeld, isServed, lane)
            lanesAreDue(of: queue, at: first.readyAt)
        }
    }

    private func closeLane(_ lane: Int64, of queue: UpstreamQueue) throws {
        try sql.each("DELETE FROM lanes WHERE number = ? RETURNING laneGroup", lane) { row in
            if let group = row[0] as String? {
                touchedOwners.insert(CredentialOwner(upstream: queue.number, name: group))
            }
        }
    }

    /// A lane that could be sent but is not to be, for now; unless it was woken since its `wakes` were read.
    func holdLane(
        _ name: String, of queue: UpstreamQueue, until moment: Timestamp, for reason: WaitingFor?, wakes: Int
    ) throws {
        accounts[queue.number].openLane = nil
        try sql.run(
            """
            UPDATE lanes SET readyAtMs = ?, isHeld = 1, waitingFor = ?
            WHERE upstream = ? AND name = ? AND isParked = 0 AND wakes = ?
            """, moment, reason?.rawValue, queue.number, name, wakes)
    }

    /// Ends a wait that a plan has asked for. What is to be sent again keeps its time.
    func wake(_ name: String, of queue: UpstreamQueue) throws {
        accounts[queue.number].openLane = nil
        let now = outbox.time.now
        try sql.run(
            """
            UPDATE lanes SET wakes = wakes + 1,
              readyAtMs = CASE WHEN waitingFor IS NULL THEN readyAtMs ELSE ? END,
              isHeld = CASE WHEN waitingFor IS NULL THEN isHeld ELSE 0 END, waitingFor = NULL
            WHERE upstream = ? AND name = ? AND isParked = 0
            """, now, queue.number, name)
        lanesAreDue(of: queue, at: now)
    }

    /// What waits is due now.
    func makeLanesDue(of queue: UpstreamQueue, at now: Timestamp) throws {
        accounts[queue.number].openLane = nil
        try sql.run(
            """
            UPDATE lanes SET readyAtMs = ?1, wakes = wakes + 1, waitingFor = NULL,
              isHeld = CASE WHEN waitingFor IS NULL THEN isHeld ELSE 0 END
            WHERE upstream = ?2 AND readyAtMs > ?1
            """, now, queue.number)
        lanesAreDue(of: queue, at: now)
    }

    /// Lanes that wait for an endpoint or for credentials are due now.
    func wakeHeldLanes(of queue: UpstreamQueue, at now: Timestamp) throws {
        accounts[queue.number].openLane = nil
        let woken = try sql.run(
            """
            UPDATE lanes SET readyAtMs = ?1, wakes = wakes + 1, isHeld = 0, waitingFor = NULL
            WHERE upstream = ?2 AND readyAtMs > ?1 AND waitingFor IN (?3, ?4)
            """, now, queue.number, WaitingFor.circuit.rawValue, WaitingFor.credentials.rawValue)
        if woken > 0 { lanesAreDue(of: queue, at: now) }
    }

    /// Nothing more for the lane, or all of its group, until it is released. If a good credential has come
    /// for the group since that was decided, nothing stops.
    func park(_ lane: Lane, of queue: UpstreamQueue) throws {
        accounts[queue.number].openLane = nil
        guard case .named(let name, let group) = lane else { return }
        if let held = try state(of: queue).credential(of: group ?? name), held.isUsable(at: outbox.time.now) { return }
        try sql.run(
            """
            UPDATE lanes SET isParked = 1, readyAtMs = NULL
            WHERE upstream = ?1 AND (laneGroup = ?2 OR (laneGroup IS NULL AND name = ?2))
            """, queue.number, group ?? name)
    }

    /// Lets parked lanes of a group go on; a lane without a group is its own.
    func release(group: String, of queue: UpstreamQueue) throws {
        accounts[queue.number].openLane = nil
        let now = outbox.time.now
        try sql.run(
            """
            UPDATE lanes SET isParked = 0, isHeld = 0, readyAtMs = ?1
            WHERE upstream = ?2 AND isParked = 1 AND (laneGroup = ?3 OR (laneGroup IS NULL AND name = ?3))
            """, now, queue.number, group)
        lanesAreDue(of: queue, at: now)
    }
}

/// What the rows of a lane say about its turn.
private struct LaneFront {
    let readyAt: Timestamp
    /// The front waits to be sent again.
    let isHeld: Bool

    /// Nil when the lane is empty.
    init?(of lane: Int64, in queue: UpstreamQueue, isServed: Bool, by transaction: Transaction) throws {
        let now = transaction.outbox.time.now
        var nextScheduled: Timestamp?
        var front: (retryAt: Timestamp?, acceptedAt: Timestamp, hasBegun: Bool)?
        // The rows of the lane, oldest first, as far as they say when it is its turn.
        try transaction.sql.walk(
            """
            SELECT waiting, nextAttemptAtMs, acceptedAtMs, progress IS NOT NULL FROM queue_#
            WHERE lane = ? ORDER BY id
            """, of: queue.number, lane
        ) { row in
            let waiting: Int64 = row[0]
            let due: Timestamp? = row[1]
            if waiting == QueueColumn.scheduled, let due {
                nextScheduled = min(nextScheduled ?? due, due)
                return true
            }
            front = (waiting == QueueColumn.retrying ? due : nil, row[2], row[3])
            return false
        }
        guard let front else {
            guard let nextScheduled else { return nil }
            self.init(readyAt: max(nextScheduled, isServed ? now : nextScheduled), isHeld: false)
            return
        }
        if let retryAt = front.retryAt {
            // A scheduled message that was accepted before it is sent before it.
            self.init(readyAt: min(retryAt, nextScheduled ?? retryAt), isHeld: true)
            return
        }
        let listener = queue.collecting
        var readyAt = front.acceptedAt + listener.wait
        if readyAt > now,
            try front.hasBegun || Self.isLong(lane, listener.limits.maxMessages, in: queue, by: transaction)
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
        _ lane: Int64, _ count: Int, in queue: UpstreamQueue, by transaction: Transaction
    ) throws -> Bool {
        try transaction.sql.exists(
            "SELECT id FROM queue_# WHERE lane = ? ORDER BY id LIMIT 1 OFFSET ?", of: queue.number, lane, count - 1)
    }
}
