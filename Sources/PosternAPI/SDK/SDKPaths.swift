import PosternCore
import PosternUpstream

/// Where the SDK endpoints of an upstream are. Paths are lists of segments, as `segments(of:)` makes them.
struct SDKPaths: Sendable {
    private let prefix: [Substring]
    private let atRoot: [UpstreamRoute.PathTemplate]
    private let withoutRoom: [(templates: [UpstreamRoute.PathTemplate], isAtRoot: Bool, answer: SDKAnswer)]

    init(_ endpoints: SDKEndpoints) {
        prefix = endpoints.prefix.split(separator: "/")
        atRoot = endpoints.routes.filter(\.isAtRoot).flatMap(\.templates)
        withoutRoom = endpoints.routes.compactMap { route in
            route.withoutRoom.map { (route.templates, route.isAtRoot, $0) }
        }
    }

    /// Percent-decoded, without empty ones, which do not count.
    static func segments(of path: String) -> [Substring] {
        path.split(separator: "/").map { percentDecoded($0.utf8).map { Substring($0) } ?? $0 }
    }

    /// The segments below the prefix; nil if the path is another one.
    func rest(of path: [Substring]) -> [Substring]? {
        path.starts(with: prefix) ? Array(path.dropFirst(prefix.count)) : nil
    }

    /// Whether the path is below the prefix, or that of a route at the root.
    func contains(_ path: [Substring]) -> Bool {
        rest(of: path) != nil || atRoot.contains { $0.parameters(matching: path) != nil }
    }

    /// See `SDKRoute.withoutRoom`.
    func answerWithoutRoom(_ path: [Substring]) -> SDKAnswer? {
        let below = rest(of: path)
        return withoutRoom.first { templates, isAtRoot, _ in
            templates.contains { template in
                [below, isAtRoot ? path : nil].contains { $0.map { template.parameters(matching: $0) != nil } ?? false }
            }
        }?.answer
    }
}

extension SDKRoute {
    /// Its paths below the prefix.
    var templates: [UpstreamRoute.PathTemplate] {
        ([template] + (alias.map { [$0] } ?? [])).map { UpstreamRoute.PathTemplate($0) }
    }
}
