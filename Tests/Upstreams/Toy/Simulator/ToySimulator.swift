public import PosternSimulatorKit

/// Accepts notes from clients that have the key.
struct ToySimulator: Simulator {
    let name = "toy"
    let orderField = "author"

    func judge(_ request: SimulatedRequest, poisons: [Faults.Poison]) -> Judged {
        guard request.method == "POST", request.path == "/notes" else {
            return Judged(answer: SimulatedAnswer(status: 404))
        }
        guard request.header("X-Key") == "toy-key" else { return Judged(answer: SimulatedAnswer(status: 401)) }
        let items = Judged.Items(text: request.body, ranges: [0..<request.body.count], identities: [0])
        return Judged(answer: .json(201, "{}"), items: items)
    }
}

extension SimulatorType {
    public static let toy = SimulatorType { _, _ in ToySimulator() }
}
