import PosternCore
import PosternThreads
import PosternUpstream
import Synchronization

/// The status that a worker's loop publishes to other threads.
final class WorkerStatus: Sendable {
    private let latest = Mutex(UpstreamSnapshot())
    private let unsettled = Atomic<Int>(0)
    private let hasStopped = Atomic<Bool>(false)
    private let lastTurn: Atomic<Int64>
    private let changes = Inbox<Void>()

    init(at instant: MonotonicInstant) { lastTurn = Atomic(instant.nanoseconds) }

    var snapshot: UpstreamSnapshot { latest.withLock { $0 } }
    func show(_ snapshot: UpstreamSnapshot) { latest.withLock { $0 = snapshot } }

    func turned(at instant: MonotonicInstant) { lastTurn.store(instant.nanoseconds, ordering: .relaxed) }

    func sinceLastTurn(at instant: MonotonicInstant) -> Duration {
        instant - MonotonicInstant(nanoseconds: lastTurn.load(ordering: .relaxed))
    }

    /// Batches whose result is not on disk yet.
    var unsettledBatches: Int { unsettled.load(ordering: .acquiring) }

    func show(unsettled count: Int) {
        if unsettled.exchange(count, ordering: .acquiringAndReleasing) > 0, count == 0 { changes.nudge() }
    }

    /// Reports that the loop no longer claims.
    func showStop() {
        hasStopped.store(true, ordering: .releasing)
        changes.nudge()
    }

    /// Whether the loop has stopped claiming and nothing is in flight.
    var isIdle: Bool { hasStopped.load(ordering: .acquiring) && unsettledBatches == 0 }

    /// Waits until the loop has stopped claiming and nothing is in flight. Only one thread may call this.
    func waitUntilIdle(deadline: MonotonicInstant, time: some TimeSource, on threads: any Threads) {
        while !isIdle, time.instant < deadline {
            _ = threads.take(from: changes, until: deadline)
        }
    }
}
