import Foundation
import Logging
import PosternCore
import PosternHTTP
import PosternStore

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

extension Gateway {
    /// Replies with what `body` makes of the store.
    func read(
        _ reply: Reply, isQuick: Bool = false, _ body: @escaping @Sendable () throws(StoreError) -> HTTPResponse
    ) {
        let work: @Sendable () -> Void = { [logger] in
            do throws(StoreError) {
                reply.send(try body())
            } catch {
                logger.error("cannot read the store", metadata: ["error": "\(error)"])
                reply.send(Problem(slug: .internal, status: 500, detail: "The store cannot be read; the log says why."))
            }
        }
        if isQuick { readers.runSoon(work) } else { readers.run(work) }
    }
}
