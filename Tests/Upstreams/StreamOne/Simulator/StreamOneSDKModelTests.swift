import PosternScenarios
import PosternTestKit
import StreamOneScenarios
import Testing

@testable import StreamOneSimulator

/// The model of StreamOne's SDK that the simulated world has, in front of its platform.
@Suite struct StreamOneSDKModelTests {
    @Test(arguments: 1...12 as ClosedRange<UInt64>) func calls_areMadeOnce_andAnsweredByThePlatform(seed: UInt64) {
        let time = ManualTime()
        var run = PlatformRun(
            of: "streamone", StreamOneSDKModel(SDKDevice(0, seed: seed)), on: StreamOneSimulator(time: time), seed: seed
        )
        run.play { span in
            time.advance(by: span)
            return time.now
        }
        #expect(run.unexpected == [])
        #expect(run.model.isEmpty)
        #expect(!run.accepted.isEmpty && run.accepted.isSubset(of: run.taken.keys))
        #expect(run.taken.values.allSatisfy { $0 == 1 })
    }
}
