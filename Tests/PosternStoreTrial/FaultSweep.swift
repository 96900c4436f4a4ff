import PosternCore
import PosternSimulatedDisk

/// A story of a store, and the same again with a fault at one place after the other: the store takes messages, hands them out
/// and settles them, cancels, purges, checkpoints, backs up, stops, is killed, loses its power, and starts again. After each start,
/// and in the end, what it has is compared with what it has said.
package struct FaultSweep: Sendable {
    /// What became of one case.
    package struct Outcome: Sendable {
        /// Messages that were acknowledged, and of those that were not there after a start.
        package let acknowledged, lost: Int
        /// Messages that were refused, and such that were handed out a second time because the outcome of the first was not
        /// recorded.
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

    /// The number of single faults.
    package var count: Int { calls.reduce(0) { $0 + $1.count * PlannedFault.Kind.all(of: $1.call).count } }

    /// One of each class, at a place in the middle of the story.
    package var oneOfEach: [PlannedFault] {
        calls.filter { $0.count > 0 }.flatMap { call, count in
            PlannedFault.Kind.all(of: call).map { PlannedFault($0, call, count / 2) }
        }
    }

    /// - Parameter number: Less than `count`.
    package func fault(_ number: Int) -> PlannedFault {
        var rest = number
        for (call, count) in calls {
            for kind in PlannedFault.Kind.all(of: call) {
                if rest < count { return PlannedFault(kind, call, rest) }
                rest -= count
            }
        }
        preconditionFailure("there are \(count) faults")
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
