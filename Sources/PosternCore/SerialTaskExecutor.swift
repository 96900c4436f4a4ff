import Dispatch

/// Runs tasks one at a time, on a thread outside the cooperative pool.
///
/// The pool has as many threads as there are cores, and any code that blocks one of them would hold up the tasks that
/// answer requests. A task's own work must be short: parsing an answer, no I/O.
public final class SerialTaskExecutor: TaskExecutor {
    private let queue: DispatchQueue

    public init(name: String) { queue = DispatchQueue(label: name) }

    public func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        queue.async { job.runSynchronously(on: self.asUnownedTaskExecutor()) }
    }
}
