package import PosternSimulatorKit
package import PosternScenarios

/// Writes to some accounts, and calls.
package struct StreamOneScenarios: TypeScenarios {
    package let name = "streamone"
    package let kind = "call"
    package let traits: Set<Trait> = [.independent, .signedWithTime, .answersCalls]
    package let poisons: [Faults.Poison] = [.init(field: "/arguments/poison", value: "clear", answer: .refusal)]

    /// The name of a user is taken.
    package let existing: (begin: String, end: String)? = (#"{"nextStatus":[316]}"#, #"{"nextStatus":[]}"#)

    package init() {}

    package func settings(sendsGzip: Bool, seed: UInt64) -> [String] {
        SeededRandom(seed: seed, for: "stored responses").chance(0.3)
            ? [#""requestCache":"store","requestCacheBytes":65536"#] : []
    }
    package func opening(_ random: SeededRandom) -> Opening { Opening([#"{"failuresUntilRateLimited":0}"#]) }
    package func sdkSettings(seed: UInt64, hasKeys: Bool) -> [String]? { [#""queueActions":["item/edit"]"#] }
    package func sdk(on device: SDKDevice) -> (any SDKModel)? { StreamOneSDKModel(device) }
    package func scenario(of caller: Int) -> any Scenario { StreamOneScenario(caller) }
    /// A gateway whose clock was set signs with the time that it has.
    package func forgives(_ violation: String, wasRestarted: Bool, wasClockSet: Bool) -> Bool {
        wasClockSet && violation.contains("timestamp")
    }
}

private final class StreamOneScenario: Scenario {
    private let accounts: [String]
    init(_ caller: Int) { accounts = (0..<3).map { "A\(caller)x\($0)" } }

    func next(_ count: Int, _ stage: Stage, poison: Double) -> [ScenarioItem] {
        stage.messages(count, "call", in: accounts, poison: poison) { account, entry in
            entry.isTakenOnce = entry.number.isMultiple(of: 3)
            let call = entry.isTakenOnce ? #""command":"user","action":"create""# : #""command":"item","action":"edit""#
            let name = entry.isTakenOnce ? "username" : "seq"
            let arguments = #"{"\#(name)":"\#(entry.mark)"\#(entry.isPoison ? #","poison":"clear""# : "")}"#
            return #"{\#(call),"account":"\#(account)","arguments":\#(arguments)}"#
        }
    }

    func call(_ stage: Stage, isRead: Bool) -> ScenarioItem? {
        let entry = stage.begin(lane: nil)
        // Equal reads share a request, and a read may be made again.
        entry.mayRepeat = isRead
        return ScenarioItem(
            "/v1/streamone/proxy/item/\(isRead ? "view" : "edit")", #"{"item":"\#(entry.mark)"}"#, entry)
    }
}
