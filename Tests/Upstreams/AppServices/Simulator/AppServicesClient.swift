import PosternConformance
import PosternCore
import PosternSimulatorKit
import PosternTestKit

@testable import AppServicesSimulator

/// A client of a simulator with a clock of its own.
final class AppServicesClient: SimulatorClient {
    let time = ManualTime()
    let simulator: AppServicesSimulator
    private(set) var violations: [String] = []
    /// The texts of the items, in order.
    private(set) var received: [String] = []
    private(set) var identities: [UInt64] = []

    init(_ control: String = "", seed: UInt64 = 7) {
        simulator = AppServicesSimulator(time: time, seed: seed)
        if !control.isEmpty { self.control(control) }
    }

    @discardableResult func send(_ request: SimulatedRequest, poisons: [Faults.Poison] = []) -> SimulatedAnswer {
        let judged = simulator.judge(request, poisons: poisons)
        violations += judged.violations
        received += judged.texts
        identities += judged.items.identities
        return judged.answer ?? SimulatedAnswer(status: 0)
    }

    /// Sends all requests. Returns the statuses.
    @discardableResult func statuses(_ requests: SimulatedRequest...) -> [Int] { requests.map { send($0).status } }

    /// The violations that the simulator reports for the request.
    func violations(of request: SimulatedRequest) -> [String] { simulator.judge(request, poisons: []).violations }

    var state: String { control(at: "/control/state")?.text ?? "" }

    /// The register sequence of the specification's first user, with preferences.
    func register() {
        statuses(vector(1), vector(2), vector(3), vector(4))
    }
}

extension SimulatedAnswer {
    var usergridError: String? { json["error"].string }
}
