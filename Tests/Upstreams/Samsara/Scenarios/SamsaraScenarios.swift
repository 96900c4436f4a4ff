package import PosternSimulatorKit
package import PosternScenarios

/// Events of some devices.
package struct SamsaraScenarios: TypeScenarios {
    package let name = "samsara"
    package let kind = "event"
    package let traits: Set<Trait> = [.plainStatuses, .oneEndpoint, .independent, .dropsOldest]
    package let poisons: [Faults.Poison] = [
        .init(field: "poison", value: "clear", answer: .naming), .init(field: "poison", value: "doubt"),
        .init(field: "poison", value: "401", answer: .unauthorized),
        .init(field: "poison", value: "403", answer: .forbidden), .init(field: "poison", value: "404", answer: .absent),
    ]

    package init() {}

    package func settings(sendsGzip: Bool, seed: UInt64) -> [String] {
        [#""compression":"\#(sendsGzip ? "gzip" : "none")","eventMaxBytes":\#(Self.eventMaxBytes)"#]
    }
    static let eventMaxBytes = 2000
    package func sdkSettings(seed: UInt64, hasKeys: Bool) -> [String]? {
        let random = SeededRandom(seed: seed, for: "sdk of samsara")
        let (isAnonymous, stamps) = (random.chance(0.5) || !hasKeys, random.chance(0.7))
        return [
            #""anonymous":\#(isAnonymous),"stampEvents":\#(stamps)"#,
            #""whenInvalid":"\#(keepsInvalid(seed) ? "deadLetter" : "refuse")""#,
        ]
    }
    private func keepsInvalid(_ seed: UInt64) -> Bool {
        SeededRandom(seed: seed, for: "invalid of samsara").chance(0.5)
    }
    package func sdk(on device: SDKDevice) -> (any SDKModel)? {
        SamsaraSDKModel(device, reportsInvalid: device.reportsInvalid && keepsInvalid(device.seed))
    }
    package func scenario(of caller: Int) -> any Scenario { SamsaraScenario(caller) }
    package func filler(_ mark: String) -> String? { #"{"sourceId":"\#(mark)","eventName":"e","id":"\#(mark)"}"# }
}

private final class SamsaraScenario: Scenario {
    private let devices: [String]
    init(_ caller: Int) { devices = (0..<5).map { "device-\(caller)-\($0)" } }

    func next(_ count: Int, _ stage: Stage, poison: Double) -> [ScenarioItem] {
        stage.messages(count, "event", in: devices, poison: poison) { device, entry in
            let more = stage.poisonMember(of: entry)
            let text = #"{"sourceId":"\#(device)","eventName":"e","id":"\#(entry.mark)"\#(more)}"#
            entry.payload = text
            return text
        }
    }
}
