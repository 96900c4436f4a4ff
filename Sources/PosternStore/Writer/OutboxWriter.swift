import Glibc
import Logging
import PosternCore
import PosternMetrics
import PosternThreads
import Synchronization

/// The only code that writes to the store: a thread that collects the submitted jobs and commits them together.
///
/// While one commit waits for the disk, the jobs of the next one are collected, so each costs a fraction of an fsync.
/// Any thread may submit jobs; completions run on the writer's thread after the commit and must be quick.
final class OutboxWriter: Sendable {
    enum Job: Sendable {
        case append([NewMessage], RequestRecord?, @Sendable (Result<AppendReceipt, AppendError>) -> Void)
        /// The body returns what to do after its changes are committed.
        case change(@Sendable (Transaction) throws -> @Sendable () -> Void, failed: @Sendable (StoreError) -> Void)
        case stop
    }

    private let inbox = Inbox<Job>()
    private let threads: any Threads
    private let running = Mutex<(any RunningLoop)?>(nil)
    private let isClosed = Atomic<Bool>(false)
    /// The number of threads that are submitting a job at the moment.
    private let entering = Atomic<Int>(0)
    /// When the loop last turned, in monotonic nanoseconds; for the watchdog.
    private let lastTurn = Atomic<Int64>(0)

    /// The maximum number of messages in one commit; further ones wait for the next.
    static let maxMessagesPerCommit = 8192
    /// After this time, a transaction gets no more jobs: those that were applied are committed first.
    static let longestTransaction = Duration.milliseconds(100)

    init(on threads: any Threads) { self.threads = threads }

    func start(on outbox: Outbox) throws(SystemLimitError) {
        turned(at: outbox.time.instant)
        let started = try threads.start(WriterLoop(outbox: outbox, inbox: inbox))
        running.withLock { $0 = started }
    }

    /// Stores all of `messages` or none. `completion` is called once the commit is on disk
    /// (`synchronous=FULL`: a power cut costs nothing that was completed).
    func append(
        _ messages: [NewMessage], recording record: RequestRecord? = nil,
        completion: @escaping @Sendable (Result<AppendReceipt, AppendError>) -> Void
    ) {
        if !put(.append(messages, record, completion)) { completion(.failure(.store(.closed))) }
    }

    /// Runs `body` in the next transaction; its changes are committed together with those of other jobs. Then
    /// `completion` gets what `body` returned. If the transaction fails, `body` may run again in another one.
    func change<Value: Sendable>(
        _ body: @escaping @Sendable (Transaction) throws -> Value,
        completion: @escaping @Sendable (Result<Value, StoreError>) -> Void = { _ in }
    ) {
        let job = Job.change { transaction in
            let value = try body(transaction)
            return { completion(.success(value)) }
        } failed: {
            completion(.failure($0))
        }
        if !put(job) { completion(.failure(.closed)) }
    }

    var hasClosed: Bool { isClosed.load(ordering: .sequentiallyConsistent) }

    private func put(_ job: Job) -> Bool {
        entering.wrappingAdd(1, ordering: .sequentiallyConsistent)
        defer { entering.wrappingSubtract(1, ordering: .sequentiallyConsistent) }
        guard !isClosed.load(ordering: .sequentiallyConsistent) else { return false }
        inbox.put(job)
        return true
    }

    /// Runs `body` in the next transaction and waits until it is committed. Not for the writer's own thread. `follow` runs
    /// on that thread after the commit, before the next transaction.
    func changeNow<Value: Sendable>(
        _ body: @escaping @Sendable (Transaction) throws -> Value, then follow: @escaping @Sendable () -> Void = {}
    ) throws(StoreError) -> Value {
        let done = Inbox<Result<Value, StoreError>>()
        change(body) { result in
            if case .success = result { follow() }
            done.put(result)
        }
        guard let result = threads.take(from: done).first else { throw .closed }
        return try result.get()
    }

    /// Commits what was submitted before, then ends the thread. Later jobs fail with `.closed`. Returns false if it was
    /// stopped already.
    func stop() -> Bool {
        guard !isClosed.exchange(true, ordering: .sequentiallyConsistent) else { return false }
        // Every thread that saw the writer open has enqueued its job before `.stop`.
        while entering.load(ordering: .sequentiallyConsistent) > 0 { sched_yield() }
        inbox.put(.stop)
        running.withLock { $0.take() }?.join()
        return true
    }

    func turned(at instant: MonotonicInstant) { lastTurn.store(instant.nanoseconds, ordering: .relaxed) }

    /// How long ago the loop last turned; more than a few seconds means that it hangs.
    func sinceLastTurn(at instant: MonotonicInstant) -> Duration {
        instant - MonotonicInstant(nanoseconds: lastTurn.load(ordering: .relaxed))
    }
}

/// The part of the writer that runs on its thread: commits the submitted jobs, and does a little maintenance every
/// second.
final class WriterLoop: Loop, @unchecked Sendable {
    // @unchecked: everything below `MARK: State` belongs to the thread that turns.
    let name = "postern-writer"
    let outbox: Outbox
    private let inbox: Inbox<OutboxWriter.Job>

    // MARK: State
    let sql: SQL
    let checkpoints: Checkpoints
    private let accounts: UpstreamWriteStates
    /// The number of bytes of the file whose blocks are allocated.
    var allocated: Int
    private var sequence: Int64
    /// False while a job is retried without its events, because the disk has no room for both.
    var mayStoreCallbacks = true
    private let maintenance: Maintenance
    /// The time by the loop's clock, which may differ from the store's time.
    private var nextMaintenance = MonotonicInstant.distantFuture
    private var hasMoreMaintenance = false
    private var isStopping = false

    init(outbox: Outbox, inbox: Inbox<OutboxWriter.Job>) {
        self.outbox = outbox
        self.inbox = inbox
        sql = outbox.sql
        checkpoints = Checkpoints(of: outbox.logIndex)
        allocated = outbox.lock.descriptor.size
        accounts = UpstreamWriteStates(outbox.ledgers)
        sequence = outbox.firstSequence
        maintenance = Maintenance(outbox: outbox)
    }

    // What was handed in refers to the store, and the store to it.
    deinit { _ = inbox.takeAll() }

    /// The least time between two warnings about the same upstream.
    private static let callbackWarningInterval = Duration.seconds(60)

    private var instant: MonotonicInstant { outbox.threads.instant }
    private var idleInterval: Duration { outbox.threads.idleTime(Maintenance.interval) }

    func begin() {
        nextMaintenance = instant + idleInterval
        checkpoints.install(on: sql)
        if outbox.isFull { releasePages() } else { takePages() }
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
        return nextMaintenance
    }

    func wait(until deadline: MonotonicInstant) -> Bool { inbox.wait(until: deadline) }

    private func end() -> MonotonicInstant? {
        commitAll(inbox.takeAll())
        checkpoints.remove(from: sql)
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
            case .append(let new, _, let completion):
                guard !outbox.isFull || mayMakeRoom(for: new) else {
                    completion(.failure(.store(.full(detail: "the disk is full; deliveries go on"))))
                    continue
                }
                messages += new.count
            case .change: break
            case .stop:
                isStopping = true
                continue
            }
            portion.append(job)
        }
        return portion
    }

    /// Returns true if there is more to do.
    private func runMaintenance() -> Bool {
        hasMoreMaintenance = false
        outbox.checkThatFilesAreInPlace()
        if outbox.health.condition == .failed { checkAfterFailure() }
        let job = OutboxWriter.Job.change { [self] transaction in
            hasMoreMaintenance = try maintenance.run(in: transaction)
            return { [maintenance] in maintenance.didCommit() }
        } failed: { _ in
        }
        commit([job])
        if outbox.isFull {
            checkpoint(.restart)
            if outbox.checkForSpace() { takePages() }
        }
        return hasMoreMaintenance
    }

    // MARK: One commit

    func commit(_ jobs: [OutboxWriter.Job]) {
        var rest = jobs[...]
        while !rest.isEmpty { rest = rest.dropFirst(commitSome(rest)) }
    }

    /// Commits the first jobs, as many as a transaction has time for, and returns their number.
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
            try sql.transaction(.write) {
                let current = Transaction(
                    sql: sql, outbox: outbox, accounts: accounts, sequence: sequence,
                    mayStoreCallbacks: mayStoreCallbacks)
                transaction = current
                for job in jobs {
                    count += 1
                    effects.append(try perform(job, in: current))
                    if outbox.time.instant - began >= OutboxWriter.longestTransaction { break }
                }
                try current.finish()
                try allocatePages()
            }
        } catch {
            accounts.open.forEach { $0.didRollBack() }
            transaction?.doneRemoving(isCommitted: false)
            recover(Array(jobs.prefix(count)), from: error)
            return count
        }
        guard let transaction else { return count }
        publish(transaction, since: start)
        for effect in effects { effect.happen() }
        let isQuiet = count == jobs.count && inbox.isEmpty
        if checkpoints.isDue(isQuiet: isQuiet, isFull: outbox.isFull) {
            checkpoint(outbox.isFull ? .restart : .passive)
        }
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
        case .append(let messages, let record, let completion):
            let result = try transaction.append(messages, recording: record, isDiskFull: outbox.isFull)
            return .appended(result, completion)
        case .change(let body, _): return .changed(try body(transaction))
        case .stop: return .changed {}
        }
    }

    private func publish(_ transaction: Transaction, since start: MonotonicInstant) {
        sequence = transaction.sequence
        let changed = accounts.open.filter(\.isChanged)
        accounts.open.forEach { $0.didCommit() }
        for (kind, number) in transaction.newKinds { outbox.kinds.learn(kind, number: number) }
        outbox.publish(changed)
        outbox.metrics.commitDuration.observe((instant - start).inSeconds)
        transaction.doneRemoving(isCommitted: true)
        for (number, moment) in transaction.lanesDue { outbox.queues.adopted(number)?.announceDue(at: moment) }
        var accepted = 0
        for account in changed {
            guard let arrival = account.arrival else { continue }
            accepted += arrival.messages
            outbox.queues.adopted(account.number)?.arrived(arrival, at: outbox.time.instant)
        }
        if accepted > 0 { outbox.metrics.commitMessages.observe(Double(accepted)) }
        for count in transaction.callbackCounts { show(count) }
        outbox.emit(transaction.events)
        outbox.announce(transaction.notices)
    }

    private func show(_ count: CallbackCount) {
        let (name, account) = (count.callback.queue.name, accounts[count.callback.queue.number])
        outbox.metrics.accepted("\(name)", "\(count.callback.kind)").add(count.accepted)
        guard count.dropped > 0, instant >= account.nextCallbackWarning else { return }
        account.nextCallbackWarning = instant + Self.callbackWarningInterval
        outbox.logger.warning(
            "callbacks dropped; the queue of their upstream is full",
            metadata: ["upstream": "\(name)", "messages": .stringConvertible(count.dropped)])
    }

    /// Whether all of their queues drop the oldest messages if they are full.
    func mayMakeRoom(for messages: [NewMessage]) -> Bool {
        messages.allSatisfy { $0.queue.cap.whenFull == .dropOldest }
    }
}
