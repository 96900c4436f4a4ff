import Glibc
import PosternCore
import PosternThreads
import Synchronization

/// The only code that writes to the store: a thread that collects the submitted jobs and commits them together.
///
/// While one commit waits for the disk, the jobs of the next one are collected, so each costs a fraction of an fsync.
/// Any thread may submit jobs; completions run on the writer's thread after the commit and must be quick.
final class OutboxWriter: Sendable {
    enum Job: Sendable {
        case append(
            [NewMessage], RequestRecord?, Admission?, @Sendable (Result<AppendReceipt, AppendError>) -> Void)
        /// The body returns what to do after its changes are committed.
        case change(@Sendable (Transaction) throws -> @Sendable () -> Void, failed: @Sendable (StoreError) -> Void)
        /// Done between commits.
        case overwriteUnused(OverwriteRounds.Completion)
        case stop

        /// The messages that it stores, unless a `change` does.
        var messageCount: Int { if case .append(let messages, _, _, _) = self { messages.count } else { 0 } }
    }

    private let inbox = Inbox<Job>()
    private let threads: any Threads
    private let running = Mutex<(any RunningLoop)?>(nil)
    private let isClosed = Atomic<Bool>(false)
    private let health: StoreHealth
    private let deadlines: AnswerDeadlines?
    /// The number of threads that are submitting a job at the moment.
    private let entering = Atomic<Int>(0)
    /// When the loop last turned, in monotonic nanoseconds; for the watchdog.
    private let lastTurn = Atomic<Int64>(0)

    /// The maximum number of messages in one commit; further ones wait for the next.
    static let maxMessagesPerCommit = 8192
    /// After this time, a transaction gets no more jobs: those that were applied are committed first.
    static let longestTransaction = Duration.milliseconds(100)

    /// - Parameter timeout: How long an append waits for its commit at most.
    init(on threads: any Threads, health: StoreHealth, answeringWithin timeout: Duration?) {
        self.threads = threads
        self.health = health
        deadlines = timeout.map { AnswerDeadlines(after: $0, by: threads) }
    }

    func start(on outbox: Outbox) throws(SystemLimitError) {
        turned(at: outbox.time.instant)
        let loop = CommitLoop(outbox: outbox, inbox: inbox, writer: outbox.engine.makeWriter())
        try deadlines?.start()
        let started = try threads.start(loop)
        running.withLock { $0 = started }
    }

    /// Stores all of `messages` or none. `completion` is called once the commit is on disk
    /// (`synchronous=FULL`: a power cut costs nothing that was completed).
    func append(
        _ messages: [NewMessage], recording record: RequestRecord? = nil, after admission: Admission? = nil,
        completion: @escaping @Sendable (Result<AppendReceipt, AppendError>) -> Void
    ) {
        let completion = deadlines?.add(completion) { .store($0) } ?? completion
        if let error = put(.append(messages, record, admission, completion)) { completion(.failure(.store(error))) }
    }

    /// Runs `body` in the next transaction; its changes are committed together with those of other jobs. Then
    /// `completion` gets what `body` returned. If the transaction fails, `body` may run again in another one.
    ///
    /// - Parameter inTime: Whether it is answered in time, as an append.
    func change<Value: Sendable>(
        inTime: Bool = false, _ body: @escaping @Sendable (Transaction) throws -> Value,
        completion: @escaping @Sendable (Result<Value, StoreError>) -> Void = { _ in }
    ) {
        let completion = inTime ? deadlines?.add(completion) { $0 } ?? completion : completion
        let job = Job.change { transaction in
            let value = try body(transaction)
            return { completion(.success(value)) }
        } failed: {
            completion(.failure($0))
        }
        if let error = put(job) { completion(.failure(error)) }
    }

    /// Overwrites in the medium what deletions before this have left.
    func overwriteUnused(_ completion: @escaping OverwriteRounds.Completion) {
        if let error = put(.overwriteUnused(completion)) { completion(.failure(error)) }
    }

    var hasClosed: Bool { isClosed.load(ordering: .sequentiallyConsistent) }

    /// Returns why the job is refused. While the database cannot be reached, the loop waits for it, and nothing else gets
    /// in line.
    private func put(_ job: Job) -> StoreError? {
        entering.wrappingAdd(1, ordering: .sequentiallyConsistent)
        defer { entering.wrappingSubtract(1, ordering: .sequentiallyConsistent) }
        guard !isClosed.load(ordering: .sequentiallyConsistent) else { return .closed }
        if health.condition == .unavailable, let refusal = health.refusal { return refusal }
        inbox.put(job)
        return nil
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
        deadlines?.stop()
        return true
    }

    func turned(at instant: MonotonicInstant) { lastTurn.store(instant.nanoseconds, ordering: .relaxed) }

    /// How long ago the loop last turned; more than a few seconds means that it hangs.
    func sinceLastTurn(at instant: MonotonicInstant) -> Duration {
        instant - MonotonicInstant(nanoseconds: lastTurn.load(ordering: .relaxed))
    }
}
