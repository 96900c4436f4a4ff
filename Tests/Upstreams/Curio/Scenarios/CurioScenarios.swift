import PosternCore
package import PosternSimulatorKit
package import PosternScenarios

/// Visitors with one session after the other: screens and events between its start and its end.
package struct CurioScenarios: TypeScenarios {
    package let name = "curio"
    package let kind = "event"
    package let poisons: [Faults.Poison] = [.init(field: "eventValue", value: "clear", answer: .refusal)]
    package let unauthorizedStatus = 412

    package init() {}

    /// In some worlds, screens and events are sent together, once in a while.
    package func settings(sendsGzip: Bool, seed: UInt64) -> [String] {
        guard SeededRandom(seed: seed, for: "collecting").chance(0.3) else { return [] }
        return [
            #""periodicDispatchEnabled":true,"dispatchPeriodMinutes":60,"sessionTimeoutMinutes":120"#,
            #""delivery":{"batchMaxWaitSeconds":0}"#,
        ]
    }
    package func opening(_ random: SeededRandom) -> Opening {
        Opening(random.chance(0.3) ? [#"{"killSessionRate":0.02,"codeForm":"mixed"}"#] : [])
    }
    package func scenario(of caller: Int) -> any Scenario { CurioScenario(caller) }
    package func sdkSettings(seed: UInt64, hasKeys: Bool) -> [String]? { [] }
    package func sdk(on device: SDKDevice) -> (any SDKModel)? { CurioSDKModel(device) }
    package func isDelivery(_ item: [UInt8]) -> Bool { !item.hasBytes(of: #"_end""#) }
    package func death(share: Double, of credentials: [String]) -> TokenDeath {
        .now([#"{"killSessions":"all"}"#])
    }
}

private final class CurioScenario: Scenario {
    let mayBeScheduled = false
    let mayBeRefused = false
    private let visitor: String
    private let caller: Int
    /// Some visitors do not stay for long.
    private var isInHaste: Bool { caller.isMultiple(of: 2) }
    private var sessions = 0
    /// Actions that are left of the session; none: it is over.
    private var left = 0
    private var isOnScreen = false
    /// The members that name the open screen, and the open event.
    private var screen = ""
    private var event: String?
    private var start: Expectations.Entry?

    init(_ caller: Int) {
        self.caller = caller
        visitor = "visitor-\(caller)"
    }

    var haste: Double { isInHaste ? 0.5 : 0 }

    func refused(_ status: Int) {
        if status == 409 { left = 0 }
        // What would have begun was not stored, so there is nothing to end.
        (isOnScreen, event) = (false, nil)
    }

    func next(_ count: Int, _ stage: Stage, poison: Double) -> [ScenarioItem] {
        (0..<count).map { action($0, stage, poison) }
    }

    private func action(_ index: Int, _ stage: Stage, _ poison: Double) -> ScenarioItem {
        let random = stage.random
        if left == 0 {
            left = random.from(2...(isInHaste ? 4 : 30))
            sessions += 1
            isOnScreen = false
            event = nil
            let entry = stage.begin(lane: visitor)
            entry.mayRepeat = true
            start = entry
            let minutes = sessions.isMultiple(of: 2) ? 20 : 240
            let timeout = sessions.isMultiple(of: 3) ? #","sessionTimeout":\#(minutes)"# : ""
            return item("session_start", Self.device(entry.mark) + timeout, entry, index, stage)
        }
        left -= 1
        if left == 0 { return item("session_end", "", unmarked(stage), index, stage) }
        if isOnScreen, random.chance(0.3) {
            isOnScreen = false
            return item("screen_end", "," + screen, end(of: screen, stage), index, stage)
        }
        if !isOnScreen, random.chance(0.3) {
            isOnScreen = true
            let entry = stage.begin(lane: visitor)
            // The end of a screen that was cancelled has nothing to end.
            entry.isNeeded = true
            screen = entry.number.isMultiple(of: 2) ? #""hitCode":"\#(code(of: entry))""# : #""screenClass":"c""#
            return item(
                "screen_start", #",\#(screen),"pageTitle":"\#(entry.mark)","path":"p""#, entry, index, stage)
        }
        let isPoison = random.chance(poison)
        if !isPoison, let event {
            self.event = nil
            return item("event_end", #",\#(event),"eventDuration":7"#, end(of: event, stage), index, stage)
        }
        let entry = stage.begin(lane: visitor, isPoison: isPoison)
        if !isPoison, entry.number.isMultiple(of: 8) {
            // The notification is named by its id, or by the payload that the app got.
            let id = #""pId":"\#(entry.mark)""#
            let name =
                entry.number.isMultiple(of: 16) ? #""pushId":"\#(entry.mark)""# : #""userInfo":{"aps":{},\#(id)}"#
            return item("notification_read", #","pushToken":"t",\#(name)"#, entry, index, stage)
        }
        let value = isPoison ? "clear" : "1"
        var code = ""
        if !isPoison, entry.number.isMultiple(of: 3) {
            entry.isNeeded = true
            let named = #""eventCode":"\#(self.code(of: entry))""#
            (event, code) = (named, "," + named)
        }
        return item("event", #","eventKey":"\#(entry.mark)","eventValue":"\#(value)"\#(code)"#, entry, index, stage)
    }

    /// As a device makes it: a version-4 UUID.
    private func code(of entry: Expectations.Entry) -> String {
        "\(hexadecimal(entry.number, 8))-0000-4000-8000-\(hexadecimal(caller, 12))"
    }

    /// One with a code is stored once.
    private func end(of start: String, _ stage: Stage) -> Expectations.Entry {
        let entry = unmarked(stage)
        entry.isKnownAgain = start.hasBytes(of: "Code")
        return entry
    }

    private func unmarked(_ stage: Stage) -> Expectations.Entry { stage.begin(lane: nil, leavesMark: false) }

    private func item(
        _ kind: String, _ members: String, _ entry: Expectations.Entry, _ index: Int, _ stage: Stage
    ) -> ScenarioItem {
        entry.mayBeCollected = !kind.hasPrefix("session")
        if entry !== start { entry.start = start }
        let session = "6d\(hexadecimal(sessions, 6))-a21d-11e4-8123-1\(hexadecimal(caller, 11))"
        let time = stage.now.milliseconds + Int64(index)
        return ScenarioItem(
            kind, #"{"visitorCode":"\#(visitor)","sessionCode":"\#(session)","timestamp":\#(time)\#(members)}"#, entry)
    }

    /// An event of a session that was never begun.
    func stray(_ stage: Stage) -> ScenarioItem? {
        let entry = unmarked(stage)
        let session = "6d\(hexadecimal(entry.number, 6))-a21d-11e4-8123-2\(hexadecimal(caller, 11))"
        let time = stage.now.milliseconds
        return ScenarioItem(
            "event",
            #"{"visitorCode":"\#(visitor)","sessionCode":"\#(session)","timestamp":\#(time),"eventKey":"\#(entry.mark)","eventValue":"1"}"#,
            entry)
    }

    private static func device(_ mark: String) -> String {
        #","screenWidth":750,"screenHeight":1334,"lang":"tr-TR","simOperator":"","simOpCountry":"","networkOpName":"","connType":"wifi","brand":"Apple","model":"\#(mark)","osType":"iOS","osVer":"9","curioSdkVer":"1.2.4","appVer":"2""#
    }
}
