package import PosternScenarios

/// Notes.
package struct ToyScenarios: TypeScenarios {
    package let name = "toy"
    package let kind = "note"

    package init() {}

    package func scenario(of caller: Int) -> any Scenario { ToyScenario() }
}

private final class ToyScenario: Scenario {
    func next(_ count: Int, _ stage: Stage, poison: Double) -> [ScenarioItem] {
        (0..<count).map { _ in
            let entry = stage.begin(lane: nil)
            return ScenarioItem("note", #"{"text":"\#(entry.mark)"}"#, entry)
        }
    }
}
