import PosternCore
import PosternSimulatorKit
import PosternTestKit

@testable import AppServicesSimulator

/// A simulator with a clock of its own, and what it said.
final class AppServicesFixture {
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
        received += judged.items.ranges.map { String(decoding: judged.items.text[$0], as: UTF8.self) }
        identities += judged.items.identities
        return judged.answer ?? SimulatedAnswer(status: 0)
    }

    /// Sends them all; the statuses.
    @discardableResult func statuses(_ requests: SimulatedRequest...) -> [Int] { requests.map { send($0).status } }

    /// What the next request is told off for.
    func violations(of request: SimulatedRequest) -> [String] { simulator.judge(request, poisons: []).violations }

    @discardableResult func control(_ text: String) -> (status: Int, text: String) {
        ask("/control", "POST", text)
    }

    func ask(_ path: String, _ method: String = "GET", _ body: String = "") -> (status: Int, text: String) {
        let request = SimulatedRequest(method: method, path: path, headers: [], body: Array(body.utf8))
        let answer = simulator.control(request)
        return (answer?.status ?? 0, answer?.bodyText ?? "")
    }

    var state: String { ask("/control/state").text }

    /// The register sequence of the specification's first user, with preferences.
    func register() {
        statuses(AppServicesVectors.v1, AppServicesVectors.v2, AppServicesVectors.v3, AppServicesVectors.v4)
    }
}

extension SimulatedAnswer {
    var bodyText: String { String(decoding: body, as: UTF8.self) }
    var bodyJSON: JSON { JSON(body) }
    var usergridError: String? { bodyJSON["error"].string }
}
