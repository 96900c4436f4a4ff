import Logging
import PosternCore
import PosternMetrics
import PosternThreads

/// The part of the writer that runs on its thread: commits the submitted jobs, and does a little maintenance every
/// second.
final class CommitLoop: Loop, @unchecked Sendable {
    // @unchecked: everything below `MARK: State` belongs to the thread that turns.
    let name = "postern-writer"
    let outbox: Outbox
    private let inbox: Inbox<OutboxWriter.Job>

    // MARK: State
    let writer: any StoreWriter
    private let writeStates: UpstreamWriteStates
    /// False while a job is retried without its events, because the disk has no room for both.
    var mayStoreCallbacks = true
    private let maintenance: Maintenance
    /// The time by the loop's clock, which may differ from the store's time.
    private var nextMaintenance = MonotonicInstant.distantFuture
    private var hasMoreMaintenance = false
    /// When to look next for what other processes have done; never if there are none.
    private var nextPoll = MonotonicInstant.distantFuture
    private var hasMoreArrivals = false
    /// The writers of all nodes, as of the last refresh.
    private var seenWriters: String?
    /// When something was found the last time.
    private var lastArrival = MonotonicInstant.distantPast
    private var overwrites = OverwriteRounds()
    private var isStopping = false

    init(outbox: Outbox, inbox: Inbox<OutboxWriter.Job>, writer: any StoreWriter) {
        self.outbox = outbox
        self.inbox = inbox
        self.writer = writer
        writeStates = UpstreamWriteStates(outbox.ledgers)
        maintenance = Maintenance(outbox: outbox)
    }

    // What was handed in refers to the store, and the store to it.
    deinit { _ = inbox.takeAll() }

    /// The pause between two polls after `quietTime` in which nothing was found.
    private static let (quietPoll, quietTime) = (Duration.milliseconds(100), Duration.seconds(1))
    /// The least time between two warnings about the same upstream.
    private static let callbackWarningInterval = Duration.seconds(60)

    private var instant: MonotonicInstant { outbox.threads.instant }
    private var idleInterval: Duration { outbox.threads.idleTime(Maintenance.interval) }

    func begin() {
        nextMaintenance = instant + idleInterval
        if outbox.engine.pollInterval != nil { nextPoll = instant }
        writer.begin()
    }

    func turn(at now: MonotonicInstant) -> MonotonicInstant? {
        let jobs = inbox.takeAll()
        outbox.writer.turned(at: outbox.time.instant)
        commitAll(jobs)
        guard !isStopping else { return end() }
        if instant >= nextMaintenance {
            let hasMore = runMaintenance()
            nextMaintenance = instant + (hasMore ? Maintenance.pause : idleInterval)
        }
        if let interval = outbox.engine.pollInterval, instant >= nextPoll {
            let hasMore = poll()
            let isQuiet = instant - lastArrival > Self.quietTime
            nextPoll = instant + (hasMore ? .zero : isQuiet ? max(interval, Self.quietPoll) : interval)
        }
        return min(nextMaintenance, nextPoll, overwrites.advance(with: writer, at: instant))
    }

    func wait(until deadline: MonotonicInstant) -> Bool { inbox.wait(until: deadline) }

    private func end() -> MonotonicInstant? {
        commitAll(inbox.takeAll())
        let unanswered = outbox.relays.numbers
        if !unanswered.isEmpty {
            commit([
                .change {
                    try $0.removeRequests([], unanswered)
                } failed: { _ in
                }
            ])
        }
        outbox.relays.close()
        overwrites.close()
        writer.end()
        return nil
    }

    /// Commits in portions, so that a flood of messages, or work that takes long, does not delay the first ones.
    private func commitAll(_ jobs: [OutboxWriter.Job]) {
        var rest = jobs[...]
        while !rest.isEmpty {
            let portion = takePortion(of: &rest)
            let done = commitSome(portion[...])
            if done < portion.count { rest = portion[done...] + rest }
        }
    }

    /// Takes the next jobs that fit into one commit, without those that a full disk rejects.
    private func takePortion(of jobs: inout ArraySlice<OutboxWriter.Job>) -> [OutboxWriter.Job] {
        var portion: [OutboxWriter.Job] = []
        var messages = 0
        while messages < OutboxWriter.maxMessagesPerCommit, let job = jobs.popFirst() {
            switch job {
            case .append(let new, _, _, let completion):
                guard !outbox.isFull || mayMakeRoom(for: new) else {
                    completion(.failure(.store(.full(detail: "the disk is full; deliveries go on"))))
                    continue
                }
                messages += new.count
            case .change: break
            case .overwriteUnused(let completion):
                overwrites.add(completion)
                continue
            case .stop:
                isStopping = true
                continue
            }
            portion.append(job)
        }
        return portion
    }

    /// Returns true if there is more to do. What failed is not tried again sooner than what is done.
    private func runMaintenance() -> Bool {
        hasMoreMaintenance = false
        let job = OutboxWriter.Job.change { [self] transaction in
            let hasMore = try maintenance.run(in: transaction)
            return { [self] in
                maintenance.didCommit()
                hasMoreMaintenance = hasMore
            }
        } failed: { _ in
        }
        writer.maintain { commit([job]) }
        return hasMoreMaintenance
    }

    // MARK: Other processes

    /// Looks for what others have done. Returns whether there may be more.
    private func poll() -> Bool {
        collectResponses()
        guard let glance = try? outbox.engine.glance() else { return false }
        if outbox.exchangeEvents(isListenedTo: glance.isListenedTo) { lastArrival = instant }
        outbox.storeResponses()
        let haveMoved = outbox.takeMoves()
        if haveMoved || glance.writers != seenWriters {
            guard refresh() else {
                outbox.queueHasMoved()
                return false
            }
            seenWriters = glance.writers
        }
        return (glance.hasArrivals || glance.hasRequests) && hear()
    }

    /// Counts what others have added to the queues of this process, and takes what they relay. Returns whether there may be more.
    private func hear() -> Bool {
        hasMoreArrivals = false
        lastArrival = instant
        let job = OutboxWriter.Job.change { transaction in
            let hasMore = try transaction.hear()
            let answer = try transaction.takeRelayed()
            return { [self] in
                hasMoreArrivals = hasMore
                answer()
            }
        } failed: { _ in
        }
        writer.maintain { commit([job]) }
        return hasMoreArrivals
    }

    /// Reads what others have done to the queues, which limits what is accepted here. Returns whether that was possible.
    private func refresh() -> Bool {
        let found = try? outbox.read { sql in
            (try UpstreamSummary.all(with: sql, withTails: false), try Ledger.unheard(with: sql))
        }
        guard let (summaries, unheard) = found else { return false }
        let counted = summaries.map { summary in
            var summary = summary
            // This process counts what others have added to its own queues (`hear`).
            if outbox.isOthers(summary.number) { summary.ledger = summary.ledger + (unheard[summary.number] ?? .empty) }
            return summary
        }
        for summary in counted {
            let writeState = writeStates[summary.number]
            if writeState.committed != summary.ledger { lastArrival = instant }
            writeState.refresh(summary.ledger)
        }
        outbox.publish(counted)
        outbox.lookForSettled()
        return true
    }

    /// Looks for the responses to what was relayed.
    private func collectResponses() {
        guard outbox.relays.areWaiting else { return }
        lastArrival = instant
        let (done, untaken) = outbox.collectResponses()
        guard !done.isEmpty || !untaken.isEmpty else { return }
        commit([
            .change {
                try $0.removeRequests(done, untaken)
            } failed: { _ in
            }
        ])
    }

    // MARK: One commit

    func commit(_ jobs: [OutboxWriter.Job]) {
        var rest = jobs[...]
        while !rest.isEmpty { rest = rest.dropFirst(commitSome(rest)) }
    }

    /// Commits the first jobs, as many as a transaction has time for, and returns their number; 0 if it has to be tried again.
    private func commitSome(_ jobs: ArraySlice<OutboxWriter.Job>) -> Int {
        guard !jobs.isEmpty else { return 0 }
        outbox.writer.turned(at: outbox.time.instant)
        if let error = outbox.health.refusal {
            jobs.forEach { answer($0, with: error) }
            return jobs.count
        }
        let (start, began) = (instant, outbox.time.instant)
        var effects: [Effect] = []
        effects.reserveCapacity(jobs.count)
        var count = 0
        var transaction: Transaction?
        do {
            try writer.commit { sql in
                let current = Transaction(
                    sql: sql, writer: writer, outbox: outbox, writeStates: writeStates,
                    expectedMessages: jobs.reduce(0) { $0 + $1.messageCount }, mayStoreCallbacks: mayStoreCallbacks)
                transaction = current
                if outbox.engine.isShared { try current.lockTurns(of: jobs) }
                for job in jobs {
                    count += 1
                    effects.append(try perform(job, in: current))
                    if outbox.time.instant - began >= OutboxWriter.longestTransaction { break }
                }
                try current.finish()
                return current.growth
            }
        } catch {
            writeStates.open.forEach { $0.didRollBack() }
            transaction?.doneRemoving(isCommitted: false)
            // If the transaction did not even begin, the first job fails: it has to be answered.
            count = max(count, 1)
            return recover(Array(jobs.prefix(count)), from: error) ? count : 0
        }
        guard let transaction else { return count }
        publish(transaction, since: start)
        for effect in effects { effect.happen() }
        writer.didReply(isQuiet: count == jobs.count && inbox.isEmpty)
        return count
    }

    /// What to do once a job is committed. There is no closure for messages, because one for each request would be
    /// expensive.
    private enum Effect {
        case appended(Result<AppendReceipt, AppendError>, @Sendable (Result<AppendReceipt, AppendError>) -> Void)
        case changed(@Sendable () -> Void)

        func happen() {
            switch self {
            case .appended(let result, let completion): completion(result)
            case .changed(let follow): follow()
            }
        }
    }

    /// Executes one job inside the transaction.
    private func perform(_ job: OutboxWriter.Job, in transaction: Transaction) throws -> Effect {
        switch job {
        case .append(let messages, let record, let admission, let completion):
            let result = try transaction.append(
                messages, recording: record, after: admission, isDiskFull: outbox.isFull)
            return .appended(result, completion)
        case .change(let body, _):
            transaction.growth = nil
            try transaction.closeBlocks()
            return .changed(try body(transaction))
        case .overwriteUnused, .stop: return .changed {}
        }
    }

    private func publish(_ transaction: Transaction, since start: MonotonicInstant) {
        if transaction.sequence > 0 { writer.didAssign(through: transaction.sequence) }
        let changed = writeStates.open.filter(\.isChanged)
        writeStates.open.forEach { $0.didCommit() }
        for (kind, number) in transaction.newKinds { outbox.kinds.learn(kind, number: number) }
        outbox.publish(changed)
        outbox.metrics.commitDuration.observe((instant - start).inSeconds)
        transaction.doneRemoving(isCommitted: true)
        for (number, moment) in transaction.lanesDue { outbox.queues.adopted(number)?.announceDue(at: moment) }
        var accepted = 0
        for writeState in changed {
            guard let notice = writeState.appendNotice else { continue }
            accepted += notice.messages
            outbox.queues.adopted(writeState.number)?.arrived(notice, at: outbox.time.instant)
        }
        if accepted > 0 { outbox.metrics.commitMessages.observe(Double(accepted)) }
        for count in transaction.callbackCounts { show(count) }
        outbox.emit(transaction.events)
        outbox.announce(transaction.notices)
    }

    private func show(_ count: CallbackCount) {
        let (name, writeState) = (count.callback.queue.name, writeStates[count.callback.queue.number])
        outbox.metrics.accepted("\(name)", "\(count.callback.kind)").add(count.accepted)
        guard count.dropped > 0, instant >= writeState.nextCallbackWarning else { return }
        writeState.nextCallbackWarning = instant + Self.callbackWarningInterval
        outbox.logger.warning(
            "callbacks dropped; the queue of their upstream is full",
            metadata: ["upstream": "\(name)", "messages": .stringConvertible(count.dropped)])
    }

    /// Whether all of their queues drop the oldest messages if they are full.
    func mayMakeRoom(for messages: [NewMessage]) -> Bool {
        messages.allSatisfy { $0.queue.cap.whenFull == .dropOldest }
    }
}
