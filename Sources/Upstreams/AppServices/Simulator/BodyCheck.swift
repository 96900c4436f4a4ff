import PosternCore
import PosternSimulatorKit

/// The contents of a body, and its faults (specification, sections 4.1 to 4.11, and 9).
struct BodyCheck {
    /// The route's step; for `PUT /device` which of the three it is.
    private(set) var step: Call.Step
    private(set) var notifier: String?
    private(set) var deviceToken: String?
    private(set) var violations: [String] = []
    private let body: JSONTree

    init(_ body: JSONTree, step: Call.Step, device: String?) {
        self.body = body
        self.step = step
        switch step {
        case .updateDevice: checkDevice(device)
        case .registerUser, .updateUser: checkUser()
        case .createGroup: checkGroup()
        case .metrics: checkMetrics()
        default: break
        }
    }

    private var members: [JSONTree.Member] { body.members ?? [] }

    private mutating func checkUser() {
        if members.contains(where: { $0.name != "username" }) { violations.append("more than username in the body") }
        if let name = body["username"]?.string {
            if !Form.isUserID(name) { violations.append("a user id that the gateway must refuse") }
        } else {
            violations.append("no username in the body")
        }
    }

    private mutating func checkGroup() {
        if members.contains(where: { !["path", "title"].contains($0.name) }) {
            violations.append("more than path and title in the body")
        }
        guard let path = body["path"]?.string else { return violations.append("no path in the body") }
        if !Form.isGroupName(path) { violations.append("a group name that the gateway must refuse") }
        if body["title"]?.string != path { violations.append("a title that is not the path") }
    }

    // MARK: Devices

    private static let suffix = ".notifier.id"
    private static let details = ["deviceModel", "devicePlatform", "deviceOSVersion"]

    private mutating func checkDevice(_ device: String?) {
        if body["mobileplatform"] != nil { return checkPreferences() }
        let notifiers = members.filter { $0.name.hasSuffix(Self.suffix) }
        guard let first = notifiers.first, let token = first.value.string else {
            return violations.append("a body that is neither registration, preferences nor unregistration")
        }
        let name = String(first.name.dropLast(Self.suffix.count))
        step = token.isEmpty ? .unregisterDevice : .registerDevice
        notifier = name
        deviceToken = token
        if notifiers.count > 1 { violations.append("more than one notifier") }
        let isName =
            (1...64).contains(name.utf8.count)
            && name.utf8.allSatisfy { $0.isAlphanumeric || "_-".utf8.contains($0) }
        if !isName { violations.append("a notifier that the gateway must refuse") }
        if !token.isEmpty, !isPushToken(token) {
            violations.append("a push token that is not 64 to 200 small hexadecimal digits, an even number")
        }
        if body["type"]?.string != "device" { violations.append("a type other than device") }
        if device == nil || body["uuid"]?.string != device { violations.append("a uuid that is not the path's") }
        for member in members where !["type", "uuid"].contains(member.name) && !member.name.hasSuffix(Self.suffix) {
            if !Self.details.contains(member.name) {
                violations.append("a member that no device is registered with")
            } else if member.value.string?.isEmpty != false {
                violations.append("\(member.name) that is not a text")
            }
        }
    }

    private func isPushToken(_ text: String) -> Bool {
        (64...200).contains(text.utf8.count) && text.utf8.count % 2 == 0
            && text.utf8.allSatisfy { Form.isHexDigit($0) && $0 | 0x20 == $0 }
    }

    private mutating func checkPreferences() {
        step = .savePreferences
        if members.count > 1 { violations.append("preferences next to other members of the device") }
        let platform = body["mobileplatform"]
        guard let lists = platform?["preferences"], platform?.members?.count == 1 else {
            return violations.append("a mobileplatform that is not preferences alone")
        }
        guard let white = lists["whitelist"]?.members, let black = lists["blacklist"]?.members,
            lists.members?.count == 2
        else { return violations.append("preferences that are not the objects whitelist and blacklist") }
        for member in white + black {
            if member.name.isEmpty { violations.append("an empty type of notification") }
            guard let exceptions = member.value.elements,
                exceptions.allSatisfy({ $0.string.map { !$0.isEmpty } ?? false })
            else {
                violations.append("exceptions that are not an array of texts")
                continue
            }
        }
    }

    // MARK: Metrics

    private static let names = [
        "instaOpsApplicationId", "orgName", "appName", "fullAppName", "timeStamp", "logs", "metrics", "sessionMetrics",
    ]

    private mutating func checkMetrics() {
        if members.contains(where: { !Self.names.contains($0.name) }) {
            violations.append("a member that no metrics have")
        }
        if body["timeStamp"]?.string.map({ Int64($0) ?? -1 }) ?? -1 < 0 {
            violations.append("a timeStamp that is not a text of milliseconds")
        }
        if body["sessionMetrics"]?.members?.isEmpty != false {
            violations.append("sessionMetrics that are not an object with members")
        }
        for name in ["logs", "metrics"] where body[name]?.elements?.allSatisfy({ $0.members != nil }) != true {
            violations.append("\(name) that are not an array of objects")
        }
        let logs = body["logs"]?.elements ?? []
        if logs.count > 100 { violations.append("more than 100 log entries") }
        for log in logs where (log["logMessage"]?.string ?? "").count > 200 {
            violations.append("a log message of more than 200 characters")
        }
        for metric in body["metrics"]?.elements ?? [] where (metric["url"]?.string ?? "").count > 200 {
            violations.append("a url of more than 200 characters")
        }
    }
}

private typealias Form = AppServicesForm
