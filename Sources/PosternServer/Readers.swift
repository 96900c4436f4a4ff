import Foundation

/// Threads for what reads the store: a read blocks, and the threads that serve connections must not.
final class Readers: Sendable {
    private let queue = OperationQueue()

    init() {
        queue.name = "postern-reads"
        queue.maxConcurrentOperationCount = 3
    }

    func run(_ work: @escaping @Sendable () -> Void) { queue.addOperation(work) }

    /// Before all reads that wait; for the quick ones that machines ask for.
    func runSoon(_ work: @escaping @Sendable () -> Void) {
        let operation = BlockOperation(block: work)
        operation.queuePriority = .veryHigh
        queue.addOperation(operation)
    }
}
