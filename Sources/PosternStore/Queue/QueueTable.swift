import PosternCore
import Synchronization

/// The queues of one run, by number: all of them, and those that this process has adopted.
final class QueueTable: Sendable {
    private let queues = Mutex<(targets: [UpstreamNumber: QueueTarget], adopted: [UpstreamNumber: UpstreamQueue])>(
        ([:], [:]))

    func target(_ number: UpstreamNumber) -> QueueTarget? { queues.withLock { $0.targets[number] } }
    func adopted(_ number: UpstreamNumber) -> UpstreamQueue? { queues.withLock { $0.adopted[number] } }

    /// The number of those that this process has adopted.
    var adoptedCount: Int { queues.withLock { $0.adopted.count } }

    func register(_ target: QueueTarget) { queues.withLock { $0.targets[target.number] = target } }

    func adopt(_ queue: UpstreamQueue) {
        queues.withLock { queues in
            precondition(queues.adopted[queue.number] == nil, "a queue has one owner")
            queues.adopted[queue.number] = queue
        }
    }

    func drop(_ queue: UpstreamQueue) {
        queues.withLock { queues in
            if queues.adopted[queue.number] === queue { queues.adopted[queue.number] = nil }
        }
    }
}
