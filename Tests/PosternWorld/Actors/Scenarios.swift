import PosternCore

/// A payload, and what the world expects of it.
struct ScenarioItem {
    /// The path of a request that is no message, with its method.
    var kind: String
    var payload: String
    var entry: Book.Entry?
    var method: String?
}

/// What one caller has to tell its upstream.
protocol Scenario: AnyObject {
    var mayBeScheduled: Bool { get }
    /// Whether what comes later stays valid if something is refused.
    var mayBeRefused: Bool { get }
    func next(_ count: Int, _ world: World, _ dice: Dice, poison: Double) -> [ScenarioItem]
    /// The last request was refused for good.
    func refused(_ status: Int)
}

extension Scenario {
    var mayBeScheduled: Bool { true }
    var mayBeRefused: Bool { true }
    func refused(_ status: Int) {}
}

/// Events of some devices.
final class SamsaraScenario: Scenario {
    private let devices: [String]
    init(_ plan: CallerPlan) { devices = (0..<5).map { "device-\(plan.number)-\($0)" } }

    func next(_ count: Int, _ world: World, _ dice: Dice, poison: Double) -> [ScenarioItem] {
        (0..<count).map { _ in
            let device = dice.pick(devices)
            let isPoison = dice.chance(poison)
            let entry = world.book.begin(.samsara, lane: device, isPoison: isPoison)
            let how = dice.chance(0.5) ? "clear" : "doubt"
            let more = isPoison ? #","poison":"\#(how)""# : ""
            let text = #"{"sourceId":"\#(device)","eventName":"e","id":"\#(entry.mark)"\#(more)}"#
            entry.payload = text
            return ScenarioItem(kind: "event", payload: text, entry: entry)
        }
    }
}

/// Activities, statements and instrumentation, each in its order.
final class SeerScenario: Scenario {
    func next(_ count: Int, _ world: World, _ dice: Dice, poison: Double) -> [ScenarioItem] {
        (0..<count).map { _ in
            let kind = dice.pick(["activity", "tincan", "instrumentation"])
            let isPoison = dice.chance(poison)
            let entry = world.book.begin(.seer, lane: kind, isPoison: isPoison)
            let more = isPoison ? #","poison":"clear""# : ""
            let text =
                kind == "tincan"
                ? #"{"actor":{"mbox":"m"},"verb":{"id":"v"},"object":{"id":"\#(entry.mark)","definition":{"type":"t"}},"context":{"extensions":{"appId":"a"}}\#(more)}"#
                : #"{"actor":{"id":"a"},"verb":"v","object":{"id":"\#(entry.mark)","objectType":"t"},"generator":{"appId":"g"}\#(more)}"#
            entry.payload = text
            return ScenarioItem(kind: kind, payload: text, entry: entry)
        }
    }
}

/// Writes to some accounts.
final class StreamOneScenario: Scenario {
    private let accounts: [String]
    init(_ plan: CallerPlan) { accounts = (0..<3).map { "A\(plan.number)x\($0)" } }

    func next(_ count: Int, _ world: World, _ dice: Dice, poison: Double) -> [ScenarioItem] {
        (0..<count).map { _ in
            let account = dice.pick(accounts)
            let isPoison = dice.chance(poison)
            let entry = world.book.begin(.streamone, lane: account, isPoison: isPoison)
            let more = isPoison ? #","poison":"clear""# : ""
            return ScenarioItem(
                kind: "call",
                payload:
                    #"{"command":"item","action":"edit","account":"\#(account)","arguments":{"seq":"\#(entry.mark)"\#(more)}}"#,
                entry: entry)
        }
    }
}

/// A visitor with one session after the other: screens and events between its start and its end.
final class CurioScenario: Scenario {
    let mayBeScheduled = false
    let mayBeRefused = false
    private let visitor: String
    private let number: Int
    private var sessions = 0
    /// Actions that are left of the session; none: it is over.
    private var left = 0
    private var isOnScreen = false

    init(_ plan: CallerPlan) {
        number = plan.number
        visitor = "visitor-\(plan.number)"
    }

    func refused(_ status: Int) { if status == 409 { left = 0 } }

    func next(_ count: Int, _ world: World, _ dice: Dice, poison: Double) -> [ScenarioItem] {
        (0..<count).map { index in action(index, world, dice, poison) }
    }

    private func action(_ index: Int, _ world: World, _ dice: Dice, _ poison: Double) -> ScenarioItem {
        if left == 0 {
            left = dice.from(2...30)
            sessions += 1
            isOnScreen = false
            let entry = world.book.begin(.curio, lane: visitor)
            entry.mayRepeat = true
            return item("session_start", Self.device(entry.mark), entry, index, world)
        }
        left -= 1
        if left == 0 { return item("session_end", "", unmarked(world), index, world) }
        if isOnScreen, dice.chance(0.3) {
            isOnScreen = false
            return item("screen_end", #","screenClass":"c""#, unmarked(world), index, world)
        }
        if !isOnScreen, dice.chance(0.3) {
            isOnScreen = true
            let entry = world.book.begin(.curio, lane: visitor)
            return item(
                "screen_start", #","screenClass":"c","pageTitle":"\#(entry.mark)","path":"p""#, entry, index, world)
        }
        let isPoison = dice.chance(poison)
        let entry = world.book.begin(.curio, lane: visitor, isPoison: isPoison)
        return item(
            "event", #","eventKey":"\#(entry.mark)","eventValue":"\#(isPoison ? "clear" : "1")""#, entry, index, world)
    }

    private func unmarked(_ world: World) -> Book.Entry {
        world.book.begin(.curio, lane: nil, leavesMark: false)
    }

    private func item(
        _ kind: String, _ members: String, _ entry: Book.Entry, _ index: Int, _ world: World
    ) -> ScenarioItem {
        let session = "6d\(hexadecimal(sessions, 6))-a21d-11e4-8123-1\(hexadecimal(number, 11))"
        let time = world.upstreamTime.now.milliseconds + Int64(index)
        return ScenarioItem(
            kind: kind,
            payload: #"{"visitorCode":"\#(visitor)","sessionCode":"\#(session)","timestamp":\#(time)\#(members)}"#,
            entry: entry)
    }

    static func stray(_ entry: Book.Entry, _ plan: CallerPlan, _ world: World) -> String {
        let session = "6d\(hexadecimal(entry.number, 6))-a21d-11e4-8123-2\(hexadecimal(plan.number, 11))"
        let time = world.upstreamTime.now.milliseconds
        return
            #"{"visitorCode":"visitor-\#(plan.number)","sessionCode":"\#(session)","timestamp":\#(time),"eventKey":"\#(entry.mark)","eventValue":"1"}"#
    }

    private static func device(_ mark: String) -> String {
        #","screenWidth":750,"screenHeight":1334,"lang":"tr-TR","simOperator":"","simOpCountry":"","networkOpName":"","connType":"wifi","brand":"Apple","model":"\#(mark)","osType":"iOS","osVer":"9","curioSdkVer":"1.2.4","appVer":"2""#
    }
}

/// A user with a device, groups that the user joins, and tokens that die.
final class AppServicesScenario: Scenario {
    let mayBeRefused = false
    private let user: String
    private let device: String
    private let number: Int
    private var tokens = 1
    private var isRegistered = false

    init(_ plan: CallerPlan, _ world: World) {
        number = plan.number
        user = "user\(plan.number)"
        device = "c0ffee11-2233-4455-8677-\(hexadecimal(plan.number, 12))"
        world.users.append(self)
    }

    var token: String { "\(World.tokenPrefix)\(number).\(tokens)" }

    func next(_ count: Int, _ world: World, _ dice: Dice, poison: Double) -> [ScenarioItem] {
        if dice.chance(0.1) { return [freshToken(dice)] }
        return (0..<count).map { _ in item(world, dice) }
    }

    /// Hands in a token that was not used before.
    func freshToken(_ dice: Dice) -> ScenarioItem {
        tokens += 1
        return ScenarioItem(
            kind: "/v1/appservices/users/\(user)/token", payload: #"{"token":"\#(token)"}"#, entry: nil, method: "PUT")
    }

    private func item(_ world: World, _ dice: Dice) -> ScenarioItem {
        let auth = #""auth":{"token":"\#(token)"}"#
        if !isRegistered || dice.chance(0.1) {
            isRegistered = true
            let entry = world.book.begin(.appservices, lane: nil, leavesMark: false, isExempt: true)
            entry.isNeeded = true
            return ScenarioItem(
                kind: "register",
                payload:
                    #"{"userId":"\#(user)","deviceId":"\#(device)","deviceToken":"\#(hexadecimal(entry.number, 64))",\#(auth)}"#,
                entry: entry)
        }
        let entry = world.book.begin(.appservices, lane: user)
        return ScenarioItem(
            kind: "group_add", payload: #"{"userId":"\#(user)","group":"\#(entry.mark)",\#(auth)}"#, entry: entry)
    }
}

/// In as many digits as that.
func hexadecimal(_ number: Int, _ digits: Int) -> String {
    let text = String(number, radix: 16)
    return String(repeating: "0", count: max(0, digits - text.count)) + text
}
