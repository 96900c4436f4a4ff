import GRDB
import Logging
public import PosternCore
import PosternMetrics
import Synchronization

/// The one place that writes to the store: a thread that gathers what has come in and commits it together.
///
/// While one commit waits for the disk the next one gathers, so a promise costs a fraction of an fsync. Any thread may
/// hand in work; completions run on the writer's thread after the commit and must be quick.
public final class OutboxWriter: Sendable {
    enum Job: Sendable {
        case append([NewMessage], @Sendable (Result<AppendReceipt, AppendRefusal>) -> Void)
        case change(@Sendable (Transaction) throws -> Void, @Sendable (Result<Void, StoreError>) -> Void)
        case stop
    }

    private let inbox = Inbox<Job>()
    private let thread = Mutex<OwnThread?>(nil)
    private let isClosed = Atomic<Bool>(false)
    /// When the loop last showed signs of life, in monotonic nanoseconds; for the watchdog.
    private let lastTurn = Atomic<Int64>(0)

    /// Messages of one commit; what is over that waits for the next.
    static let maxMessagesPerCommit = 8192

    init() {}

    func start(on outbox: Outbox) {
        lastTurn.store(outbox.time.instant.nanoseconds, ordering: .relaxed)
        thread.withLock { thread in
            thread = OwnThread(name: "postern-writer") { [self] in
                WriterLoop(outbox: outbox, inbox: inbox, lastTurn: { self.lastTurn.store($0, ordering: .relaxed) })
                    .run()
            }
        }
    }

    /// Stores all of `messages` or none. `completion` is called once the commit is on disk
    /// (`synchronous=FULL`: a power cut costs nothing that was completed).
    public func append(
        _ messages: [NewMessage], completion: @escaping @Sendable (Result<AppendReceipt, AppendRefusal>) -> Void
    ) {
        guard !isClosed.load(ordering: .acquiring) else { return completion(.failure(.closed)) }
        inbox.put(.append(messages, completion))
    }

    /// Runs `body` in the next transaction; its changes and those of its neighbours are committed together.
    public func change(
        _ body: @escaping @Sendable (Transaction) throws -> Void,
        completion: @escaping @Sendable (Result<Void, StoreError>) -> Void = { _ in }
    ) {
        guard !isClosed.load(ordering: .acquiring) else { return completion(.failure(.closed)) }
        inbox.put(.change(body, completion))
    }

    /// Commits what was handed in before, then ends the thread. What comes later is answered `.closed`.
    func stop() {
        guard !isClosed.exchange(true, ordering: .acquiringAndReleasing) else { return }
        inbox.put(.stop)
        thread.withLock { $0 }?.join()
    }

    /// How long ago the loop last turned; more than a few seconds means that it hangs.
    public func sinceLastTurn(at instant: MonotonicInstant) -> Duration {
        instant - MonotonicInstant(nanoseconds: lastTurn.load(ordering: .relaxed))
    }
}

/// The writer's thread from the inside.
private final class WriterLoop {
    private let outbox: Outbox
    private let inbox: Inbox<OutboxWriter.Job>
    private let showLife: (Int64) -> Void
    private let statements = WriterStatements()
    private var ledgers: [UpstreamNumber: Ledger]
    private var sequence: Int64
    private var upkeep: Upkeep
    private var isStopping = false

    init(outbox: Outbox, inbox: Inbox<OutboxWriter.Job>, lastTurn: @escaping (Int64) -> Void) {
        self.outbox = outbox
        self.inbox = inbox
        showLife = lastTurn
        ledgers = outbox.ledgers
        sequence = outbox.firstSequence
        upkeep = Upkeep(outbox: outbox)
    }

    func run() {
        var nextUpkeep = outbox.time.instant + Upkeep.interval
        while !isStopping {
            let jobs = inbox.takeAll(waitingUntil: nextUpkeep)
            showLife(outbox.time.instant.nanoseconds)
            commitAll(jobs)
            if outbox.time.instant >= nextUpkeep {
                keepUp()
                nextUpkeep = outbox.time.instant + Upkeep.interval
            }
        }
        commitAll(inbox.takeAll())
    }

    /// Commits in portions, so that one flood does not keep the first of it waiting.
    private func commitAll(_ jobs: [OutboxWriter.Job]) {
        var portion: [OutboxWriter.Job] = []
        var messages = 0
        for job in jobs {
            switch job {
            case .append(let new, let completion):
                guard !outbox.isFull else {
                    completion(.failure(.diskFull(detail: "the disk is full; deliveries go on")))
                    continue
                }
                messages += new.count
            case .change: break
            case .stop:
                isStopping = true
                continue
            }
            portion.append(job)
            if messages >= OutboxWriter.maxMessagesPerCommit {
                commit(portion)
                portion = []
                messages = 0
            }
        }
        if !portion.isEmpty { commit(portion) }
    }

    private func keepUp() {
        commit([.change({ [upkeep] transaction in try upkeep.run(in: transaction) }, { _ in })])
        upkeep.afterCommit()
    }

    // MARK: One commit

    private func commit(_ jobs: [OutboxWriter.Job]) {
        let start = outbox.time.instant
        var effects: [() -> Void] = []
        var transaction: Transaction?
        do {
            try outbox.pool.writeWithoutTransaction { db in
                try db.inTransaction(.immediate) {
                    let current = Transaction(
                        db: db, outbox: outbox, statements: statements, ledgers: ledgers, sequence: sequence)
                    transaction = current
                    for job in jobs { effects.append(try perform(job, in: current)) }
                    try current.finish()
                    return .commit
                }
            }
        } catch {
            transaction?.removals.forEach { $0.queue.doneRemoving($0.ids) }
            recover(jobs, from: StoreError(error, path: outbox.path))
            return
        }
        guard let transaction else { return }
        publish(transaction, since: start)
        for effect in effects { effect() }
    }

    /// Does one job inside the transaction and answers what to do once it is committed.
    private func perform(_ job: OutboxWriter.Job, in transaction: Transaction) throws -> () -> Void {
        switch job {
        case .append(let messages, let completion):
            let result = try append(messages, in: transaction)
            return { completion(result) }
        case .change(let body, let completion):
            try body(transaction)
            return { completion(.success(())) }
        case .stop: return {}
        }
    }

    /// An upstream may refuse a message after others of the same request are in: those go out again.
    private func append(
        _ messages: [NewMessage], in transaction: Transaction
    ) throws -> Result<AppendReceipt, AppendRefusal> {
        guard messages.contains(where: { $0.queue.upstream.acceptsByState }) else {
            return try transaction.append(messages)
        }
        let mark = transaction.mark
        var result: Result<AppendReceipt, AppendRefusal> = .failure(.closed)
        try transaction.db.inSavepoint {
            result = try transaction.append(messages)
            if case .failure = result {
                transaction.restore(mark)
                return .rollback
            }
            return .commit
        }
        return result
    }

    private func publish(_ transaction: Transaction, since start: MonotonicInstant) {
        ledgers = transaction.ledgers
        sequence = transaction.sequence
        outbox.publish(ledgers)
        let end = outbox.time.instant
        outbox.metrics.commitDuration.observe((end - start).inSeconds)
        transaction.removals.forEach { $0.queue.doneRemoving($0.ids) }
        var accepted = 0
        for arrival in transaction.arrivals.values {
            accepted += arrival.messages
            outbox.announce(arrival, at: end)
        }
        if accepted > 0 { outbox.metrics.commitMessages.observe(Double(accepted)) }
        outbox.announce(transaction.settled)
    }

    /// The transaction came to nothing. Without room, deliveries and deletions go on and messages are turned away;
    /// else each job is tried alone, so that only the one at fault fails.
    private func recover(_ jobs: [OutboxWriter.Job], from error: StoreError) {
        if error.isFull {
            outbox.becameFull(error)
            var changes: [OutboxWriter.Job] = []
            for job in jobs {
                switch job {
                case .append(_, let completion): completion(.failure(.diskFull(detail: "\(error)")))
                case .change: changes.append(job)
                case .stop: break
                }
            }
            guard changes.count < jobs.count else { return separate(changes, after: error) }
            if !changes.isEmpty { commit(changes) }
            return
        }
        separate(jobs, after: error)
    }

    private func separate(_ jobs: [OutboxWriter.Job], after error: StoreError) {
        guard jobs.count == 1 else {
            for job in jobs { commit([job]) }
            return
        }
        outbox.report(error)
        switch jobs[0] {
        case .append(_, let completion):
            completion(.failure(error.isFull ? .diskFull(detail: "\(error)") : .failed(detail: "\(error)")))
        case .change(_, let completion): completion(.failure(error))
        case .stop: break
        }
    }
}
