import GRDB
public import PosternCore

extension Transaction {
    /// Records that a request is about to be sent, so that a run that dies before its answer leaves a trace.
    public func openAttempt(_ attempt: AttemptStart, of queue: UpstreamQueue) throws {
        let statement = try statements.openAttempt(in: db)
        statement.bind(attempt.batch.rawValue, at: 1)
        statement.bind(Int64(queue.number.rawValue), at: 2)
        statement.bind(attempt.startedAt.milliseconds, at: 3)
        statement.bind(attempt.ids.first?.rawValue, at: 4)
        statement.bind(attempt.ids.last?.rawValue, at: 5)
        statement.bind(MessageIDList.encode(attempt.ids), at: 6)
        try statement.run(in: db)
    }

    /// Applies the result of an attempt, and the state changes that `changes` computes. Returns those.
    @discardableResult
    public func settle(
        _ settlement: Settlement, of queue: UpstreamQueue,
        changes: (any UpstreamState) throws -> [StateChange] = { _ in [] }
    ) throws -> [StateChange] {
        try closeAttempt(settlement)
        try deliver(settlement.delivered, of: queue, result: settlement.result, at: settlement.endedAt)
        for ended in settlement.ended {
            try end(
                ended.message.id, in: queue, as: ended.state, error: ended.error, at: settlement.endedAt,
                result: ended.result, wasTried: ended.wasTried, attempts: ended.attempts)
        }
        for id in settlement.wereTried { try markTried(id, in: queue) }
        if let waiting = settlement.waiting { try wait(waiting, of: queue) }
        for (id, progress) in settlement.progressed { try keep(progress, of: id, in: queue) }
        // First what is known of its credential: lanes for which there is a good one are not parked.
        let changes = try changes(state(of: queue))
        try apply(changes, of: queue)
        if let parked = settlement.parked.first { try park(parked.lane, of: queue) }
        if settlement.isAmbiguous { accounts[queue.number].ledger.ambiguousSends += 1 }
        if let circuit = settlement.circuit { try save(circuit, of: queue.number) }
        return changes
    }

    public func save(_ circuit: CircuitRecord, of number: UpstreamNumber) throws {
        let statement = try statements.circuit(in: db)
        statement.bind(RecordText.encode(circuit), at: 1)
        statement.bind(Int64(number.rawValue), at: 2)
        try statement.run(in: db)
    }

    private func closeAttempt(_ settlement: Settlement) throws {
        let statement = try statements.closeAttempt(in: db)
        statement.bind(settlement.endedAt.milliseconds, at: 1)
        statement.bind(settlement.outcome.rawValue, at: 2)
        statement.bind(settlement.status.map(Int64.init), at: 3)
        statement.bind(settlement.detail, at: 4)
        statement.bind(settlement.batch.rawValue, at: 5)
        try statement.run(in: db)
    }

    // MARK: Delivered

    private func deliver(
        _ messages: [Message], of queue: UpstreamQueue, result: [UInt8]?, at moment: Timestamp
    ) throws {
        guard !messages.isEmpty else { return }
        if try deliverRun(messages, of: queue, result: result, at: moment) { return }
        for message in messages { try deliver(message, of: queue, result: result, at: moment) }
    }

    /// Most batches are neighbours in the queue, which move in two statements instead of two for each.
    ///
    /// Those being sent are removed by nobody else, so as many rows from the first to the last as there are messages
    /// means: just these. Where lanes have rows of their own a batch is of one lane.
    private func deliverRun(
        _ messages: [Message], of queue: UpstreamQueue, result: [UInt8]?, at moment: Timestamp
    ) throws -> Bool {
        guard messages.count > 4, let first = messages.map(\.id).min(),
            let last = messages.map(\.id).max(), try count(from: first, to: last, in: queue) == messages.count
        else { return false }
        try queue.discipline.touchLane(of: first, of: queue, in: self)
        if outbox.keepsDelivered {
            let statement = try statements.deliverRun(in: queue.number, db: db)
            statement.bind(moment.milliseconds, at: 1)
            statement.bind(result, at: 2)
            statement.bind(first.rawValue, at: 3)
            statement.bind(last.rawValue, at: 4)
            try statement.run(in: db)
        }
        let statement = try statements.removeRun(in: queue.number, db: db)
        statement.bind(first.rawValue, at: 1)
        statement.bind(last.rawValue, at: 2)
        try statement.run(in: db)
        guard db.changesCount == messages.count else {
            throw StoreError.failed(detail: "removed \(db.changesCount) messages instead of \(messages.count)")
        }
        let account = accounts[queue.number]
        account.ledger.queued -= messages.count
        account.ledger.queuedBytes -= messages.reduce(0) { $0 + $1.payload.count }
        for message in messages { book(message.id, result: result, in: account) }
        return true
    }

    private func count(from first: MessageID, to last: MessageID, in queue: UpstreamQueue) throws -> Int {
        let statement = try statements.countRun(in: queue.number, db: db)
        statement.bind(first.rawValue, at: 1)
        statement.bind(last.rawValue, at: 2)
        var count = 0
        try statement.forEachRow(in: db) { row in
            count = Int(row.integer(0))
            return false
        }
        return count
    }

    private func deliver(_ message: Message, of queue: UpstreamQueue, result: [UInt8]?, at moment: Timestamp) throws {
        try queue.discipline.touchLane(of: message.id, of: queue, in: self)
        guard try remove(message.id, bytes: message.payload.count, from: queue) else { return }
        let account = accounts[queue.number]
        if outbox.keepsDelivered {
            let statement = try statements.deliver(in: queue.number, db: db)
            statement.bind(message.id.rawValue, at: 1)
            statement.bind(account.kindNumber(of: message.kind, in: outbox.kinds), at: 2)
            statement.bind(message.acceptedAt.milliseconds, at: 3)
            statement.bind(moment.milliseconds, at: 4)
            statement.bind(message.attempts + 1, at: 5)
            statement.bind(message.key, at: 6)
            statement.bind(result, at: 7)
            try statement.run(in: db)
        }
        book(message.id, result: result, in: account)
    }

    private func book(_ id: MessageID, result: [UInt8]?, in account: Account) {
        account.ledger.delivered += 1
        if !outbox.keepsDelivered { account.ledger.purgedDelivered += 1 }
        note(.delivered, of: id, in: account, error: nil, result: result)
    }

    /// Deletes a queue row; false when it is gone already.
    private func remove(_ id: MessageID, bytes: Int, from queue: UpstreamQueue) throws -> Bool {
        let statement = try statements.remove(from: queue.number, in: db)
        statement.bind(id.rawValue, at: 1)
        try statement.run(in: db)
        guard db.changesCount == 1 else { return false }
        let account = accounts[queue.number]
        account.ledger.queued -= 1
        account.ledger.queuedBytes -= bytes
        return true
    }

    // MARK: Ended

    /// Moves a queued message to the ended ones, payload and all. False when it is not queued.
    @discardableResult
    func end(
        _ id: MessageID, in queue: UpstreamQueue, as state: MessageState, error: AttemptError?, at moment: Timestamp,
        result: [UInt8]? = nil, wasTried: Bool = false, attempts: Int = 0
    ) throws -> Bool {
        var found: (lane: Int64, bytes: Int)?
        let ending = try statements.ending(in: queue.number, db: db)
        ending.bind(id.rawValue, at: 1)
        try ending.forEachRow(in: db) { row in
            found = (row.integer(0), Int(row.integer(1)))
            return false
        }
        guard let found else { return false }
        let lane = try queue.discipline.laneName(of: found.lane, in: self)
        let statement = try statements.end(in: queue.number, db: db)
        statement.bind(Int64(state.rawValue), at: 1)
        statement.bind(lane.text, at: 2)
        statement.bind(lane.group, at: 3)
        statement.bind(moment.milliseconds, at: 4)
        statement.bind(attempts, at: 5)
        statement.bind(error.map { RecordText.encode(ErrorRecord($0)) }, at: 6)
        statement.bind(wasTried ? 1 : 0, at: 7)
        statement.bind(result, at: 8)
        statement.bind(id.rawValue, at: 9)
        try statement.run(in: db)
        queue.discipline.touch(found.lane, isServed: state == .failed, of: queue, in: self)
        guard try remove(id, bytes: found.bytes, from: queue) else { return false }
        let account = accounts[queue.number]
        account.ledger.add(1, to: state)
        note(state, of: id, in: account, error: error, result: result)
        return true
    }

    // MARK: Waiting

    private func wait(_ waiting: Settlement.Waiting, of queue: UpstreamQueue) throws {
        let statement = try statements.wait(in: queue.number, db: db)
        let error = waiting.error.map { RecordText.encode(ErrorRecord($0)) }
        for message in waiting.messages {
            statement.bind(waiting.nextAttemptAt == nil ? QueueColumn.ready : QueueColumn.retrying, at: 1)
            statement.bind(waiting.nextAttemptAt?.milliseconds, at: 2)
            statement.bind(waiting.counts ? 1 : 0, at: 3)
            statement.bind(error, at: 4)
            statement.bind(waiting.wasTried ? 1 : 0, at: 5)
            statement.bind(message.id.rawValue, at: 6)
            try statement.run(in: db)
            try queue.discipline.touchLane(of: message.id, of: queue, in: self)
        }
        if let first = waiting.messages.first {
            try queue.discipline.laneFailed(of: first.id, of: queue, in: self)
        }
    }

    private func markTried(_ id: MessageID, in queue: UpstreamQueue) throws {
        let statement = try statements.markTried(in: queue.number, db: db)
        statement.bind(id.rawValue, at: 1)
        try statement.run(in: db)
    }

    private func keep(_ progress: [UInt8], of id: MessageID, in queue: UpstreamQueue) throws {
        let statement = try statements.progress(in: queue.number, db: db)
        statement.bind(progress, at: 1)
        statement.bind(id.rawValue, at: 2)
        try statement.run(in: db)
        try queue.discipline.touchLane(of: id, of: queue, in: self)
    }

    // MARK: State

    /// Applies changes of an upstream's state.
    func apply(_ changes: [StateChange], of queue: UpstreamQueue) throws {
        let number = Int64(queue.number.rawValue)
        for change in changes {
            switch change {
            case .set(let key, let value, let expiry):
                let statement = try statements.setState(in: db)
                statement.bind(number, at: 1)
                statement.bind(key, at: 2)
                statement.bind(value, at: 3)
                statement.bind(expiry?.at.milliseconds, at: 4)
                statement.bind(expiry?.lane, at: 5)
                try statement.run(in: db)
            case .remove(let key):
                let statement = try statements.removeState(in: db)
                statement.bind(number, at: 1)
                statement.bind(key, at: 2)
                try statement.run(in: db)
            case .release(let group):
                try release(group: group, of: queue)
            case .wake(let lane): try wake(lane, of: queue)
            case .hold(let credential): try hold(credential, of: queue)
            case .drop(let owner): try drop(credentialOf: owner, of: queue)
            case .refuse(let owner, let version): try refuse(credentialOf: owner, version: version, of: queue)
            }
        }
    }

    /// Changes an upstream's state beside any message, e.g. for a credential that a caller hands in.
    public func change(_ changes: [StateChange], of queue: UpstreamQueue) throws { try apply(changes, of: queue) }
}

// MARK: - Steering

extension Transaction {
    /// Takes a queued message back. False when it is settled already or is being sent.
    func cancel(_ id: MessageID, in queue: UpstreamQueue, at moment: Timestamp) throws -> Bool {
        guard tryRemoving(id, from: queue) else { return false }
        return try end(id, in: queue, as: .cancelled, error: nil, at: moment)
    }

    /// Queues an ended message again, under its old id and so at its old place. False when there is no such message,
    /// or its payload is gone.
    func requeue(_ id: MessageID, in queue: UpstreamQueue, at moment: Timestamp) throws -> Bool {
        var found: (state: MessageState, lane: StoredLaneName, bytes: Int)?
        let ended = try statements.ended(in: queue.number, db: db)
        ended.bind(id.rawValue, at: 1)
        try ended.forEachRow(in: db) { row in
            let lane = StoredLaneName(text: row.text(1) ?? "0", group: row.text(2))
            found = (row.integer(0) == MessageState.failed.rawValue ? .failed : .dropped, lane, Int(row.integer(3)))
            return false
        }
        guard let found else { return false }
        let lane = try queue.discipline.reopenLane(found.lane, at: moment, of: queue, in: self)
        let requeue = try statements.requeue(in: queue.number, db: db)
        requeue.bind(lane, at: 1)
        requeue.bind(id.rawValue, at: 2)
        try requeue.run(in: db)
        let remove = try statements.removeEnded(in: queue.number, db: db)
        remove.bind(id.rawValue, at: 1)
        try remove.run(in: db)
        queue.discipline.touch(lane, isServed: false, of: queue, in: self)
        let account = accounts[queue.number]
        account.ledger.add(-1, to: found.state)
        account.ledger.queued += 1
        account.ledger.queuedBytes += found.bytes
        return true
    }
}
