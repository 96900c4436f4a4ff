public import PosternSimulatorKit

/// A simulator that accepts notes from clients with the key.
struct ToySimulator: Simulator {
    let name = "toy"
    let orderField = "author"

    func judge(_ request: SimulatedRequest, poisons: [Faults.Poison]) -> SimulatedResult {
        guard request.method == "POST", request.path == "/notes" else {
            return SimulatedResult(answer: SimulatedAnswer(status: 404))
        }
        guard request.header("X-Key") == "toy-key" else { return SimulatedResult(answer: SimulatedAnswer(status: 401)) }
        let items = SimulatedResult.Items(text: request.body, ranges: [0..<request.body.count], identities: [0])
        return SimulatedResult(answer: .json(201, "{}"), items: items)
    }
}

extension SimulatorType {
    public static let toy = SimulatorType { _, _ in ToySimulator() }
}
