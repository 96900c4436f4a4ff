import PosternSimulatedDisk
import PosternStoreTrial
import Testing

/// A few of the faults that `make faults` goes through.
@Suite struct FaultSweepTests {
    @Test(arguments: 1...3 as ClosedRange<UInt64>) func faultOfEachClass_breaksNoPromise(story: UInt64) throws {
        let sweep = try FaultSweep(story: story)
        for fault in sweep.oneOfEach {
            let outcome = sweep.outcome(of: [fault])
            #expect(outcome.breach == nil, "\(fault)")
            #expect(outcome.lost == 0, "\(fault)")
        }
    }

    /// That a sweep finds nothing says something only if it finds what is lost.
    @Test func lossByMissingSyncs_isCounted() throws {
        let sweep = try FaultSweep(story: 1, leavesOutSyncs: true)
        let outcomes = (1...20).map { sweep.outcome(of: [PlannedFault(.powerCut, .write, $0 * 10)]) }
        #expect(outcomes.contains { $0.breach != nil && $0.lost > 0 })
    }

    @Test func faults_areNumberedByPlace() throws {
        let sweep = try FaultSweep(story: 1)
        #expect(sweep.fault(0) == PlannedFault(.ioError, .open, 0))
        #expect(sweep.fault(sweep.count - 1).call == .status)
        #expect(sweep.count > 1000)
    }
}
