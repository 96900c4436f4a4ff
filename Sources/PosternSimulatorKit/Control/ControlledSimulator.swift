/// A simulator that shows and changes what it holds at `/control`.
package protocol ControlledSimulator: Simulator {
    /// What `GET /control` shows.
    func shownControl() -> [JSONTree.Member]
    /// Carries out a `POST /control`, all of it or nothing.
    func change(_ body: [UInt8]) throws(ControlProblem)
    /// Answers about paths below `/control`; nil for what there is not.
    func controlPart(_ request: SimulatedRequest) -> SimulatedAnswer?
}

extension ControlledSimulator {
    package func controlPart(_ request: SimulatedRequest) -> SimulatedAnswer? { nil }

    package func control(_ request: SimulatedRequest) -> SimulatedAnswer? {
        guard request.path == "/control" else { return controlPart(request) }
        switch request.method {
        case "GET": return .json(200, JSONTree.object(of: shownControl()).canonical)
        case "POST":
            do throws(ControlProblem) {
                try change(request.body)
                return .json(200, JSONTree.object(of: shownControl()).canonical)
            } catch {
                return .text(400, "\(error)\n")
            }
        default: return .notAllowed("GET, POST")
        }
    }
}
