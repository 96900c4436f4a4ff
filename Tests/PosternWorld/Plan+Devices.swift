import PosternScenarios

/// An app whose SDK has the gateway in the place of its platform.
public struct DevicePlan: Sendable, CustomStringConvertible {
    let number: Int
    let type: any TypeScenarios
    /// Seconds between two uses, on average.
    let pause: Double
    /// Seconds between two attempts of the SDK to send what it has.
    let interval: Int
    /// Of what it reports.
    let poison: Double
    let reportsInvalid: Bool

    public var description: String {
        "device \(number) has the SDK of \(type.name), is used every \(Int(pause)) s and sends every \(interval) s"
            + (poison > 0 ? ", sometimes poison" : "") + (reportsInvalid ? ", sometimes invalid" : "")
    }
}

extension Plan {
    mutating func addDevices() {
        let random = SeededRandom(seed: seed, for: "devices")
        guard random.chance(0.6) else { return }
        for type in types where type.sdkSettings(seed: seed, hasKeys: false) != nil && random.chance(0.7) {
            // The platform's simulator takes what breaks its rules for a mistake of the gateway.
            let isRetried = actions.contains { [.retry, .retryDropped].contains($0.kind) && $0.type.name == type.name }
            for _ in 0..<(random.chance(0.3) ? 2 : 1) {
                devices.append(
                    DevicePlan(
                        number: devices.count, type: type, pause: 100 + 2000 * random.fraction(),
                        interval: random.pick([30, 120, 600]),
                        poison: random.chance(0.2) ? 0.05 * random.fraction() : 0,
                        reportsInvalid: !isRetried && random.chance(0.5)))
            }
        }
    }
}
