import PosternConformance
import PosternCore
import PosternSimulatorKit
import PosternTestKit

@testable import AppServicesSimulator

/// A simulator with a clock of its own, and what it said.
final class AppServicesClient: SimulatorClient {
    let time = ManualTime()
    let simulator: AppServicesSimulator
    private(set) var violations: [String] = []
    /// Texts of the items, in order.
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

    /// Sends them all; the statuses.
    @discardableResult func statuses(_ requests: SimulatedRequest...) -> [Int] { requests.map { send($0).status } }

    /// What the next request is told off for.
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
