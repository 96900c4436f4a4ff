import Foundation
import PosternCore
public import PosternUpstream

/// A model of AppServices, for what a gateway's requests lead to: users, devices, who is connected, groups, tokens.
/// Believes every request; whether its form is right is for golden requests and the simulator.
public struct ModelAppServices: Hashable, Sendable {
    public private(set) var users: Set<String> = []
    /// Push token by device.
    public private(set) var devices: [String: String] = [:]
    /// Body of the latest request, by device.
    public private(set) var preferences: [String: String] = [:]
    /// User by device: the last connection wins.
    public private(set) var connections: [String: String] = [:]
    /// Members by group.
    public private(set) var groups: [String: Set<String>] = [:]
    public var deadTokens: Set<String> = []
    /// Violations: requests that no gateway may make.
    public private(set) var violations: [String] = []

    public init() {}

    public mutating func answer(_ request: UpstreamRequest) -> UpstreamResponse {
        guard !deadTokens.contains(Self.token(in: request)) else { return Self.error(401, "expired_token") }
        let path = request.url.split(separator: "?")[0].split(separator: "/").dropFirst(5)
            .map { ($0.removingPercentEncoding ?? "").lowercased() }
        return answer(request, path)
    }

    /// The user's token, without the word `Bearer`.
    public static func token(in request: UpstreamRequest) -> String {
        let value = request.headers.first { $0.name.hasSuffix("Authorization") }?.value ?? ""
        return value.hasPrefix("Bearer ") ? String(value.dropFirst(7)) : value
    }

    private mutating func answer(_ request: UpstreamRequest, _ path: [String]) -> UpstreamResponse {
        let body = (try? JSONSerialization.jsonObject(with: Data(request.body))) as? [String: Any] ?? [:]
        switch (request.method, path.first, path.count) {
        case (.put, "device", 2):
            if let push = body["apple.notifier.id"] as? String { devices[path[1]] = push }
            if body["mobileplatform"] != nil { preferences[path[1]] = String(decoding: request.body, as: UTF8.self) }
            if devices[path[1]] == nil { violations.append("a device was made without a push token") }
        case (.post, "users", 1):
            let user = (body["username"] as? String ?? "").lowercased()
            if !users.insert(user).inserted { return Self.error(400, "duplicate_unique_property_exists") }
        case (.post, "users", 4), (.delete, "users", 4):
            guard users.contains(path[1]), devices[path[3]] != nil else { return Self.missing }
            if request.method == .post {
                if devices[path[3]] == "" {
                    violations.append("a user was connected to a device that is not registered")
                }
                connections[path[3]] = path[1]
            } else if connections[path[3]] == path[1] {
                connections[path[3]] = nil
            }
        case (.get, "groups", 2): if groups[path[1]] == nil { return Self.missing }
        case (.post, "groups", 1):
            let group = (body["path"] as? String ?? "").lowercased()
            if groups[group] != nil { return Self.error(400, "duplicate_unique_property_exists") }
            groups[group] = []
        case (.post, "groups", 4), (.delete, "groups", 4):
            guard users.contains(path[3]), groups[path[1]] != nil else { return Self.missing }
            if request.method == .post { groups[path[1]]?.insert(path[3]) } else { groups[path[1]]?.remove(path[3]) }
        default: violations.append("\(request.method.rawValue) \(path.joined(separator: "/")) is no call")
        }
        return UpstreamResponse(status: 200, body: Array(#"{"entities":[{"uuid":"e","type":"device"}]}"#.utf8))
    }

    /// As older versions of the platform do (10.1).
    private static let missing = error(401, "service_resource_not_found")

    private static func error(_ status: Int, _ code: String) -> UpstreamResponse {
        UpstreamResponse(status: status, body: Array(#"{"error":"\#(code)"}"#.utf8))
    }
}
