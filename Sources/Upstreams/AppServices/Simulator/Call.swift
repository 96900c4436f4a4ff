import PosternCore
import PosternSimulatorKit

/// A parsed request to AppServices, with its faults on the wire (specification, sections 3, 4, and 8).
struct Call: Sendable {
    enum Step: String, ControlChoice {
        case registerDevice = "register_device"
        case registerUser = "register_user"
        case connect
        case savePreferences = "preferences"
        case disconnect
        case unregisterDevice = "unregister_device"
        case getGroup = "get_group"
        case createGroup = "create_group"
        case addUser = "add_user"
        case removeUser = "remove_user"
        case monitoringConfiguration = "monitoring_configuration"
        case metrics
        case crashLog = "crash_log"
        // What the server accepts and a gateway must never send.
        case updateDevice = "update_device"
        case updateUser = "update_user"
        case disconnectAll = "disconnect_all"

        var isMonitoring: Bool { self == .monitoringConfiguration || self == .metrics || self == .crashLog }
    }

    /// What the path and the method identify.
    enum Target: Sendable, Equatable {
        case step(Step)
        /// The path is known, with other methods.
        case wrongMethod
        case nowhere
        /// Not below the base path, or no organization and application in it.
        case noApplication
    }

    struct Auth: Sendable {
        let provider: String
        let token: String
    }

    enum Body: Sendable {
        case none
        /// With the text as sent.
        case json(JSONTree, text: [UInt8])
        case unreadable
        case tooLarge
    }

    private(set) var target = Target.nowhere
    private(set) var organization = ""
    private(set) var application = ""
    /// As named by the path or, for `register_user`, by the body.
    private(set) var user: String?
    /// In lower case if it is a UUID.
    private(set) var device: String?
    private(set) var group: String?
    /// The name of the file of a crash log.
    private(set) var file: String?
    private(set) var apiKey: String?
    /// Nil if the headers do not contain a token in the only valid form.
    private(set) var auth: Auth?
    private(set) var body = Body.none
    /// `<notifier>` of the push token's member.
    private(set) var notifier: String?
    private(set) var deviceToken: String?
    private(set) var violations: [String] = []

    var step: Step? { if case .step(let step) = target { step } else { nil } }
    var json: JSONTree? { if case .json(let value, _) = body { value } else { nil } }

    /// The server's limit; a longer body is not examined.
    static let maxBodyBytes = 1 << 20

    init(_ request: SimulatedRequest, basePath: String?) {
        readPath(request, basePath: basePath)
        if step == nil {
            violations.append("\(request.method) \(request.path.prefix(200)): there is no such call")
        }
        readQuery(request.query)
        readHeaders(request)
        readBody(request)
        if let step { violations = violations.map { "\(step.rawValue): \($0)" } }
    }

    mutating func record(_ violation: String) { violations.append(violation) }

    // MARK: Path

    private static let routes: [(method: String, path: [Substring], step: Step)] = [
        // The body determines which of the three.
        ("PUT", "device/{device}", Step.updateDevice),
        ("POST", "users", .registerUser),
        ("PUT", "users/{user}", .updateUser),
        ("POST", "users/{user}/devices/{device}", .connect),
        ("DELETE", "users/{user}/devices/{device}", .disconnect),
        ("DELETE", "users/{user}/devices/", .disconnectAll),
        ("DELETE", "users/{user}/devices", .disconnectAll),
        ("GET", "groups/{group}", .getGroup),
        ("POST", "groups", .createGroup),
        ("POST", "groups/{group}/users/{user}", .addUser),
        ("DELETE", "groups/{group}/users/{user}", .removeUser),
        ("GET", "apm/apigeeMobileConfig", .monitoringConfiguration),
        ("POST", "apm/apmMetrics", .metrics),
        ("PUT", "apm/crashLogs/{file}", .crashLog),
    ].map { ($0, $1.split(separator: "/", omittingEmptySubsequences: false), $2) }

    private mutating func readPath(_ request: SimulatedRequest, basePath: String?) {
        var rest = request.path[...]
        for base in basePath.map({ [$0] }) ?? ["/appservices", ""] where rest.hasPrefix(base + "/") {
            rest = rest.dropFirst(base.count)
            break
        }
        if let basePath, rest.count == request.path.count, !basePath.isEmpty { return target = .noApplication }
        let raw = rest.utf8.split(separator: UInt8(ascii: "/"), omittingEmptySubsequences: false)
        guard raw.count >= 4, raw[0].isEmpty else { return target = .noApplication }
        var segments: [String] = []
        for segment in raw.dropFirst() {
            guard let text = decoded(segment) else {
                violations.append("a path segment that is not percent-encoded UTF-8")
                return target = .nowhere
            }
            if !isEncodedExactly(segment) {
                violations.append("a path segment that is not encoded as everything but letters, digits, - . _ ~")
            }
            segments.append(text)
        }
        (organization, application) = (segments[0], segments[1])
        guard !organization.isEmpty, !application.isEmpty else { return target = .noApplication }
        route(request.method, segmentsAsUsual(Array(segments.dropFirst(2))))
    }

    /// The server turns a singular collection name into its plural, so it accepts both.
    private mutating func segmentsAsUsual(_ segments: [String]) -> [String] {
        var segments = segments
        let usual: [(index: Int, other: String, usual: String)] = [
            (0, "devices", "device"), (0, "user", "users"), (0, "group", "groups"), (2, "device", "devices"),
            (2, "user", "users"),
        ]
        for (index, other, usual) in usual where segments.count > index && segments[index] == other {
            violations.append("\(other) in the path instead of \(usual)")
            segments[index] = usual
        }
        return segments
    }

    private mutating func route(_ method: String, _ segments: [String]) {
        for route in Self.routes where route.path.count == segments.count {
            let pairs = zip(route.path, segments)
            guard pairs.allSatisfy({ $0.first == "{" ? !$1.isEmpty : $0 == $1 }) else { continue }
            guard route.method == method else {
                target = .wrongMethod
                continue
            }
            target = .step(route.step)
            for (name, value) in pairs { capture(value, as: name) }
            if route.step == .updateUser { violations.append("users are registered with POST") }
            if route.step == .disconnectAll { violations.append("no device id: this parts the user from all devices") }
            return
        }
    }

    private mutating func capture(_ value: String, as name: Substring) {
        switch name {
        case "{user}":
            user = value
            if !Form.isUserID(value) { violations.append("a user id that the gateway must refuse") }
        case "{device}":
            device = value
            if !Form.isUUID(value) { violations.append("a device id that is not a UUID") }
            if Form.isUUID(value), value.lowercased() != value {
                device = value.lowercased()
                violations.append("capital letters in a device id")
            }
        case "{group}":
            group = value
            if !Form.isGroupName(value) { violations.append("a group name that the gateway must refuse") }
        case "{file}":
            file = value
            let isNamed = value.hasSuffix(".crash") && Form.isUUID(String(value.dropLast(6)))
            if !isNamed { violations.append("a crash file that is not named <UUID>.crash") }
        default: break
        }
    }

    private mutating func readQuery(_ query: String?) {
        if step?.isMonitoring == true {
            if query != nil { violations.append("a query on a monitoring path") }
            return
        }
        let pairs = (query ?? "").split(separator: "&", omittingEmptySubsequences: false)
        let keys = pairs.filter { $0.hasPrefix("api_key=") }.map { $0.dropFirst(8) }
        if keys.isEmpty { violations.append("no api_key in the query") }
        if pairs.count > 1 { violations.append("a query with more than api_key") }
        apiKey = keys.first.flatMap { decoded($0.utf8) }
        if let key = keys.first, !isEncodedExactly(key.utf8) {
            violations.append("an api_key that is not encoded as everything but letters, digits, - . _ ~")
        }
    }

    // MARK: Headers

    private mutating func readHeaders(_ request: SimulatedRequest) {
        for name in ["Content-Type", "X-Auth-Provider", "Authorization", "X-Authorization", "Content-Length"]
        where request.headers.count(where: { $0.name.lowercased() == name.lowercased() }) > 1 {
            violations.append("\(name) more than once")
        }
        for name in ["Cookie", "Expect", "Content-Encoding", "Transfer-Encoding"] where request.header(name) != nil {
            violations.append("a header \(name)")
        }
        if ["POST", "PUT"].contains(request.method) {
            switch request.header("Content-Length") {
            case nil: violations.append("no Content-Length")
            case "\(request.body.count)": break
            default: violations.append("a Content-Length that is not the body's")
            }
        }
        guard let step, step.isMonitoring else {
            expectType("application/json", request)
            return readAuth(request)
        }
        if step == .metrics { expectType("application/json; charset=utf-8", request) }
        if step == .crashLog { expectType("text/plain", request) }
        for name in ["X-Auth-Provider", "Authorization", "X-Authorization"] where request.header(name) != nil {
            violations.append("\(name) on a monitoring path")
        }
    }

    private mutating func expectType(_ wanted: String, _ request: SimulatedRequest) {
        switch request.header("Content-Type") {
        case nil: violations.append("no Content-Type")
        case wanted: break
        default: violations.append("a Content-Type other than \(wanted)")
        }
    }

    private mutating func readAuth(_ request: SimulatedRequest) {
        let (bearer, plain) = (request.header("Authorization"), request.header("X-Authorization"))
        let found: Auth
        switch request.header("X-Auth-Provider") {
        case "pi":
            if plain != nil { violations.append("X-Authorization with provider pi") }
            guard let bearer else { return violations.append("no Authorization with provider pi") }
            guard bearer.hasPrefix("Bearer ") else { return violations.append("an Authorization without Bearer") }
            found = Auth(provider: "pi", token: String(bearer.dropFirst(7)))
        case "mi":
            if bearer != nil { violations.append("Authorization with provider mi") }
            guard let plain else { return violations.append("no X-Authorization with provider mi") }
            found = Auth(provider: "mi", token: plain)
        case nil: return violations.append("no X-Auth-Provider")
        default: return violations.append("an X-Auth-Provider other than pi and mi")
        }
        guard Form.isToken(found.token) else { return violations.append("a token that the gateway must refuse") }
        auth = found
    }

    // MARK: Body

    private mutating func readBody(_ request: SimulatedRequest) {
        guard let step else { return }
        switch step {
        case .connect, .disconnect, .disconnectAll, .getGroup, .addUser, .removeUser, .monitoringConfiguration:
            if !request.body.isEmpty { violations.append("a body where there is none") }
            return
        case .crashLog:
            if request.body.isEmpty { violations.append("an empty crash text") }
            return
        case .registerDevice, .registerUser, .savePreferences, .unregisterDevice, .createGroup, .metrics,
            .updateDevice, .updateUser:
            break
        }
        if request.body.count > 64 << 10 { violations.append("a body of more than 65536 bytes") }
        guard request.body.count <= Self.maxBodyBytes else { return body = .tooLarge }
        guard let document = JSONTree.read(request.body), document.value.members != nil else {
            violations.append("a body that is not a JSON object in UTF-8")
            return body = .unreadable
        }
        if document.hasTrailingBytes { violations.append("bytes after the JSON object") }
        if document.hasRepeatedNames { violations.append("a member that is given twice") }
        body = .json(document.value, text: Array(request.body[document.range]))
        let check = BodyCheck(document.value, step: step, device: device)
        violations += check.violations
        target = .step(check.step)
        (notifier, deviceToken) = (check.notifier, check.deviceToken)
        if step == .registerUser { user = document.value["username"]?.string }
        if step == .createGroup { group = document.value["path"]?.string }
    }
}

// MARK: Percent-encoding

/// Nil if the result is not UTF-8, or a percent sign has no digits.
private func decoded(_ raw: some Collection<UInt8>) -> String? {
    let decoded = PercentDecoded(raw, plusIsSpace: false)
    return decoded.isWhole ? decoded.text : nil
}

/// Whether `raw` is encoded in everything except unreserved characters. The digits may have either case.
private func isEncodedExactly(_ raw: some Collection<UInt8>) -> Bool {
    var rest = raw[...]
    while let byte = rest.popFirst() {
        guard byte == UInt8(ascii: "%") else {
            if byte.isUnreserved { continue }
            return false
        }
        let escape = PercentDecoded([byte] + rest.prefix(2), plusIsSpace: false).bytes
        guard escape.count == 1, !escape[0].isUnreserved else { return false }
        rest = rest.dropFirst(2)
    }
    return true
}

private typealias Form = AppServicesForm
