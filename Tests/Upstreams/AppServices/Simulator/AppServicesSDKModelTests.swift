import AppServicesScenarios
import PosternScenarios
import PosternSimulatorKit
import PosternTestKit
import Testing

@testable import AppServicesSimulator

/// The model of AppServices' SDK that the simulated world has, in front of its platform.
@Suite struct AppServicesSDKModelTests {
    @Test(arguments: 1...12 as ClosedRange<UInt64>) func callsLeaveThePlatform_asTheyShould(seed: UInt64) {
        let time = ManualTime()
        let simulator = AppServicesSimulator(time: time, seed: seed)
        let model = AppServicesSDKModel(SDKDevice(0, seed: seed), isAtPlatform: true)
        var run = PlatformRun(of: "appservices", model, on: simulator, seed: seed)
        run.play { span in
            time.advance(by: span)
            return time.now
        }
        #expect(run.unexpected == [])
        #expect(run.model.isEmpty)
        // What is taken of a crash is shown by its file.
        let crashes = run.reported.filter { $0.kind == "crash" }.map(\.number)
        #expect(!run.accepted.isEmpty && run.accepted.subtracting(crashes).isSubset(of: run.taken.keys))
        let state = simulator.control(SimulatedRequest(method: "GET", path: "/control/state"))
        #expect(run.model.mismatch(with: String(decoding: state?.body ?? [], as: UTF8.self)) == nil)
    }
}
