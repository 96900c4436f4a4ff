import PosternScenarios
import PosternTestKit
import SamsaraScenarios
import Testing

@testable import SamsaraSimulator

/// The model of Samsara's clients that the simulated world has, in front of their platform.
@Suite struct SamsaraSDKModelTests {
    @Test(arguments: 1...12 as ClosedRange<UInt64>) func events_arrive_howeverOftenAnswersAreLost(seed: UInt64) {
        let time = ManualTime()
        var run = PlatformRun(
            of: "samsara", SamsaraSDKModel(SDKDevice(0, seed: seed)), on: SamsaraSimulator(), seed: seed)
        run.play { span in
            time.advance(by: span)
            return time.now
        }
        #expect(run.unexpected == [])
        #expect(run.model.isEmpty)
        #expect(!run.accepted.isEmpty && run.accepted.isSubset(of: run.taken.keys))
    }
}
