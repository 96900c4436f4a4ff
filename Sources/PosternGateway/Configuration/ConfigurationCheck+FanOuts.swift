import PosternCore
import PosternUpstream

extension ConfigurationCheck {
    /// Reports legs of fan-outs, of enabled upstreams, that are not a kind which can be sent.
    ///
    /// - Parameters:
    ///   - upstreams: All whose name and type are valid.
    ///   - entries: All members of `upstreams`.
    mutating func checkFanOuts(of upstreams: [GatewayConfiguration.UpstreamConfiguration], _ entries: [Entry]) {
        let byName = Dictionary(uniqueKeysWithValues: upstreams.map { ($0.name.description, $0) })
        for entry in entries {
            guard let upstream = byName[entry.name], upstream.isEnabled,
                let fanOuts = made(upstream, entry)?.traits.fanOuts
            else { continue }
            for (kind, legs) in fanOuts.sorted(by: { $0.key.description < $1.key.description }) {
                for (index, leg) in legs.enumerated() {
                    let fault =
                        legs[..<index].contains(leg) ? "a second time" : fault(of: leg, entries, byName)
                    guard let fault else { continue }
                    problem(keyPath(["upstreams", entry.name]), "fans \(kind) out to \(leg), \(fault)")
                }
            }
        }
    }

    /// What is wrong with a leg; nil if nothing is known to be.
    private func fault(
        of leg: Traits.Leg, _ entries: [Entry], _ byName: [String: GatewayConfiguration.UpstreamConfiguration]
    ) -> String? {
        guard let entry = entries.first(where: { $0.name == leg.upstream }) else {
            let near = nearestName(to: leg.upstream, among: entries.map(\.name)).map { "; did you mean \"\($0)\"?" }
            return "whose upstream is not configured\(near ?? "")"
        }
        guard let upstream = byName[leg.upstream] else { return nil }
        if !upstream.isEnabled { return "whose upstream is disabled" }
        guard let made = made(upstream, entry) else { return nil }
        let kinds = made.kinds.map(\.description)
        if !kinds.contains(leg.kind) {
            return "which \(leg.upstream) does not have; \(advice(for: leg.kind, among: kinds))"
        }
        return made.traits.fanOuts[Kind(leg.kind)] == nil ? nil : "which is a fan-out itself"
    }
}
