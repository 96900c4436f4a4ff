import PosternCore
package import PosternScenarios

/// Users with a device each, its preferences, groups that they join, tokens that die, and apps that crash.
package struct AppServicesScenarios: TypeScenarios {
    package let name = "appservices"
    package let kind = "group_add"
    package let traits: Set<Trait> = [.keepsCredentials, .sendsOnce]
    package let unauthorizedStatus = 401

    package init() {}

    package func scenario(of caller: Int) -> any Scenario { AppServicesScenario(caller) }
    package func settings(sendsGzip: Bool, seed: UInt64) -> [String] { [#""monitoring":{"enabled":true}"#] }
    package func sdkSettings(seed: UInt64, hasKeys: Bool) -> [String]? {
        [#""waitSeconds":\#(SeededRandom(seed: seed, for: "sdk of appservices").pick([0, 2]))"#]
    }
    package func sdk(on device: SDKDevice) -> (any SDKModel)? { AppServicesSDKModel(device) }
    package func isDelivery(_ item: [UInt8]) -> Bool {
        ["add_user", "metrics", "crash_log"].contains { item.hasBytes(of: #""step":"\#($0)""#) }
    }
    /// That of the text of a crash has the name of its file alone.
    package func isMarkedByRequest(_ item: [UInt8]) -> Bool { item.hasBytes(of: #""step":"crash_log""#) }
    package func death(share: Double, of credentials: [String]) -> TokenDeath {
        .now(credentials.map { #"{"invalidateToken":["\#($0)"]}"# })
    }
    /// A gateway that was restarted may have forgotten what it was told.
    package func forgives(_ violation: String, wasRestarted: Bool, wasClockSet: Bool) -> Bool {
        wasRestarted && violation.hasSuffix("a refused token is sent again")
    }
}

private final class AppServicesScenario: Scenario {
    let mayBeRefused = false
    private let user: String
    private let device: String
    private let caller: Int
    private var tokens = 1
    private var requests = 0
    /// The steps of the SDK on another device: the next one, and the messages of the one before.
    private let stepDevice: String
    private var nextStep = 0
    private var lastStep: [Expectations.Entry] = []
    /// What the platform knows the user by, unless it was refused, or a disk has lost it.
    private var registration: Expectations.Entry?

    init(_ caller: Int) {
        self.caller = caller
        user = "user\(caller)"
        device = "c0ffee11-2233-4455-8677-\(hexadecimal(caller, 12))"
        stepDevice = "c0ffee12-2233-4455-8677-\(hexadecimal(caller, 12))"
    }

    private var token: String { "\(secretPrefix)\(caller).\(tokens)" }
    var credential: String? { token }

    func next(_ count: Int, _ stage: Stage, poison: Double) -> [ScenarioItem] {
        requests += 1
        let timed = SeededRandom(seed: stage.random.seed, for: "timed \(caller) \(requests)")
        if let registration, registration.isSettled, !registration.isWaived, timed.chance(0.05) {
            return crossing(stage, timed)
        }
        if timed.chance(0.15), let items = stepping(stage, timed) { return items }
        if stage.random.chance(0.1), let item = freshCredential() { return [item] }
        return (0..<count).map { _ in item(stage) }
    }

    func freshCredential() -> ScenarioItem? {
        tokens += 1
        return ScenarioItem("/v1/appservices/users/\(user)/token", #"{"token":"\#(token)"}"#, nil, method: "PUT")
    }

    func refused(_ status: Int) {
        registration = nil
        (nextStep, lastStep) = (0, [])
    }

    /// The text of a crash has a mark of its own, since it is sent before the metrics that name it.
    func report(_ stage: Stage) -> ScenarioItem? {
        let entry = stage.begin(lane: nil)
        entry.isSentOnce = true
        let text = stage.begin(lane: nil, isExempt: true)
        text.whole = entry
        return ScenarioItem(
            "crash",
            #"{"deviceId":"\#(device)","text":"SIGABRT \#(text.mark)","sessionMetrics":{"sessionId":"\#(entry.mark)"}}"#,
            entry)
    }

    /// The lists as a whole, or a change of an entry.
    private func preferences(_ random: SeededRandom) -> String {
        let type = random.pick(["a", "b", "c"])
        return random.pick([
            #"{"whitelist":{"\#(type)":["x"]}}"#, #"{"add":{"whitelist":{"\#(type)":[]}}}"#,
            #"{"remove":{"whitelist":["\#(type)"]},"add":{"blacklist":{"\#(type)":["y"]}}}"#,
        ])
    }

    /// Preferences that become due while a registration is sent that was accepted after them.
    private func crossing(_ stage: Stage, _ random: SeededRandom) -> [ScenarioItem] {
        let start = stage.now + random.span(10...600)
        var items = [
            saving(stage, random, auth), registering(stage.begin(lane: nil, leavesMark: false, isExempt: true), auth),
        ]
        items[0].notBefore = start + random.span(0.01...30)
        items[1].notBefore = start
        return items
    }

    /// A step on the device once the one before it is over, since a disk may lose that; nil until then.
    private func stepping(_ stage: Stage, _ random: SeededRandom) -> [ScenarioItem]? {
        guard lastStep.allSatisfy(\.isSettled) else { return nil }
        if lastStep.contains(where: { $0.isWaived || $0.isErased || $0.wasRejected || $0.isCancelled }) { nextStep = 0 }
        lastStep = []
        func step(_ kind: String, _ members: String) -> ScenarioItem {
            let entry = stage.begin(lane: nil, leavesMark: false, isExempt: true)
            entry.isNeeded = true
            lastStep.append(entry)
            return ScenarioItem(kind, "{\(members),\(auth)}", entry)
        }
        let (named, on) = (#""userId":"\#(user)""#, #""deviceId":"\#(stepDevice)""#)
        defer { nextStep = (nextStep + 1) % 5 }
        switch nextStep {
        case 0:
            let token = hexadecimal(requests, 64)
            return [
                step("device", #"\#(on),"deviceToken":"\#(token)","notifier":"apple""#), step("user", named),
                step("group", #""group":"all""#),
            ]
        case 1: return [step("connect", "\(named),\(on)")]
        case 2: return [step("preferences", #"\#(on),"userId":null,"preferences":\#(preferences(random))"#)]
        case 3: return [step("disconnect", "\(named),\(on)")]
        default: return [step("device_unregister", #"\#(on),"notifier":"apple""#)]
        }
    }

    private func registering(_ entry: Expectations.Entry, _ auth: String) -> ScenarioItem {
        let number = hexadecimal(entry.number, 64)
        return ScenarioItem(
            "register", #"{"userId":"\#(user)","deviceId":"\#(device)","deviceToken":"\#(number)",\#(auth)}"#, entry)
    }

    /// Later ones replace it.
    private func saving(_ stage: Stage, _ random: SeededRandom, _ auth: String) -> ScenarioItem {
        ScenarioItem(
            "preferences",
            #"{"userId":"\#(user)","deviceId":"\#(device)","preferences":\#(preferences(random)),\#(auth)}"#,
            stage.begin(lane: nil, leavesMark: false, isExempt: true))
    }

    private var auth: String { #""auth":{"token":"\#(token)"}"# }

    private func item(_ stage: Stage) -> ScenarioItem {
        if registration?.isWaived ?? true || stage.random.chance(0.1) {
            let entry = stage.begin(lane: nil, leavesMark: false, isExempt: true)
            entry.isNeeded = true
            registration = entry
            return registering(entry, auth)
        }
        if stage.random.chance(0.15) {
            return saving(stage, stage.random, auth)
        }
        let entry = stage.begin(lane: user)
        return ScenarioItem("group_add", #"{"userId":"\#(user)","group":"\#(entry.mark)",\#(auth)}"#, entry)
    }
}
