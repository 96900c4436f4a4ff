import PosternCore
import PosternUpstream

/// A call of the Apigee SDK, by the method and path below organization and application. The raw values are names in metrics
/// and logs.
enum SDKCall: String, CaseIterable, Sendable {
    case device, user, connect, preferences, disconnect
    case unregisterDevice = "device_unregister"
    case findGroup = "group_get"
    case createGroup = "group_create"
    case addToGroup = "group_add"
    case removeFromGroup = "group_remove"
    case configuration = "config"
    case metrics, crash

    /// What is stored for it; nil if nothing is.
    var kind: AppServicesKind? {
        switch self {
        case .device: .device
        case .user: .user
        case .connect: .connect
        case .preferences: .preferences
        case .disconnect: .disconnect
        case .unregisterDevice: .unregisterDevice
        case .createGroup: .createGroup
        case .addToGroup: .addToGroup
        case .removeFromGroup: .removeFromGroup
        case .metrics: .metrics
        case .crash: .crash
        case .findGroup, .configuration: nil
        }
    }

    /// Whether it comes without a key and without a token.
    var isMonitoring: Bool { self == .configuration || self == .metrics || self == .crash }

    /// A path with its methods. `device` stands for all three calls of its path, which the body tells apart.
    private struct Route {
        let path: [Substring]
        let calls: [String: SDKCall]

        /// As the header `Allow` has them.
        var methods: String {
            calls.keys.sorted().map { $0 == "GET" ? "GET, HEAD" : $0 }.joined(separator: ", ")
        }

        init(_ path: String, _ calls: [String: SDKCall]) {
            self.path = path.split(separator: "/")
            self.calls = calls
        }

        func parameters(of segments: [String]) -> [String: String]? {
            guard segments.count == path.count else { return nil }
            var found: [String: String] = [:]
            for (part, segment) in zip(path, segments) {
                if part.hasPrefix("{") {
                    found[String(part.dropFirst().dropLast())] = segment
                } else if segment != part {
                    return nil
                }
            }
            return found
        }
    }

    private static let routes = [
        Route("devices/{device}", ["PUT": .device]),
        Route("users", ["POST": .user]),
        Route("users/{user}/devices/{device}", ["POST": .connect, "DELETE": .disconnect]),
        Route("groups", ["POST": .createGroup]),
        Route("groups/{group}", ["GET": .findGroup]),
        Route("groups/{group}/users/{user}", ["POST": .addToGroup, "DELETE": .removeFromGroup]),
        Route("apm/apigeeMobileConfig", ["GET": .configuration]),
        Route("apm/apmMetrics", ["POST": .metrics]),
        Route("apm/crashLogs/{file}", ["PUT": .crash]),
    ]

    /// Every call with a method and path of its own, below organization and application.
    static let endpoints: [(call: SDKCall, method: String, path: String)] = routes.flatMap { route in
        route.calls.sorted { $0.key < $1.key }.map { ($0.value, $0.key, route.path.joined(separator: "/")) }
    }

    enum Match {
        case call(SDKCall, [String: String])
        case noDevice
        /// The path has other methods: the value of `Allow`.
        case wrongMethod(String, isMonitoring: Bool)
        case nowhere
    }

    /// `segments`: decoded; the last one is empty if the path ends with a slash.
    static func match(_ method: String, _ segments: [String]) -> Match {
        var segments = segments
        if segments.first == "device" { segments[0] = "devices" }
        if segments.count > 2, segments[0] == "users", segments[2] == "device" { segments[2] = "devices" }
        // The SDK without a device: this would address all devices of the user (quirk 12).
        let isForAllDevices = segments.count == 3 || segments.count == 4 && segments[3].isEmpty
        if isForAllDevices, segments[0] == "users", segments[2] == "devices", ["POST", "DELETE"].contains(method) {
            return .noDevice
        }
        guard segments.last?.isEmpty == false else { return .nowhere }
        for route in routes {
            guard let parameters = route.parameters(of: segments) else { continue }
            guard let call = route.calls[method] else {
                return .wrongMethod(route.methods, isMonitoring: route.calls.values.allSatisfy(\.isMonitoring))
            }
            return .call(call, parameters)
        }
        return .nowhere
    }
}
