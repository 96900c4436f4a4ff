/// Runs tasks one at a time, on a thread outside the cooperative pool.
///
/// The pool has as many threads as there are cores, and any code that blocks one of them would hold up the tasks that
/// answer requests. A task's own work must be short: parsing an answer, no I/O.
public final class SerialTaskExecutor: TaskExecutor {
    private let thread: BlockingExecutor

    public init(name: String, on threads: any Threads) throws(SystemLimitError) {
        thread = try BlockingExecutor(name: name, atATime: 1, on: threads)
    }

    /// Ends the thread once the tasks that can continue now have done so.
    public func stop() { thread.stop() }

    public func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        thread.run { [self] in job.runSynchronously(on: asUnownedTaskExecutor()) }
    }
}
