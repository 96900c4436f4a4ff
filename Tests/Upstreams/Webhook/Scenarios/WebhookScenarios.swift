package import PosternSimulatorKit
package import PosternScenarios

/// Orders of some customers, of two kinds, sent in batches, in half of the worlds with a token, and in half with a limit
/// for one kind.
package struct WebhookScenarios: TypeScenarios {
    package let name = "webhook"
    package let kind = "event"
    package let traits: Set<Trait> = [.plainStatuses, .oneEndpoint, .independent, .rejectsByStatus]
    package let poisons: [Faults.Poison] = [
        .init(field: "poison", value: "clear", answer: .refusal), .init(field: "poison", value: "doubt"),
        .init(field: "poison", value: "401", answer: .unauthorized),
        .init(field: "poison", value: "403", answer: .forbidden), .init(field: "poison", value: "404", answer: .absent),
    ]
    package let unauthorizedStatus = 401

    package init() {}

    package func settings(sendsGzip: Bool, seed: UInt64) -> [String] {
        let form = Form(seed)
        let limit = rates(seed: seed)["event"].map { #""maxRequestsPerSecond":\#($0)"# } ?? ""
        return [
            #""batch":"\#(form.batch)","orderBy":"/customer","kinds":{"event":{\#(limit)},"note":{}}"#
        ] + (form.hasToken ? [Self.auth] : [])
    }

    package func rates(seed: UInt64) -> [String: Double] {
        let random = SeededRandom(seed: seed, for: "webhook rates")
        return random.chance(0.5) ? ["event": random.pick([0.2, 1, 5])] : [:]
    }

    package func opening(_ random: SeededRandom) -> Opening {
        let seconds = random.from(60...3000)
        return Opening(
            [#"{"batch":"\#(Form(random.seed).batch)","tokenLifeSeconds":\#(seconds)}"#], tokenLife: .seconds(seconds))
    }

    private static let auth =
        #""auth":{"type":"oauth2","clientId":"world","clientSecret":"\#(secretPrefix)"}"#

    /// What the gateway and the upstream have agreed on.
    private struct Form {
        let batch: String
        let hasToken: Bool
        init(_ seed: UInt64) {
            let random = SeededRandom(seed: seed, for: "webhook settings")
            batch = random.pick(["none", "array", "ndjson", "wrapped"])
            hasToken = random.chance(0.5)
        }
    }

    package func asksForToken(_ request: SimulatedRequest) -> Bool {
        request.header("Content-Type") == "application/x-www-form-urlencoded"
    }
    package func invalidPayload(_ mark: String) -> String { #"{"customer":{"id":"\#(mark)"}}"# }
    package func scenario(of caller: Int) -> any Scenario { WebhookScenario(caller) }
    package func death(share: Double, of credentials: [String]) -> TokenDeath {
        let revocation = #"{"revokeNow":true}"#
        return share > 0.35 ? .whenBusy(revocation) : .now([revocation])
    }
    package func filler(_ mark: String) -> String? { #"{"customer":"\#(mark)","id":"\#(mark)"}"# }
}

private final class WebhookScenario: Scenario {
    private let customers: [String]
    init(_ caller: Int) { customers = (0..<4).map { "customer-\(caller)-\($0)" } }

    func next(_ count: Int, _ stage: Stage, poison: Double) -> [ScenarioItem] {
        let items = stage.messages(count, "event", in: customers, poison: poison) { customer, entry in
            let text = #"{"customer":"\#(customer)","id":"\#(entry.mark)"\#(stage.poisonMember(of: entry))}"#
            entry.payload = text
            return text
        }
        return items.map { item in
            guard let entry = item.entry, entry.number.isMultiple(of: 3) else { return item }
            return ScenarioItem("note", item.payload, entry)
        }
    }
}
