import GRDB
import PosternCore

// A row of `lanes` lives as long as something of the lane is queued. `readyAtMs` says when it wants to be looked at and
// orders lanes among each other; nil while it is parked. `isHeld` keeps arrivals from making that sooner: the front is
// to be sent again, or a plan said that it waits (`waitingFor`). `wakes` counts who ended such a wait: a wait that was
// planned before does not begin any more.

/// How the ended ones name their lane: they outlive its row.
struct StoredLaneName {
    let text: String
    let group: String?
}

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
        let find = try statements.findLane(in: db)
        find.bind(Int64(queue.number.rawValue), at: 1)
        find.bind(name, at: 2)
        var lane: OpenLane?
        try find.forEachRow(in: db) { row in
            lane = OpenLane(
                name: name, number: row.integer(0),
                readyAt: row.integerOrNil(1).map(Timestamp.init(milliseconds:)), isBound: row.integer(2) != 0)
            return false
        }
        return lane
    }

    private func advance(_ lane: OpenLane, to readyAt: Timestamp) throws -> OpenLane {
        if lane.isReady(by: readyAt) { return lane }
        let advance = try statements.advanceLane(in: db)
        advance.bind(readyAt.milliseconds, at: 1)
        advance.bind(lane.number, at: 2)
        try advance.run(in: db)
        return OpenLane(name: lane.name, number: lane.number, readyAt: readyAt, isBound: false)
    }

    private func makeLane(
        _ name: String, group: String?, of queue: UpstreamQueue, readyAt: Timestamp, waitingFor: WaitingFor?
    ) throws -> OpenLane {
        let readyAt = waitingFor == nil ? readyAt : .never
        let isParked = try group.map { try self.isParked(group: $0, of: queue) } ?? false
        let insert = try statements.openLane(in: db)
        insert.bind(Int64(queue.number.rawValue), at: 1)
        insert.bind(name, at: 2)
        insert.bind(group, at: 3)
        insert.bind(isParked ? nil : readyAt.milliseconds, at: 4)
        insert.bind(isParked ? 1 : 0, at: 5)
        insert.bind(waitingFor?.rawValue, at: 6)
        try insert.run(in: db)
        return OpenLane(
            name: name, number: db.lastInsertedRowID, readyAt: isParked ? nil : readyAt,
            isBound: isParked || waitingFor != nil)
    }

    private func isParked(group: String, of queue: UpstreamQueue) throws -> Bool {
        let statement = try statements.parkedOfGroup(in: db)
        statement.bind(Int64(queue.number.rawValue), at: 1)
        statement.bind(group, at: 2)
        var isParked = false
        try statement.forEachRow(in: db) { _ in
            isParked = true
            return false
        }
        return isParked
    }

    func nameOfLane(_ lane: Int64) throws -> (name: String, group: String?)? {
        let row = try Row.fetchOne(
            db.cachedStatement(sql: "SELECT name, laneGroup FROM lanes WHERE number = ?"), arguments: [lane])
        return row.map { ($0["name"], $0["laneGroup"]) }
    }

    /// The lane of a message that is still queued.
    func lane(of id: MessageID, in queue: UpstreamQueue) throws -> Int64? {
        let statement = try statements.laneOf(queue.number, in: db)
        statement.bind(id.rawValue, at: 1)
        var lane: Int64?
        try statement.forEachRow(in: db) { row in
            lane = row.integer(0)
            return false
        }
        return lane
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
            let statement = try statements.updateLane(in: db)
            statement.bind(first.readyAt.milliseconds, at: 1)
            statement.bind(first.isHeld ? 1 : 0, at: 2)
            statement.bind(isServed ? 1 : 0, at: 3)
            statement.bind(lane, at: 4)
            try statement.run(in: db)
            lanesAreDue(of: queue, at: first.readyAt)
        }
    }

    private func closeLane(_ lane: Int64, of queue: UpstreamQueue) throws {
        let statement = try statements.closeLane(in: db)
        statement.bind(lane, at: 1)
        try statement.forEachRow(in: db) { row in
            if let group = row.text(0) {
                touchedOwners.insert(CredentialOwner(upstream: queue.number, name: group))
            }
            return true
        }
    }

    /// The lane failed once more.
    func failLane(of id: MessageID, in queue: UpstreamQueue) throws {
        try db.execute(
            literal: """
                UPDATE lanes SET failures = failures + 1
                WHERE number = (SELECT lane FROM \(sql: "queue_\(queue.number.rawValue)") WHERE id = \(id.rawValue))
                """)
    }

    /// A lane that could be sent but is not to be, for now; unless it was woken since its `wakes` were read.
    func holdLane(
        _ lane: Int64, of queue: UpstreamQueue, until moment: Timestamp, for reason: WaitingFor?, wakes: Int
    ) throws {
        accounts[queue.number].openLane = nil
        try db.execute(
            literal: """
                UPDATE lanes SET readyAtMs = \(moment.milliseconds), isHeld = 1, waitingFor = \(reason?.rawValue)
                WHERE number = \(lane) AND upstream = \(queue.number.rawValue) AND isParked = 0 AND wakes = \(wakes)
                """)
    }

    /// Ends a wait that a plan has asked for. What is to be sent again keeps its time.
    func wake(_ name: String, of queue: UpstreamQueue) throws {
        accounts[queue.number].openLane = nil
        let now = outbox.time.now
        try db.execute(
            literal: """
                UPDATE lanes SET wakes = wakes + 1,
                  readyAtMs = CASE WHEN waitingFor IS NULL THEN readyAtMs ELSE \(now.milliseconds) END,
                  isHeld = CASE WHEN waitingFor IS NULL THEN isHeld ELSE 0 END, waitingFor = NULL
                WHERE upstream = \(queue.number.rawValue) AND name = \(name) AND isParked = 0
                """)
        lanesAreDue(of: queue, at: now)
    }

    /// What waits is due now.
    func makeLanesDue(of queue: UpstreamQueue, at now: Timestamp) throws {
        accounts[queue.number].openLane = nil
        try db.execute(
            literal: """
                UPDATE lanes SET readyAtMs = \(now.milliseconds), wakes = wakes + 1, waitingFor = NULL,
                  isHeld = CASE WHEN waitingFor IS NULL THEN isHeld ELSE 0 END
                WHERE upstream = \(queue.number.rawValue) AND readyAtMs > \(now.milliseconds)
                """)
        lanesAreDue(of: queue, at: now)
    }

    /// Lanes that wait for an endpoint or for credentials are due now.
    func wakeHeldLanes(of queue: UpstreamQueue, at now: Timestamp) throws {
        accounts[queue.number].openLane = nil
        try db.execute(
            literal: """
                UPDATE lanes SET readyAtMs = \(now.milliseconds), wakes = wakes + 1, isHeld = 0, waitingFor = NULL
                WHERE upstream = \(queue.number.rawValue) AND readyAtMs > \(now.milliseconds)
                  AND waitingFor IN (\(WaitingFor.circuit.rawValue), \(WaitingFor.credentials.rawValue))
                """)
        if db.changesCount > 0 { lanesAreDue(of: queue, at: now) }
    }

    /// Nothing more for the lane, or all of its group, until it is released. If a good credential has come
    /// for the group since that was decided, nothing stops.
    func park(_ lane: Lane, of queue: UpstreamQueue) throws {
        accounts[queue.number].openLane = nil
        guard case .named(let name, let group) = lane else { return }
        if let held = try state(of: queue).credential(of: group ?? name), held.isUsable(at: outbox.time.now) { return }
        let number = queue.number.rawValue
        if let group {
            try db.execute(
                literal: """
                    UPDATE lanes SET isParked = 1, readyAtMs = NULL
                    WHERE upstream = \(number) AND laneGroup = \(group)
                    """)
        } else {
            try db.execute(
                literal: "UPDATE lanes SET isParked = 1, readyAtMs = NULL WHERE upstream = \(number) AND name = \(name)"
            )
        }
    }

    /// Lets parked lanes of a group go on; a lane without a group is its own.
    func release(group: String, of queue: UpstreamQueue) throws {
        accounts[queue.number].openLane = nil
        let now = outbox.time.now
        try db.execute(
            literal: """
                UPDATE lanes SET isParked = 0, isHeld = 0, readyAtMs = \(now.milliseconds)
                WHERE upstream = \(queue.number.rawValue) AND isParked = 1 AND
                  (laneGroup = \(group) OR (laneGroup IS NULL AND name = \(group)))
                """)
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
        let statement = try transaction.statements.lane(of: queue.number, in: transaction.db)
        statement.bind(lane, at: 1)
        try statement.forEachRow(in: transaction.db) { row in
            let due = row.integerOrNil(1).map(Timestamp.init(milliseconds:))
            if row.integer(0) == QueueColumn.scheduled, let due {
                nextScheduled = min(nextScheduled ?? due, due)
                return true
            }
            front = (
                row.integer(0) == QueueColumn.retrying ? due : nil, Timestamp(milliseconds: row.integer(2)),
                row.integer(3) != 0
            )
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
        let statement = try transaction.statements.nthOfLane(of: queue.number, in: transaction.db)
        statement.bind(lane, at: 1)
        statement.bind(count - 1, at: 2)
        var isLong = false
        try statement.forEachRow(in: transaction.db) { _ in
            isLong = true
            return false
        }
        return isLong
    }
}
