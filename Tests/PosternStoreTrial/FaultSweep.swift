import PosternCore
import PosternSimulatedDisk

/// Runs a story of a store repeatedly, each time with a fault at another call. In a story, the store accepts messages, which are
/// claimed, settled, retried, cancelled, and purged; it checkpoints, is backed up, is restored from a backup, has its queue dropped
/// and adopted, is upgraded from an earlier format, stops, is killed, loses its power, and starts again. After each start and at
/// the end, its contents are compared with what it has reported.
package struct FaultSweep: Sendable {
    /// The result of one case.
    package struct Outcome: Sendable {
        /// The number of messages that were acknowledged, and how many of those were missing after a start.
        package let acknowledged, lost: Int
        /// The number of messages that were refused, and of those that were claimed again because the outcome of an earlier
        /// attempt was not recorded.
        package let refused, repeated: Int
        package let recoveries: [Duration]
        /// The broken promise, with the last steps.
        package let breach: String?
    }

    package let story: UInt64
    private let leavesOutSyncs: Bool
    /// How often the story calls the disk.
    private let calls: [(call: DiskCall, count: Int)]

    /// - Parameter leavesOutSyncs: The disk says that it has synced, and has not. A test uses it to see that a loss is found.
    package init(story: UInt64, leavesOutSyncs: Bool = false) throws {
        (self.story, self.leavesOutSyncs) = (story, leavesOutSyncs)
        let trial = StoreTrial(story: story, [])
        try trial.run()
        calls = DiskCall.allCases.map { ($0, trial.disk.calls(of: $0)) }
    }

    /// The number of single faults of the disk.
    package var count: Int { number(of: { $0 != .memory }) }
    /// The number of those in which SQLite gets no memory. They follow those of the disk.
    package var memoryCount: Int { number(of: { $0 == .memory }) }

    private func number(of isCounted: (DiskCall) -> Bool) -> Int {
        calls.reduce(0) { $0 + (isCounted($1.call) ? $1.count * PlannedFault.Kind.all(of: $1.call).count : 0) }
    }

    /// One of each class, at a place in the middle of the story.
    package var oneOfEach: [PlannedFault] {
        calls.filter { $0.count > 0 }.flatMap { call, count in
            PlannedFault.Kind.all(of: call).map { PlannedFault($0, call, count / 2) }
        }
    }

    /// - Parameter number: Less than `count + memoryCount`.
    package func fault(_ number: Int) -> PlannedFault {
        var rest = number
        for (call, count) in calls {
            for kind in PlannedFault.Kind.all(of: call) {
                if rest < count { return PlannedFault(kind, call, rest) }
                rest -= count
            }
        }
        preconditionFailure("there are \(count + memoryCount) faults")
    }

    package func outcome(of faults: [PlannedFault]) -> Outcome {
        let trial = StoreTrial(story: story, faults)
        if leavesOutSyncs { trial.disk.faults.secretlyLyingSyncs = 1 }
        var breach: String?
        do {
            try trial.run()
        } catch {
            breach = "\(error)"
        }
        return Outcome(
            acknowledged: trial.accepted, lost: trial.book.lost, refused: trial.refused, repeated: trial.repeated,
            recoveries: trial.recoveries, breach: breach)
    }
}
