/// A simulator whose state can be read and changed at `/control`.
package protocol ControlledSimulator: Simulator {
    /// The response to `GET /control`.
    func shownControl() -> [JSONTree.Member]
    /// Carries out a `POST /control`, completely or not at all.
    func change(_ body: [UInt8]) throws(ControlProblem)
    /// Responds to paths below `/control`; nil for a path that does not exist.
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
