import PosternCore

// A message that settles is noted in `reports`; the events about all of them are stored at the end of the transaction,
// so that they are on disk together with what they report. A settlement never fails because of its events: an event for
// which there is no room is stored as dropped, so that it is counted, shown, and can be queued again.

extension Transaction {
    private func isReported(_ state: MessageState, of queue: QueueTarget) -> Bool {
        callbacks.contains { $0.reports(state, of: queue.name) }
    }

    private func needsPayload(_ state: MessageState, of queue: QueueTarget) -> Bool {
        callbacks.contains { $0.includesPayload && $0.reports(state, of: queue.name) }
    }

    /// Notes a delivered message.
    func report(_ message: Message, of queue: QueueTarget, result: [UInt8]?, at moment: Timestamp) {
        guard !message.isCallback, isReported(.delivered, of: queue) else { return }
        reports.append(
            SettledMessage(
                id: message.id, upstream: queue.name, kind: message.kind, state: .delivered, key: message.key,
                attempts: message.attempts + 1, settledAt: moment, lastError: nil, result: result,
                payload: needsPayload(.delivered, of: queue) ? message.payload : nil,
                isFromSDK: message.isFromSDK, traceParent: message.traceParent))
    }

    /// Notes a message that ends as soon as it is accepted.
    func report(_ message: NewMessage, as id: MessageID, endedAs state: MessageState, _ error: AttemptError?) {
        let queue = message.queue
        guard !message.flags.contains(.isCallback), isReported(state, of: queue) else { return }
        reports.append(
            SettledMessage(
                id: id, upstream: queue.name, kind: message.kind, state: state, key: message.key, attempts: 0,
                settledAt: message.acceptedAt, lastError: error, result: nil,
                payload: needsPayload(state, of: queue) ? Array(message.bytes[message.range]) : nil,
                isFromSDK: message.isFromSDK, traceParent: message.traceParent))
    }

    /// What has to be recorded about a queued message that is about to end; nil if nothing has to. Reads a payload only
    /// if a callback needs it.
    func report(
        of id: MessageID, in queue: QueueTarget, as state: MessageState, error: AttemptError?, at moment: Timestamp,
        result: [UInt8]?, attempts: Int
    ) throws -> SettledMessage? {
        guard !callbacks.isEmpty, isReported(state, of: queue) else { return nil }
        let needsPayload = needsPayload(state, of: queue)
        return try sql.first(
            """
            SELECT kind, key, attempts, lastError, checksum, CASE WHEN ? THEN payload END, traceParent, tried
            FROM queue_# WHERE id = ? AND (tried & ?) = 0
            """, of: queue.number, needsPayload, id, MessageFlags.isCallback
        ) { row in
            SettledMessage(
                id: id, upstream: queue.name, kind: outbox.kinds.kind(row[0]), state: state, key: row[1],
                attempts: row[2] + attempts, settledAt: moment,
                lastError: error ?? (row[3] as String?).flatMap { JSONRecord.decode($0, as: AttemptError.self) },
                result: result, payload: needsPayload && row.isWhole(payload: 5, checksum: 4) ? row[5] : nil,
                isFromSDK: (row[7] as MessageFlags).contains(.isFromSDK), traceParent: row[6])
        }
    }

    /// Stores the events about all messages that have settled. If a queue drops its oldest messages to make room for
    /// them, there are further events, about the dropped messages. Nothing is dropped for those, because otherwise the
    /// events about a full queue would replace all of it.
    func storeCallbacks() throws {
        var mayEvict = true
        while !reports.isEmpty {
            var settled = reports
            reports = []
            if outbox.hasReplays {
                for index in settled.indices { settled[index].replayOf = try sql.original(of: settled[index].id) }
            }
            for callback in callbacks {
                let reported = settled.filter { callback.reports($0.state, of: $0.upstream) }
                if !reported.isEmpty { try store(callback, about: reported, mayEvict: mayEvict) }
            }
            mayEvict = false
        }
    }

    private func store(_ callback: Callback, about settled: [SettledMessage], mayEvict: Bool) throws {
        let now = outbox.time.now
        let made = callback.events(settled)
        precondition(made.count == settled.count, "there is one event for each message")
        let events = zip(settled, made).map { message, event in
            // The id of the message that it reports is the key of the event, so that the event is found by it.
            var new = NewMessage(
                queue: callback.queue, kind: callback.kind, lane: event.lane, key: message.id.description,
                acceptedAt: now, bytes: event.bytes, traceParent: message.traceParent)
            new.flags.insert(.isCallback)
            return new
        }
        let bytes = events.reduce(0) { $0 + $1.range.count }
        let hasDisk =
            try !outbox.isFull || hasSpareRoom(for: bytes)
            || mayEvict && makeRoomOnFullDisk(for: events, in: callback.queue)
        if hasDisk, mayEvict { try makeRoom(for: events.count, bytes: bytes, in: callback.queue) }
        _ = try insert(events, of: callback, hasDisk: hasDisk)
    }

    /// Stores the events about alerts for the callbacks that ask for them. Nothing is dropped for them, because the
    /// events about a full queue would replace all of it; one that does not fit into its queue is itself stored as
    /// dropped. Returns how many were, by the name of the upstream; nil, and stores nothing, if the disk has no room.
    func store(_ alerts: [Alert]) throws -> [UpstreamName: Int]? {
        let now = outbox.time.now
        let events = callbacks.map { callback in
            let told = alerts.filter { callback.tells($0.key) }.map { alert in
                var new = NewMessage(
                    queue: callback.queue, kind: callback.kind, lane: callback.alertLane(alert.bytes),
                    key: alert.key.description,
                    acceptedAt: now, bytes: alert.bytes)
                new.flags.insert(.isCallback)
                return new
            }
            return (callback: callback, told: told)
        }
        let bytes = events.reduce(0) { $0 + $1.told.reduce(0) { $0 + $1.range.count } }
        guard try !outbox.isFull || hasSpareRoom(for: bytes) else { return nil }
        var dropped: [UpstreamName: Int] = [:]
        for (callback, told) in events where !told.isEmpty {
            dropped[callback.queue.name, default: 0] += try insert(told, of: callback, hasDisk: true)
        }
        return dropped
    }

    /// Returns how many events were stored as dropped.
    private func insert(_ events: [NewMessage], of callback: Callback, hasDisk: Bool) throws -> Int {
        var bytes = events.reduce(0) { $0 + $1.range.count }
        var dropped = 0
        for (index, event) in events.enumerated() {
            let id = try nextID(of: callback.queue.number)
            if hasDisk, hasRoom(for: event, withRest: events.count - index, bytes: bytes) {
                try insert(event, as: id)
            } else {
                dropped += 1
                try insert(event, as: id, endedAs: .dropped, nil, withPayload: !outbox.isFull)
            }
            bytes -= event.range.count
        }
        callbackCounts.append(CallbackCount(callback: callback, accepted: events.count, dropped: dropped))
        return dropped
    }

    // MARK: Room

    /// Whether a full disk has room for the events, without what settlements may need: what settles leaves room behind.
    /// Rows do not fill their pages.
    private func hasSpareRoom(for bytes: Int) throws -> Bool {
        try mayStoreCallbacks && writer.spareBytes(in: sql) >= 2 * bytes
    }

    private func makeRoomOnFullDisk(for events: [NewMessage], in queue: QueueTarget) throws -> Bool {
        guard mayStoreCallbacks, queue.cap.whenFull == .dropOldest else { return false }
        var isEnough = false
        try inSavepoint {
            var evicted: [MessageID] = []
            isEnough = try makeRoomOnDisk(for: events, evicted: &evicted) == nil
            return isEnough
        }
        return isEnough
    }

    private func makeRoom(for messages: Int, bytes: Int, in queue: QueueTarget) throws {
        let ledger = writeStates[queue.number].ledger
        guard queue.cap.whenFull == .dropOldest,
            !queue.cap.admits(messages: ledger.queued + messages, bytes: ledger.queuedBytes + bytes)
        else { return }
        try evictOldest(of: queue, for: messages, bytes: bytes)
    }

    /// Whether the limits admit an event. Of a queue that keeps the newest messages, those after it, including the
    /// event, take its room.
    private func hasRoom(for event: NewMessage, withRest messages: Int, bytes: Int) -> Bool {
        guard outbox.isCapped else { return true }
        let size = event.range.count
        if outbox.maxBytes > 0, writeStates.open.reduce(size, { $0 + $1.ledger.queuedBytes }) > outbox.maxBytes {
            return false
        }
        let cap = event.queue.cap
        let ledger = writeStates[event.queue.number].ledger
        let needed = cap.whenFull == .dropOldest ? (messages: messages, bytes: bytes) : (messages: 1, bytes: size)
        // Its owner makes room.
        if cap.whenFull == .dropOldest, outbox.isOthers(event.queue.number) {
            return cap.admits(messages: needed.messages, bytes: needed.bytes)
        }
        return cap.admits(messages: ledger.queued + needed.messages, bytes: ledger.queuedBytes + needed.bytes)
    }
}
