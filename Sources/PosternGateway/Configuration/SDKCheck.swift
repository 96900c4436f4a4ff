import PosternAPI
import PosternCore
import PosternUpstream

/// Where the SDK endpoints of all upstreams are: what cannot be, and what is likely to be a mistake.
enum SDKCheck {
    /// The first segments of the gateway's own paths.
    private static let reserved: Set<Substring> = ["v1", "livez", "readyz", "metrics", "openapi.yaml", "console"]

    /// Also of upstreams that have other problems, so that all are reported at once.
    static func problems(of upstreams: [GatewayConfiguration.UpstreamConfiguration]) -> [ConfigurationProblem] {
        let sites = upstreams.filter { $0.isEnabled && $0.values["sdk.enabled"] == .bool(true) }.map { upstream in
            var settings = SDKSettings()
            settings.prefix = upstream.values[SDKSettings.prefixName]?.text ?? ""
            return (
                name: upstream.name, path: settings.prefix(of: upstream.name).split(separator: "/"),
                isAtRoot: upstream.values["sdk.rootPath"] == .bool(true)
            )
        }
        var found: [ConfigurationProblem] = []
        for (index, site) in sites.enumerated() {
            if let first = site.path.first, reserved.contains(first) {
                found.append(problem(site.name, "prefix", "is a path of the gateway itself, or below one"))
            }
            for other in sites[..<index] {
                guard site.path.starts(with: other.path) || other.path.starts(with: site.path) else { continue }
                found.append(
                    problem(
                        site.name, "prefix",
                        "is that of upstreams.\(other.name), or one is below the other; give each its own"))
            }
        }
        let atRoot = sites.filter(\.isAtRoot)
        for site in atRoot.dropFirst() {
            found.append(
                problem(site.name, "rootPath", "is true, as that of upstreams.\(atRoot[0].name); only one can have it"))
        }
        return found
    }

    /// - Parameter upstreams: The enabled ones, ordered by name.
    static func warnings(
        of upstreams: [any Upstream], hasKeys: Bool, requiresCertificates: Bool
    ) -> [ConfigurationProblem] {
        let sites = upstreams.compactMap { upstream in
            (upstream as? any SDKServingUpstream)?.sdk.map { (name: upstream.name, endpoints: $0) }
        }
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
                    if last.utf8.count < shortestUnguessable {
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

    private static func problem(_ name: UpstreamName, _ setting: String, _ detail: String) -> ConfigurationProblem {
        ConfigurationProblem(keyPath(["upstreams", "\(name)", "sdk", setting]), detail)
    }
}
