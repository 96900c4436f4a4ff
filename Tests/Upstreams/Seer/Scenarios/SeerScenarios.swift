package import PosternSimulatorKit
package import PosternScenarios

/// Activities, statements and instrumentation, each in its order.
package struct SeerScenarios: TypeScenarios {
    package let name = "seer"
    package let kind = "activity"
    package let traits: Set<Trait> = [.plainStatuses, .independent, .refusesMore]
    package let poisons: [Faults.Poison] = [.init(field: "poison", value: "clear", answer: .refusal)]

    package init() {}

    package func opening(_ random: SeededRandom) -> Opening {
        guard random.chance(0.5) else { return Opening() }
        let seconds = random.from(60...3000)
        return Opening([#"{"tokenLifeSeconds":\#(seconds)}"#], tokenLife: .seconds(seconds))
    }
    package func asksForToken(_ request: SimulatedRequest) -> Bool { request.path == "/oauth/access_token" }
    package func scenario(of caller: Int) -> any Scenario { SeerScenario() }
    package func sdkSettings(seed: UInt64, hasKeys: Bool) -> [String]? {
        [#""tokenSeconds":\#(SeededRandom(seed: seed, for: "sdk of seer").pick([60, 3600]))"#]
    }
    package func sdk(on device: SDKDevice) -> (any SDKModel)? { SeerSDKModel(device) }
    package var endpoints: [Endpoint] {
        [("activity", "/sactivity"), ("tincan", "/tincan"), ("instrumentation", "/sinstrumentation")].map {
            kind, path in Endpoint(kind, path: path) { reportText(kind, $0) }
        }
    }
    package func death(share: Double, of credentials: [String]) -> TokenDeath {
        let revocation = #"{"revokeNow":true}"#
        return share > 0.35 ? .whenBusy(revocation) : .now([revocation])
    }
}

private final class SeerScenario: Scenario {
    func next(_ count: Int, _ stage: Stage, poison: Double) -> [ScenarioItem] {
        (0..<count).map { _ in
            let kind = stage.random.pick(["activity", "tincan", "instrumentation"])
            let isPoison = stage.random.chance(poison)
            let entry = stage.begin(lane: kind, isPoison: isPoison)
            let more = isPoison ? #","poison":"clear""# : ""
            let text = reportText(kind, entry.mark, more)
            entry.payload = text
            return ScenarioItem(kind, text, entry)
        }
    }
}

func reportText(_ kind: String, _ mark: String, _ more: String = "") -> String {
    kind == "tincan"
        ? #"{"actor":{"mbox":"m"},"verb":{"id":"v"},"object":{"id":"\#(mark)","definition":{"type":"t"}},"context":{"extensions":{"appId":"a"}}\#(more)}"#
        : #"{"actor":{"id":"a"},"verb":"v","object":{"id":"\#(mark)","objectType":"t"},"generator":{"appId":"g"}\#(more)}"#
}
