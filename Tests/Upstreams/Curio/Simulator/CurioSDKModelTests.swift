import CurioScenarios
import PosternScenarios
import PosternTestKit
import Testing

@testable import CurioSimulator

/// The model of Curio's SDKs that the simulated world has, in front of their platform.
@Suite struct CurioSDKModelTests {
    @Test(arguments: 1...12 as ClosedRange<UInt64>) func actions_arrive_howeverOftenAnswersAreLost(seed: UInt64) {
        let time = ManualTime()
        let model = CurioSDKModel(SDKDevice(0, seed: seed), isAtPlatform: true)
        var run = PlatformRun(of: "curio", model, on: CurioSimulator(seed: seed, time: time), seed: seed)
        run.play { span in
            time.advance(by: span)
            return time.now
        }
        #expect(run.unexpected == [])
        #expect(run.model.isEmpty)
        #expect(!run.accepted.isEmpty && run.accepted.isSubset(of: run.taken.keys))
    }
}
