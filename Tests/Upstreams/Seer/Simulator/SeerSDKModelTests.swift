import PosternScenarios
import PosternTestKit
import SeerScenarios
import Testing

@testable import SeerSimulator

/// The model of Seer's SDK that the simulated world has, in front of its platform.
@Suite struct SeerSDKModelTests {
    @Test(arguments: 1...12 as ClosedRange<UInt64>) func reports_arrive_howeverOftenAnswersAreLost(seed: UInt64) {
        let time = ManualTime()
        var run = PlatformRun(
            of: "seer", SeerSDKModel(SDKDevice(0, seed: seed)), on: SeerSimulator(time: time), seed: seed)
        run.play { span in
            time.advance(by: span)
            return time.now
        }
        #expect(run.unexpected == [])
        #expect(run.model.isEmpty)
        #expect(!run.accepted.isEmpty && run.accepted.isSubset(of: run.taken.keys))
        // What fails at once is queued, unless it is an instrumentation.
        let lost = run.reported.filter { run.taken[$0.number] == nil }
        #expect(lost.allSatisfy { $0.kind == "instrumentation" })
    }
}
