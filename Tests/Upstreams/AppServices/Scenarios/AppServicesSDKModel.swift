import Foundation
package import PosternCore
package import PosternScenarios

/// An app with Pearson's framework on the Apigee SDK: two users in turns on one device. The SDK makes one call after the
/// other; one that fails cancels those behind it, and is not made again. Only a crash report is kept until it is answered
/// (the specification's section 5).
package struct AppServicesSDKModel: SDKModel {
    enum Step {
        case device(token: String)
        case user, connect
        case preferences(list: String)
        case disconnect, blanking
        case findGroup(String)
        case createGroup(String)
        case addToGroup(String)
        case removeFromGroup(String)
        case configuration
        case metrics(mark: String)
    }
    private struct Operation {
        let step: Step
        /// Who has logged in, and with which token.
        let user: String
        let token: String
        var entry: Expectations.Entry?
    }
    private struct Report {
        let entry: Expectations.Entry
        let name: String
    }
    private static let query = "?api_key=SAMPLEKEY7Q2W9E4R6T1Y8U3I5O0PAS1"
    private let number: Int
    private let device: String
    private let users: [String]
    /// Whether it is in front of the platform itself, which says of a user who has been registered that he exists, and loses
    /// a report when it is not available.
    private let isAtPlatform: Bool
    private var user: String?
    /// Whose creation was answered. The app offers groups to no other user.
    private var known: Set<String> = []
    /// How often each user has renewed the token.
    private var renewals: [String: Int] = [:]
    private var pushTokens = 0
    /// Whether the user is connected, so that the app saves preferences, and logs out at the platform.
    private var isConnected = false
    private var queue: [Operation] = []
    private var inFlight: (number: Int, operation: Operation)?
    private var reports: [Report] = []
    private var reporting: Int?
    /// The members of metrics that are the application's.
    private var configuration: String?
    /// Who has still to log in once the faults have ended.
    private var toLogIn: [String] = []
    /// Whether a token was refused for a query of a group. The SDK creates the group with it then (quirk 5).
    private var wasQueryRefused = false
    /// Whether preferences may have been stored. If their token is refused, they may be sent between a later registration of
    /// the device and its connect, which is accepted after them.
    private var hasSaved = false
    private var requests = 0
    private(set) var state: AppServicesSDKState

    package init(_ device: SDKDevice, isAtPlatform: Bool = false) {
        number = device.number
        self.device = "C0FFEE21-2233-4455-8677-" + hexadecimal(device.number, 12).uppercased()
        users = ["a", "b"].map { "app\(device.number)\($0)" }
        self.isAtPlatform = isAtPlatform
        state = AppServicesSDKState(device: self.device.lowercased(), group: "all-\(device.number)")
    }

    package var isEmpty: Bool {
        queue.isEmpty && inFlight == nil && reports.isEmpty && reporting == nil && toLogIn.isEmpty
    }
    package var credentials: [String] { users.map(token) }

    /// With the token that its user has now.
    private func operation(_ step: Step, _ entry: Expectations.Entry? = nil) -> Operation {
        Operation(step: step, user: user ?? "", token: token(of: user ?? ""), entry: entry)
    }

    private func token(of user: String) -> String { "\(secretPrefix)\(user).\(renewals[user] ?? 0)" }

    // MARK: The app

    package mutating func use(_ stage: Stage, poison: Double) {
        guard user != nil else {
            user = stage.random.pick(users)
            return launch(stage)
        }
        switch stage.random.below(9) {
        case 0, 1:
            if isConnected { queue += [operation(.disconnect), operation(.blanking)] }
            (user, isConnected) = (nil, false)
        case 2, 3: launch(stage)
        case 4: if isConnected { save(stage) }
        case 5:
            let isJoining = stage.random.chance(0.6)
            queue.append(operation(.findGroup(state.group)))
            queue.append(operation(isJoining ? .addToGroup(state.group) : .removeFromGroup(state.group)))
        case 6 where mayJoin:
            let entry = stage.beginOfSDK("group_add", lane: user)
            // Its mark is in the requests of the message that creates the group, too.
            entry.isNeeded = true
            queue.append(operation(.createGroup(entry.mark)))
            queue.append(operation(.addToGroup(entry.mark), entry))
        case 6, 7: crash(stage)
        default:
            let entry = stage.beginOfSDK("metrics", lane: nil)
            entry.isSentOnce = true
            queue.append(operation(.metrics(mark: entry.mark), entry))
        }
    }

    /// What follows the user's creation in the queue is cancelled with it.
    private var mayJoin: Bool {
        known.contains(user ?? "") || queue.contains { if case .user = $0.step { $0.user == user } else { false } }
    }

    /// The app is started, and registers its user again.
    private mutating func launch(_ stage: Stage?) {
        (isConnected, pushTokens) = (false, pushTokens + 1)
        if configuration == nil { queue.append(operation(.configuration)) }
        let token = hexadecimal(number * 100_000 + pushTokens, 64)
        let entry = stage.map { ofDevice("device", $0) }
        queue += [
            operation(.device(token: token), entry), operation(.user),
            operation(.connect),
        ]
        if let stage { save(stage) }
    }

    private mutating func save(_ stage: Stage) {
        let entry = ofDevice("preferences", stage)
        queue.append(operation(.preferences(list: entry.mark), entry))
    }

    /// Later ones replace it, and the operator cancels none.
    private func ofDevice(_ kind: String, _ stage: Stage) -> Expectations.Entry {
        let entry = stage.begin(lane: nil, leavesMark: false, isExempt: true)
        (entry.kind, entry.isFromSDK, entry.isNeeded) = (kind, true, true)
        return entry
    }

    private mutating func crash(_ stage: Stage) {
        let entry = stage.beginOfSDK("crash", lane: nil)
        // Without a token, a 401 is the end of it.
        entry.isSentOnce = true
        let name = "C0FFEE22-\(hexadecimal(number, 4))-4455-8677-\(hexadecimal(entry.number, 12)).crash"
        reports.append(Report(entry: entry, name: name))
    }

    /// Each user logs in with a new token, so that nothing waits for one.
    package mutating func finish() { toLogIn = users }

    // MARK: Requests

    package mutating func calls(at now: Timestamp, timerFired: Bool) -> [SDKCall] {
        var calls: [SDKCall] = []
        if timerFired, reporting == nil, let report = reports.first {
            let call = self.call(
                "PUT", "/apm/crashLogs/\(report.name)", [("Content-Type", "text/plain")],
                "SIGABRT \(report.entry.mark)", report.entry)
            reporting = call.number
            calls.append(call)
        }
        if timerFired, queue.isEmpty, inFlight == nil, let next = toLogIn.first {
            user = next
            renewals[next, default: 0] += 1
            launch(nil)
        }
        guard inFlight == nil, !queue.isEmpty else { return calls }
        let operation = queue.removeFirst()
        guard let call = call(for: operation, at: now) else { return calls + self.calls(at: now, timerFired: false) }
        inFlight = (call.number, operation)
        return calls + [call]
    }

    /// Nil for metrics of an application that has none.
    private mutating func call(for operation: Operation, at now: Timestamp) -> SDKCall? {
        let (user, id) = (operation.user, device.lowercased())
        let of = #""type":"device","uuid":"\#(device)""#
        func data(_ method: String, _ path: String, _ body: String = "") -> SDKCall {
            let headers = [
                ("Content-Type", "application/json"), ("X-Auth-Provider", "pi"),
                ("Authorization", "Bearer \(operation.token)"),
            ]
            return call(method, path + Self.query, headers, body, operation.entry)
        }
        switch operation.step {
        case .device(let token):
            let model = operation.entry.map { #","deviceModel":"\#($0.mark)""# } ?? ""
            return data("PUT", "/device/\(device)", #"{\#(of),"apple.notifier.id":"\#(token)"\#(model)}"#)
        case .user: return data("POST", "/users", #"{"username":"\#(user)"}"#)
        case .connect: return data("POST", "/users/\(user)/devices/\(id)")
        case .preferences(let list):
            let lists = #"{"whitelist":{"\#(list)":[]},"blacklist":{}}"#
            // The whole entity, as it was answered last.
            return data("PUT", "/device/\(id)", #"{\#(of),"mobileplatform":{"preferences":\#(lists)}}"#)
        case .disconnect: return data("DELETE", "/users/\(user)/devices/\(id)")
        case .blanking: return data("PUT", "/device/\(device)", #"{\#(of),"apple.notifier.id":""}"#)
        case .findGroup(let group): return data("GET", "/groups/\(group)")
        case .createGroup(let group): return data("POST", "/groups", #"{"path":"\#(group)","title":"\#(group)"}"#)
        case .addToGroup(let group): return data("POST", "/groups/\(group)/users/\(user)")
        case .removeFromGroup(let group): return data("DELETE", "/groups/\(group)/users/\(user)")
        case .configuration: return call("GET", "/apm/apigeeMobileConfig", [], "", nil)
        case .metrics(let mark):
            guard let configuration else { return nil }
            let body =
                #"{\#(configuration),"timeStamp":"\#(now.milliseconds)","logs":[],"metrics":[],"#
                + #""sessionMetrics":{"sessionId":"\#(mark)"}}"#
            return call(
                "POST", "/apm/apmMetrics", [("Content-Type", "application/json; charset=utf-8")], body, operation.entry)
        }
    }

    private mutating func call(
        _ method: String, _ path: String, _ headers: [(String, String)], _ body: String, _ entry: Expectations.Entry?
    ) -> SDKCall {
        requests += 1
        var call = SDKCall(
            requests, "/acme/campus-dev\(path)", method: method, headers: headers.map { (name: $0.0, value: $0.1) },
            body: body, entry.map { [$0] } ?? [])
        call.timeout = .seconds(60)
        return call
    }

    // MARK: Answers

    /// It does not look at the status.
    package mutating func take(_ reply: SDKReply?, to call: SDKCall) -> SDKVerdict {
        if call.number == reporting { return takeReport(reply) }
        guard let operation = inFlight?.operation, inFlight?.number == call.number else { return .kept }
        inFlight = nil
        let object = reply.flatMap { try? JSONSerialization.jsonObject(with: Data($0.text.utf8)) as? [String: Any] }
        switch operation.step {
        case .configuration:
            if let object { take(configuration: object) }
            return .kept
        case .metrics: return object?["message"] != nil ? .accepted : Self.failure(reply)
        case .preferences: hasSaved = true
        default: break
        }
        let entity = (object?["entities"] as? [[String: Any]])?.first
        let error = object?["error"] as? String
        if entity != nil && error == nil || isDuplicate(error, operation) { return succeed(operation, entity ?? [:]) }
        let isRefusedToken = reply?.status == 401 && error != nil
        state.fail(operation.step, of: operation.user, isStored: isRefusedToken)
        if isRefusedToken, operation.token == token(of: operation.user) {
            renewals[operation.user, default: 0] += 1
        }
        switch operation.step {
        // Whatever the reason is (quirk 5).
        case .findGroup(let group):
            let next = Operation(step: .createGroup(group), user: operation.user, token: operation.token)
            queue.insert(next, at: 0)
            wasQueryRefused = wasQueryRefused || isRefusedToken
            if reply?.status == 404 { return .kept }
        case .disconnect:
            // The next step follows all the same. Of a user whose registration was not answered.
            if reply?.status == 404 { return .kept }
        default:
            queue = []
            // Of a user or a group whose creation was not answered.
            if case .removeFromGroup = operation.step, reply?.status == 404 { return .kept }
            if case .addToGroup = operation.step, reply?.status == 404 { return .kept }
        }
        return isRefusedToken ? .postponed : Self.failure(reply)
    }

    private func isDuplicate(_ error: String?, _ operation: Operation) -> Bool {
        isAtPlatform && error == "duplicate_unique_property_exists"
    }

    private static func failure(_ reply: SDKReply?) -> SDKVerdict {
        guard let reply, reply.status != 503 else { return .kept }
        return .unexpected("\(reply.status) \(reply.text)")
    }

    private mutating func succeed(_ operation: Operation, _ entity: [String: Any]) -> SDKVerdict {
        state.succeed(operation.step, of: operation.user)
        switch operation.step {
        case .device:
            // The next steps are made of it.
            let isOurs = entity["type"] as? String == "device" && entity["uuid"] as? String == device.lowercased()
            if !isOurs { return .unexpected("\(entity)") }
        case .user: known.insert(operation.user)
        case .connect:
            isConnected = true
            toLogIn.removeAll { $0 == operation.user }
        default: break
        }
        return .accepted
    }

    /// Deletes the report after any answer.
    private mutating func takeReport(_ reply: SDKReply?) -> SDKVerdict {
        reporting = nil
        guard let reply else { return .kept }
        reports.removeFirst()
        if reply.status == 200 { return .accepted }
        return isAtPlatform ? .kept : .unexpected("\(reply.status) \(reply.text)")
    }

    private mutating func take(configuration object: [String: Any]) {
        guard let id = object["instaOpsApplicationId"], let organization = object["orgName"],
            let name = object["appName"]
        else { return }
        configuration = #""instaOpsApplicationId":\#(id),"orgName":"\#(organization)","appName":"\#(name)""#
    }

    package func explains(_ violation: String) -> Bool {
        wasQueryRefused && violation.hasSuffix("get_group: a refused token is sent again")
            || hasSaved && violation.hasSuffix("preferences: the registration of \(state.device) is not connected yet")
    }

    package func mismatch(with platform: String) -> String? { state.mismatch(with: platform) }
}
