import PosternAPI
import PosternCore
import PosternUpstream

/// Where the SDK endpoints of all upstreams are: what cannot be, and what is likely to be a mistake.
struct SDKCheck {
    /// Those of the enabled upstreams that have them, ordered by name.
    private let sites: [(name: UpstreamName, endpoints: SDKEndpoints)]

    init(_ upstreams: [any Upstream]) {
        sites = upstreams.compactMap { upstream in
            (upstream as? any SDKServingUpstream)?.sdk.map { (upstream.name, $0) }
        }.sorted { $0.name < $1.name }
    }

    /// The first segments of the gateway's own paths.
    private static let reserved: Set<Substring> = ["v1", "livez", "readyz", "metrics", "openapi.yaml", "console"]

    var problems: [ConfigurationProblem] {
        var found: [ConfigurationProblem] = []
        for (index, site) in sites.enumerated() {
            let path = site.endpoints.prefix.split(separator: "/")
            if let first = path.first, Self.reserved.contains(first) {
                found.append(problem(site.name, "prefix", "is a path of the gateway itself, or below one"))
            }
            for other in sites[..<index] {
                let (one, two) = (path, other.endpoints.prefix.split(separator: "/"))
                guard one.starts(with: two) || two.starts(with: one) else { continue }
                found.append(
                    problem(
                        site.name, "prefix",
                        "is that of upstreams.\(other.name), or one is below the other; give each its own"))
            }
        }
        let atRoot = sites.filter { $0.endpoints.routes.contains(where: \.isAtRoot) }
        for site in atRoot.dropFirst() {
            found.append(
                problem(site.name, "rootPath", "is true, as that of upstreams.\(atRoot[0].name); only one can have it"))
        }
        return found
    }

    func warnings(hasKeys: Bool, requiresCertificates: Bool) -> [ConfigurationProblem] {
        var found: [ConfigurationProblem] = []
        for site in sites {
            if requiresCertificates {
                found.append(
                    problem(
                        site.name, "enabled", "is true, and server.tls.clientCAFile is set; no SDK has a certificate"))
            }
            found += site.endpoints.warnings.map { problem(site.name, $0.setting, $0.detail) }
            for route in site.endpoints.routes where route.method == .post {
                switch route.access {
                case .open:
                    let last = site.endpoints.prefix.split(separator: "/").last ?? ""
                    if last.utf8.count < Self.shortestUnguessable {
                        found.append(
                            problem(
                                site.name, "anonymous",
                                "is true, and the last segment of sdk.prefix can be guessed; make it 22 random characters or more"
                            ))
                    }
                case .key where !hasKeys:
                    found.append(
                        problem(site.name, "enabled", "is true, but auth.keys is empty, so no client is let in"))
                case .key, .head, .body: break
                }
            }
        }
        return found
    }

    /// Characters of 6 bits each that make 128 bits.
    private static let shortestUnguessable = 22

    private func problem(_ name: UpstreamName, _ setting: String, _ detail: String) -> ConfigurationProblem {
        ConfigurationProblem(keyPath(["upstreams", "\(name)", "sdk", setting]), detail)
    }
}
